"""How the files of a pack came to be, as an RO-Crate 1.1 with PROV: from the LMs to the pack."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluation.paper.datasheets import sentences
from evaluation.paper.datasheets.citation import licence_url
from evaluation.paper.datasheets.facts import JudgeFacts, StudyFacts
from evaluation.paper.files import PackFile
from evaluation.paper.statements.questions import authors_of
from evaluation.rendering.documents import name_of

SPECIFICATION = "https://w3id.org/ro/crate/1.1"
CONTEXT = [f"{SPECIFICATION}/context", {"prov": "http://www.w3.org/ns/prov#"}]
PATH = "ro-crate-metadata.json"

Entity = Mapping[str, Any]


def write_ro_crate(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    """files: all others of the pack."""
    graph = [_descriptor(), _root(facts, files), *_steps(facts, files), *map(_file, files), *_others(facts)]
    content = json.dumps({"@context": CONTEXT, "@graph": graph}, ensure_ascii=False, indent=1) + "\n"
    return PackFile(PATH, content.encode(), "application/ld+json", "How the files came to be: RO-Crate with PROV.")


def _named(*ids: str) -> list[dict[str, str]]:
    return [{"@id": name} for name in ids]


def _descriptor() -> Entity:
    return {
        "@id": PATH,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": SPECIFICATION},
    }


def _root(facts: StudyFacts, files: Sequence[PackFile]) -> Entity:
    said: dict[str, Any] = {}
    if authors := authors_of(facts.answers):
        said["author"] = _named(*(f"#author-{number}" for number, _ in enumerate(authors, start=1)))
    if funding := facts.answers.get("funding"):
        said["funding"] = funding
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": facts.answers.get("title") or f"Judgments of the round {facts.round}",
        "description": f"{sentences.judged_systems(facts)}. {sentences.sample(facts)}",
        "datePublished": facts.created_at,
        "license": {"@id": "LICENSE"} if not licence_url(facts) else {"@id": licence_url(facts)},
        "hasPart": _named(*(file.path for file in files)),
        "mentions": _named(*(step["@id"] for step in _steps(facts, files))),
        **said,
    }


def _file(file: PackFile) -> Entity:
    return {
        "@id": file.path,
        "@type": ["File", "prov:Entity"],
        "name": file.path,
        "description": file.description,
        "encodingFormat": file.media_type,
        "contentSize": str(len(file.content)),
        "sha256": file.sha256,
        "prov:wasGeneratedBy": {"@id": "#pack"},
    }


# -- what was done -----------------------------------------------------------------------------------------------------


def _steps(facts: StudyFacts, files: Sequence[PackFile]) -> list[Entity]:
    """Return the acts, in the order in which each rests on the one before."""
    dates = facts.conduct["dates"]
    harvests, judges = list(_harvests(facts)), [_judge_run(judge) for judge in facts.judges]
    harvested = [act["result"]["@id"] for act in harvests]
    labels = [act["result"]["@id"] for act in judges]
    drawn_from = [*harvested, *labels] if sentences.how_drawn(facts) == sentences.BY_JUDGE else harvested
    judging = _act("#judging", "Judging", sentences.judging(facts), ["#sample", "#instructions"], "#judgments")
    people = _named(*_annotators(facts))
    report = _act("#report", f"Report {facts.report}", facts.document["method"], ["#judgments", *labels], "#numbers")
    pack = _act("#pack", "Pack for a paper", "Files of the study.", ["#numbers", "#judgments"], "./")
    return [
        *harvests,
        *judges,
        _act("#draw", "Draw of the sample", sentences.sample(facts), drawn_from, "#sample") | _when(dates["opened_at"]),
        judging
        | {"startTime": dates["first_judgment_at"] or "", "agent": people, "prov:wasAssociatedWith": people}
        | _when(dates["last_judgment_at"]),
        report | _when(facts.created_at) | _by(facts.code_version),
        pack | {"result": _named(*(file.path for file in files))} | _by(facts.code_version),
    ]


def _act(name: str, title: str, description: str, objects: Sequence[str], result: str) -> dict[str, Any]:
    """Return an act. objects: what it rests on."""
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


def _harvests(facts: StudyFacts) -> Iterator[dict[str, Any]]:
    """Yield the harvest of each cell; imported judgments have none."""
    for number, cell in enumerate(facts.conduct["cells"], start=1):
        if cell["job"] is None:
            continue
        title = f"Harvest of {cell['relation']} from {name_of(cell['model'])} by {name_of(cell['setting'])}"
        if cell["origin"] == "imported":
            title = f"Import of a harvest of {cell['relation']}"
        description = f"{cell['harvested']:,} tuples by {cell['n_prompts']} prompts; in files it is {cell['job']}."
        act = _act(
            f"#harvest-{number}", title, description, [_lm_id(cell["model"], cell["revision"])], f"#tuples-{number}"
        )
        yield act | _when(cell["harvested_at"]) | _by(cell["code_version"])


def _judge_run(judge: JudgeFacts) -> dict[str, Any]:
    description = f"{judge.kind}, temperature {judge.temperature:g}, prompt SHA-256 {judge.prompt_sha256}"
    lm, labels = _lm_id(judge.model, judge.revision), f"#labels-{judge.name}"
    return _act(f"#judge-{judge.name}", f"LM judge {judge.name}", description, [lm], labels) | _when(judge.ended_at)


def _lm_id(model: str | None, revision: str | None) -> str:
    return f"#lm-{name_of(model)}{f'-{revision}' if revision else ''}".replace(" ", "-")


def _annotators(facts: StudyFacts) -> list[str]:
    """Return the ids of those who judged: of their codes, which name nobody."""
    return [f"#annotator-{number}" for number, _ in enumerate(facts.document["annotators"], start=1)]


# -- what and who they are about ---------------------------------------------------------------------------------------


def _others(facts: StudyFacts) -> Iterator[Entity]:
    yield from _results(facts)
    yield from _lms(facts)
    yield from _software(facts)
    kind = "Person" if facts.is_of_people else "SoftwareApplication"
    for name, annotator in zip(_annotators(facts), facts.document["annotators"], strict=True):
        yield {"@id": name, "@type": [kind, "prov:Agent"], "name": f"annotator {annotator['annotator']}"}
    for number, author in enumerate(authors_of(facts.answers), start=1):
        affiliation = {"affiliation": author.affiliation} if author.affiliation else {}
        yield {"@id": f"#author-{number}", "@type": "Person", "name": author.name, **affiliation}
    if licence := licence_url(facts):
        yield {"@id": licence, "@type": "CreativeWork", "name": facts.answers["licence"]}


def _results(facts: StudyFacts) -> Iterator[Entity]:
    """Yield what acts made that is no file of the pack by itself."""
    for act in (*_harvests(facts), *map(_judge_run, facts.judges)):
        yield _made(act["result"]["@id"], f"Result of {act['name']}", act["@id"])
    yield _made("#sample", "Statements, frozen when the round opened", "#draw")
    yield _made("#judgments", "Judgments", "#judging")
    yield _made("#numbers", f"Report {facts.report}, frozen", "#report")
    instructions = _made("#instructions", "Instructions for annotators", "")
    yield {**instructions, "sha256": facts.instructions_sha256, "sameAs": {"@id": "instructions.md"}}


def _made(name: str, title: str, by: str) -> dict[str, Any]:
    generated = {"prov:wasGeneratedBy": {"@id": by}} if by else {}
    return {"@id": name, "@type": ["CreativeWork", "prov:Entity"], "name": title, **generated}


def _lms(facts: StudyFacts) -> Iterator[Entity]:
    cells = [(cell["model"], cell["revision"]) for cell in facts.conduct["cells"] if cell["job"] is not None]
    judges = [(judge.model, judge.revision) for judge in facts.judges]
    for model, revision in dict.fromkeys([*cells, *judges]):
        version = {"version": revision} if revision else {}
        yield {
            "@id": _lm_id(model, revision), "@type": ["SoftwareApplication", "prov:Entity"],
            "name": name_of(model), **version,
        }  # fmt: skip


def _software(facts: StudyFacts) -> Iterator[Entity]:
    versions = {cell["code_version"] for cell in facts.conduct["cells"] if cell["code_version"]} | {facts.code_version}
    yield {"@id": "#kgharvest", "@type": "SoftwareApplication", "name": "kgharvest"}
    for version in sorted(versions):
        yield {
            "@id": f"#kgharvest-{version}", "@type": "SoftwareApplication", "name": "kgharvest", "version": version,
        }  # fmt: skip
