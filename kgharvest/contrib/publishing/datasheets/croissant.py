"""Description of a study's data in Croissant 1.1, with MLCommons' fields for responsible AI (RAI 1.0)."""

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kgharvest.contrib.publishing.datasheets.facts import Facts
from kgharvest.contrib.publishing.datasheets.filters import missing_answer
from kgharvest.contrib.publishing.packs.archive import PackFile
from kgharvest.contrib.publishing.statements.services import QUESTIONS
from kgharvest.tables.latex import latex_text

CONTEXT = json.loads(Path(__file__).with_name("croissant_context.json").read_text(encoding="utf-8"))
DATA_TYPES = {
    "string": "sc:Text",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
    "datetime": "sc:DateTime",
}
MANY = frozenset({  # RAI fields whose value is a list
    "dataCollectionType", "dataCollectionTimeframe", "dataPreprocessingProtocol", "dataAnnotationPlatform",
    "dataAnnotationAnalysis", "dataReleaseMaintenancePlan", "personalSensitiveInformation", "dataBiases",
    "dataLimitations", "dataUseCases", "annotatorDemographics", "machineAnnotationTools",
})  # fmt: skip
# Encoding formats that readers of Croissant support, by file suffix
ENCODINGS = {".parquet": "application/x-parquet", ".jsonl": "application/jsonlines"}


def croissant_file(study: Facts, files: Sequence[PackFile]) -> PackFile:
    answers = study["answers"]
    stated: dict[str, Any] = {}  # fields that contain only the authors' answers; unanswered fields are omitted
    if authors := study["authors"]:
        stated["creator"] = [{"@type": "sc:Person", "name": author.name} for author in authors]
        names = latex_text(" and ".join(f"{author.family}, {author.given}" for author in authors))
        title = latex_text(answers.get("title") or missing_answer("Title of the data"))
        year = study["created_at"][:4]
        stated["citeAs"] = f"@misc{{study, author = {{{names}}}, title = {{{title}}}, year = {{{year}}}}}"
    if study["licence_url"]:
        stated["license"] = study["licence_url"]
    if address := answers.get("resources_url") or answers.get("paper_url"):
        stated["url"] = address
    with_rows = [file for file in files if file.columns and PurePosixPath(file.path).suffix in ENCODINGS]
    with_rows.sort(key=lambda file: file.path.endswith(".parquet"))  # prefer Parquet to JSONL
    by_table = {PurePosixPath(file.path).stem: file for file in with_rows}
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": answers.get("title") or f"Judgments of the round {study['round']}",
        "description": " ".join(study["rai"]["description"]),
        "datePublished": study["created_at"][:10],
        "version": f"{study['report']}.0.0",
        "isLiveDataset": False,
        **stated,
        **{f"rai:{field}": text for field, text in responsible_ai(study).items()},
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file.path,
                "name": file.path,
                "description": file.description,
                "contentUrl": file.path,
                "contentSize": f"{len(file.content)} B",
                "encodingFormat": ENCODINGS.get(PurePosixPath(file.path).suffix, file.media_type),
                "sha256": file.sha256,
            }
            for file in files
        ],
        "recordSet": [_record_set(name, file) for name, file in by_table.items()],
    }
    content = json.dumps(described, ensure_ascii=False, indent=1) + "\n"
    return PackFile("croissant.json", content.encode(), "application/ld+json", "Croissant 1.1 with RAI 1.0.")


def responsible_ai(study: Facts) -> dict[str, Any]:
    """Return the RAI fields by name.

    Each contains the recorded text, and the authors' answer or a note that it is missing.
    """
    fields = {field: [*texts] for field, texts in study["rai"].items() if field != "description"}
    for question in QUESTIONS:
        answer = study["answers"].get(question.key, "")
        if answer and question.choices:
            answer = f"{question.label.rstrip('?')}: {dict(question.choices).get(answer, answer)}"
        if answer or not question.is_optional:
            for field in question.places.rai:
                fields.setdefault(field, []).append(answer or missing_answer(question.label))
    return {field: texts if field in MANY else " ".join(texts) for field, texts in sorted(fields.items())}


def _record_set(name: str, file: PackFile) -> dict[str, Any]:
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
