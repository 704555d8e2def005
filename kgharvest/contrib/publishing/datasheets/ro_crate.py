"""Provenance of a package's files, from the LMs to the package, as RO-Crate 1.1 with PROV."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluation.rendering.documents import name_of
from kgharvest.contrib.publishing.datasheets.facts import Facts
from kgharvest.contrib.publishing.packs.archive import PackFile

SPECIFICATION = "https://w3id.org/ro/crate/1.1"
CONTEXT = [f"{SPECIFICATION}/context", {"prov": "http://www.w3.org/ns/prov#"}]
PATH = "ro-crate-metadata.json"

Entity = Mapping[str, Any]


def ro_crate_file(study: Facts, files: Sequence[PackFile]) -> PackFile:
    """Return the file that describes `files`, the other files of the package."""
    descriptor = {"@id": PATH, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": SPECIFICATION}}
    stated: dict[str, Any] = {}
    if authors := study["authors"]:
        stated["author"] = _named(*(f"#author-{number}" for number, _ in enumerate(authors, start=1)))
    if funding := study["answers"].get("funding"):
        stated["funding"] = funding
    steps = _steps(study, files)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": study["answers"].get("title") or f"Judgments of the round {study['round']}",
        "description": f"{study['say']['judged_systems']} {study['say']['sample']}",
        "datePublished": study["created_at"],
        "license": {"@id": study["licence_url"] or "LICENSE"},
        "hasPart": _named(*(file.path for file in files)),
        "mentions": _named(*(step["@id"] for step in steps)),
        **stated,
    }
    described = [
        {
            "@id": file.path,
            "@type": ["File", "prov:Entity"],
            "name": file.path,
            "description": file.description,
            "encodingFormat": file.media_type,
            "contentSize": str(len(file.content)),
            "sha256": file.sha256,
            "prov:wasGeneratedBy": {"@id": "#pack"},
        }
        for file in files
    ]
    graph = [descriptor, root, *steps, *described, *_others(study)]
    content = json.dumps({"@context": CONTEXT, "@graph": graph}, ensure_ascii=False, indent=1) + "\n"
    return PackFile(PATH, content.encode(), "application/ld+json", "Provenance of the files: RO-Crate with PROV.")


def _named(*ids: str) -> list[dict[str, str]]:
    return [{"@id": name} for name in ids]


# Actions


def _steps(study: Facts, files: Sequence[PackFile]) -> list[Entity]:
    """Return the actions in chronological order. Each action uses results of earlier actions."""
    dates = study["conduct"]["dates"]
    harvests, judges = list(_harvests(study)), [_judge_run(judge) for judge in study["judges"]]
    harvested = [act["result"]["@id"] for act in harvests]
    labels = [act["result"]["@id"] for act in judges]
    drawn_from = [*harvested, *labels] if study["draw"] == "judge" else harvested
    judging = _act("#judging", "Judging", study["say"]["judging"], ["#sample", "#instructions"], "#judgments")
    people = _named(*_annotators(study))
    method = study["document"]["method"]
    report = _act("#report", f"Report {study['report']}", method, ["#judgments", *labels], "#numbers")
    pack = _act("#pack", "Replication package", "Files of the study.", ["#numbers", "#judgments"], "./")
    return [
        *harvests,
        *judges,
        _act("#draw", "Draw of the sample", study["say"]["sample"], drawn_from, "#sample") | _when(dates["opened_at"]),
        judging
        | {"startTime": dates["first_judgment_at"] or "", "agent": people, "prov:wasAssociatedWith": people}
        | _when(dates["last_judgment_at"]),
        report | _when(study["created_at"]) | _by(study["code_version"]),
        pack | {"result": _named(*(file.path for file in files))} | _by(study["code_version"]),
    ]


def _act(name: str, title: str, description: str, objects: Sequence[str], result: str) -> dict[str, Any]:
    """Return an action. objects: ids of the entities that the action uses."""
    return {
        "@id": name,
        "@type": ["CreateAction", "prov:Activity"],
        "name": title,
        "description": description,
        "instrument": {"@id": "#kgharvest"},
        "object": _named(*objects),
        "result": {"@id": result},
        "prov:used": _named(*objects),
    }


def _when(ended_at: str | None) -> dict[str, str]:
    return {"endTime": ended_at, "prov:endedAtTime": ended_at} if ended_at else {}


def _by(version: str | None) -> dict[str, Any]:
    return {"instrument": {"@id": f"#kgharvest-{version}"}} if version else {}


def _harvests(study: Facts) -> Iterator[dict[str, Any]]:
    """Yield the harvest of each cell. Cells of imported judgments have no harvest."""
    for number, cell in enumerate(study["conduct"]["cells"], start=1):
        if cell["job"] is None:
            continue
        title = f"Harvest of {cell['relation']} from {name_of(cell['model'])} by {name_of(cell['setting'])}"
        if cell["origin"] == "imported":
            title = f"Import of a harvest of {cell['relation']}"
        description = f"{cell['harvested']:,} tuples from {cell['n_prompts']} prompts; id in the files: {cell['job']}."
        act = _act(
            f"#harvest-{number}", title, description, [_lm_id(cell["model"], cell["revision"])], f"#tuples-{number}"
        )
        yield act | _when(cell["harvested_at"]) | _by(cell["code_version"])


def _judge_run(judge: Entity) -> dict[str, Any]:
    name, lm = judge["name"], _lm_id(judge["model"], judge["revision"])
    description = f"{judge['kind']}, temperature {judge['temperature']}, prompt SHA-256 {judge['prompt_sha256']}"
    return _act(f"#judge-{name}", f"LM judge {name}", description, [lm], f"#labels-{name}") | _when(judge["ended_at"])


def _lm_id(model: str | None, revision: str | None) -> str:
    return f"#lm-{name_of(model)}{f'-{revision}' if revision else ''}".replace(" ", "-")


def _annotators(study: Facts) -> list[str]:
    """Return the ids of the annotators, which are numbered and identify no person."""
    return [f"#annotator-{number}" for number, _ in enumerate(study["document"]["annotators"], start=1)]


# Entities


def _others(study: Facts) -> Iterator[Entity]:
    """Yield the entities that are not files: results of actions, LMs, software, people, and the license."""
    for act in (*_harvests(study), *map(_judge_run, study["judges"])):
        yield _result(act["result"]["@id"], f"Result of {act['name']}", act["@id"])
    yield _result("#sample", "Statements, frozen when the round opened", "#draw")
    yield _result("#judgments", "Judgments", "#judging")
    yield _result("#numbers", f"Report {study['report']}, frozen", "#report")
    instructions = _result("#instructions", "Instructions for annotators", "")
    yield {**instructions, "sha256": study["instructions_sha256"], "sameAs": {"@id": "instructions.md"}}
    harvested = [cell for cell in study["conduct"]["cells"] if cell["job"] is not None]
    for model, revision in dict.fromkeys((lm["model"], lm["revision"]) for lm in (*harvested, *study["judges"])):
        lm = {"@id": _lm_id(model, revision), "@type": ["SoftwareApplication", "prov:Entity"], "name": name_of(model)}
        yield lm | ({"version": revision} if revision else {})
    yield {"@id": "#kgharvest", "@type": "SoftwareApplication", "name": "kgharvest"}
    versions = {cell["code_version"] for cell in study["conduct"]["cells"] if cell["code_version"]}
    for version in sorted(versions | {study["code_version"]}):
        name = f"#kgharvest-{version}"
        yield {"@id": name, "@type": "SoftwareApplication", "name": "kgharvest", "version": version}
    kind = "SoftwareApplication" if study["is_simulated"] else "Person"
    for name, annotator in zip(_annotators(study), study["document"]["annotators"], strict=True):
        yield {"@id": name, "@type": [kind, "prov:Agent"], "name": f"annotator {annotator['annotator']}"}
    for number, author in enumerate(study["authors"], start=1):
        affiliation = {"affiliation": author.affiliation} if author.affiliation else {}
        yield {"@id": f"#author-{number}", "@type": "Person", "name": author.name, **affiliation}
    if licence := study["licence_url"]:
        yield {"@id": licence, "@type": "CreativeWork", "name": study["answers"]["licence"]}


def _result(name: str, title: str, by: str) -> dict[str, Any]:
    generated = {"prov:wasGeneratedBy": {"@id": by}} if by else {}
    return {"@id": name, "@type": ["CreativeWork", "prov:Entity"], "name": title, **generated}
