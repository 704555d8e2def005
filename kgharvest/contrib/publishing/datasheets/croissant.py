"""Croissant 1.1 description of a study's data, with the responsible AI fields (RAI 1.0) of MLCommons."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kgharvest.contrib.publishing.datasheets.facts import Facts
from kgharvest.contrib.publishing.datasheets.filters import missing_answer
from kgharvest.contrib.publishing.packs.archive import PackFile
from kgharvest.contrib.publishing.statements.services import QUESTIONS
from kgharvest.tables.latex import latex_text

CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
CONTEXT = json.loads(Path(__file__).with_name("croissant_context.json").read_text(encoding="utf-8"))
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
ENCODINGS = {".parquet": PARQUET, ".jsonl": JSON_LINES}  # names that Croissant readers support


def croissant_file(study: Facts, files: Sequence[PackFile]) -> PackFile:
    answers = study["answers"]
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": answers.get("title") or f"Judgments of the round {study['round']}",
        "description": " ".join(study["rai"]["description"]),
        "datePublished": study["created_at"][:10],
        "version": f"{study['report']}.0.0",
        "isLiveDataset": False,
        **_stated(study),
        **{f"rai:{field}": text for field, text in responsible_ai(study).items()},
        "distribution": [_file_object(file) for file in files],
        "recordSet": [_record_set(file) for file in _with_records(files)],
    }
    content = json.dumps(described, ensure_ascii=False, indent=1) + "\n"
    return PackFile("croissant.json", content.encode(), "application/ld+json", "Croissant 1.1 with RAI 1.0.")


def _stated(study: Facts) -> dict[str, Any]:
    """Return the fields that only the authors can fill. A missing answer has no field."""
    fields: dict[str, Any] = {}
    if authors := study["authors"]:
        fields["creator"] = [{"@type": "sc:Person", "name": author.name} for author in authors]
        names = latex_text(" and ".join(f"{author.family}, {author.given}" for author in authors))
        title = latex_text(study["answers"].get("title") or missing_answer("Title of the data"))
        year = study["created_at"][:4]
        fields["citeAs"] = f"@misc{{study, author = {{{names}}}, title = {{{title}}}, year = {{{year}}}}}"
    if study["licence_url"]:
        fields["license"] = study["licence_url"]
    if address := study["answers"].get("resources_url") or study["answers"].get("paper_url"):
        fields["url"] = address
    return fields


def responsible_ai(study: Facts) -> dict[str, Any]:
    """Return each RAI field by name: recorded text, followed by the authors' answer or a note that it is missing."""
    fields = {field: [*texts] for field, texts in study["rai"].items() if field != "description"}
    for question in QUESTIONS:
        answer = study["answers"].get(question.key, "")
        if answer and question.choices:
            answer = f"{question.label.rstrip('?')}: {dict(question.choices).get(answer, answer)}"
        if answer or not question.is_optional:
            for field in question.places.rai:
                fields.setdefault(field, []).append(answer or missing_answer(question.label))
    return {field: texts if field in MANY else " ".join(texts) for field, texts in sorted(fields.items())}


# Files and records


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
    """Yield files of rows. If a table is in two formats, yield its Parquet file."""
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
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column.name}",
                "name": column.name,
                "description": column.description,
                "dataType": DATA_TYPES[column.type],
                "source": {"fileObject": {"@id": file.path}, "extract": {"column": column.name}},
            }
            for column in file.columns
        ],
    }
