"""The data of a study in Croissant 1.1 with the fields of responsible AI 1.0 (MLCommons)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from evaluation.paper.datasheets import sentences
from evaluation.paper.datasheets.citation import licence_url
from evaluation.paper.datasheets.facts import StudyFacts
from evaluation.paper.files import PackColumn, PackFile
from evaluation.paper.statements.questions import BY_KEY, QUESTIONS, authors_of
from kgharvest.tables.latex import latex_text

CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
DATA_TYPES = {
    "string": "sc:Text",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
    "datetime": "sc:DateTime",
}
MANY = frozenset({  # fields of RAI that take a list
    "dataCollectionType", "dataCollectionTimeframe", "dataPreprocessingProtocol", "dataAnnotationPlatform",
    "dataAnnotationAnalysis", "dataReleaseMaintenancePlan", "personalSensitiveInformation", "dataBiases",
    "dataLimitations", "dataUseCases", "annotatorDemographics", "machineAnnotationTools",
})  # fmt: skip
PARQUET, JSON_LINES = "application/x-parquet", "application/jsonlines"
ENCODINGS = {".parquet": PARQUET, ".jsonl": JSON_LINES}  # as readers of Croissant know them


def write_croissant(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": facts.answers.get("title") or f"Judgments of the round {facts.round}",
        "description": _description(facts),
        "datePublished": facts.created_at[:10],
        "version": f"{facts.report}.0.0",
        "isLiveDataset": False,
        **_said(facts),
        **{f"rai:{field}": text for field, text in responsible_ai(facts).items()},
        "distribution": [_file_object(file) for file in files],
        "recordSet": [_record_set(file) for file in _with_records(files)],
    }
    content = json.dumps(described, ensure_ascii=False, indent=1) + "\n"
    return PackFile(
        "croissant.json", content.encode(), "application/ld+json", "The data in Croissant 1.1 with RAI 1.0."
    )


def _description(facts: StudyFacts) -> str:
    return f"{sentences.judged_systems(facts)}. {sentences.sample(facts)} {sentences.judging(facts)}"


def _said(facts: StudyFacts) -> dict[str, Any]:
    """Return what people say, and nothing for what nobody has said: an empty licence would be none."""
    said: dict[str, Any] = {}
    if authors := authors_of(facts.answers):
        said["creator"] = [{"@type": "sc:Person", "name": author.name} for author in authors]
        said["citeAs"] = _cite_as(facts)
    if licence := licence_url(facts):
        said["license"] = licence
    if address := facts.answers.get("resources_url") or facts.answers.get("paper_url"):
        said["url"] = address
    return said


def _cite_as(facts: StudyFacts) -> str:
    authors = latex_text(" and ".join(f"{author.family}, {author.given}" for author in authors_of(facts.answers)))
    title = facts.answers.get("title") or sentences.must_say(BY_KEY["title"].label)
    return f"@misc{{study, author = {{{authors}}}, title = {{{latex_text(title)}}}, year = {{{facts.created_at[:4]}}}}}"


# -- responsible AI ----------------------------------------------------------------------------------------------------


def responsible_ai(facts: StudyFacts) -> dict[str, Any]:
    """Return every field by its name: what the records tell, then what people say or must say."""
    recorded = {field: [*texts] for field, texts in _recorded(facts).items()}
    for question in QUESTIONS:
        for field in question.places.rai:
            said = dict(question.choices).get(facts.answers.get(question.key, ""), facts.answers.get(question.key, ""))
            labelled = f"{question.label.rstrip('?')}: {said}" if question.choices and said else said
            if said or not question.is_optional:
                recorded.setdefault(field, []).append(labelled or sentences.must_say(question.label))
    return {field: texts if field in MANY else " ".join(texts) for field, texts in sorted(recorded.items())}


def _recorded(facts: StudyFacts) -> dict[str, list[str]]:
    dates = facts.conduct["dates"]
    return {
        "dataCollection": [
            f"{sentences.origin(facts)}, sampled, written as statements, and judged.",
            sentences.sample(facts),
            sentences.how_they_came(facts),
        ],
        "dataCollectionType": ["Software Collection", *["Manual Human Curator"] * facts.is_of_people],
        "dataCollectionRawData": [
            f"LMs, their revisions and the prompts are in the pack. {sentences.revisions(facts)}",
        ],
        "dataCollectionMissingData": [sentences.completeness(facts)],
        "dataCollectionTimeframe": [dates[key] for key in ("first_judgment_at", "last_judgment_at") if dates[key]],
        "dataPreprocessingProtocol": [sentences.sensitive(facts), "Tuples hidden by curation were left out."],
        "dataAnnotationProtocol": [
            sentences.judging(facts), sentences.verdict_rule(facts), sentences.training(facts), sentences.gold(facts),
            sentences.limits(facts), sentences.stopping(facts), sentences.consent(facts),
            f"Instructions in full: instructions.md (SHA-256 {facts.instructions_sha256}).",
        ],
        "dataAnnotationPlatform": [sentences.platform(facts)],
        "dataAnnotationAnalysis": [
            sentences.agreement(facts), sentences.estimator(facts), sentences.exclusions(facts),
            sentences.adjudication(facts),
        ],
        "annotationsPerItem": [_per_statement(facts)],
        "annotatorDemographics": [f"{sentences.n_evaluators(facts):,} annotators whose judgments count."],
        "machineAnnotationTools": [sentences.judge(facts)],
        "dataLimitations": list(sentences.notes(facts)),
        "dataBiases": [],
        "personalSensitiveInformation": [sentences.data_of_people(facts), sentences.sensitive(facts)],
    }  # fmt: skip


def _per_statement(facts: StudyFacts) -> str:
    if facts.is_imported:
        return "as many as were imported"
    return "2 or 3" if facts.design["third_only_if_split"] else str(facts.design["judgments_per_task"])


# -- files and records -------------------------------------------------------------------------------------------------


def _file_object(file: PackFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path,
        "description": file.description,
        "contentUrl": file.path,
        "contentSize": f"{len(file.content)} B",
        "encodingFormat": ENCODINGS.get(PurePosixPath(file.path).suffix, file.media_type),
        "sha256": file.sha256,
    }


def _with_records(files: Sequence[PackFile]) -> Iterator[PackFile]:
    """Yield files of rows; of the same rows in two formats those in Parquet."""
    with_columns = [file for file in files if file.columns and PurePosixPath(file.path).suffix in ENCODINGS]
    in_parquet = {PurePosixPath(file.path).stem for file in with_columns if file.path.endswith(".parquet")}
    for file in with_columns:
        if file.path.endswith(".parquet") or PurePosixPath(file.path).stem not in in_parquet:
            yield file


def _record_set(file: PackFile) -> dict[str, Any]:
    name = PurePosixPath(file.path).stem
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": file.description,
        "field": [_field(name, file, column) for column in file.columns],
    }


def _field(record_set: str, file: PackFile, column: PackColumn) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{record_set}/{column.name}",
        "name": column.name,
        "description": column.description,
        "dataType": DATA_TYPES[column.type],
        "source": {"fileObject": {"@id": file.path}, "extract": {"column": column.name}},
    }
