"""Files that a study writes when it is complete, and its numbers beside the published ones."""

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.utils.module_loading import import_string

from evaluation.models import Report, Study
from evaluation.rendering.documents import ORIGINS, demonstrator_mark
from evaluation.reports.files import FILES, file_suffix, write_report
from evaluation.reports.sections.rates import average_rates
from evaluation.studies.schema import validated_report
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.errors import DomainError
from kgharvest.names import short_name
from kgharvest.tables.formats import markdown_of
from kgharvest.tables.table import Column, Kind, Rates, Row, Table

PUBLISHED = "published.md"


def write_outputs(study: Study, report: Report, folder: Path) -> Iterator[Path]:
    """Write the missing and outdated files of the report to the folder; yield their paths. Raises NotWritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DomainError(
            "NotWritable", f"{folder} cannot be created ({error.strerror}). Choose another folder with --output."
        ) from error
    formats = {file_suffix(name): name for name in FILES}
    names = validated_report(study.document.get("report", {}))["outputs"]
    for name in [*names, *([PUBLISHED] if "published" in study.document else [])]:
        path = folder / name
        if name == PUBLISHED:
            text = markdown_of(study.name, [published_table(study, report)])
            if path.exists() and path.read_bytes() == text.encode():
                continue
            write_atomically(path, [text])
        elif path.exists() and path.stat().st_mtime > report.created_at.timestamp():
            continue
        elif name in formats:
            write_atomically(path, [write_report(report, formats[name])])
        else:
            import_string(settings.REPORT_OUTPUTS[name])(report, path)
        yield path


def check_outputs(study: Study) -> None:
    """Raise AppNotInstalled if an output needs an optional app that is not installed."""
    for name in validated_report(study.document.get("report", {}))["outputs"]:
        if name in settings.REPORT_OUTPUTS and import_string(settings.REPORT_OUTPUTS[name]) is refuse_pack:
            refuse_pack(None, Path(name))


def refuse_pack(report: Report | None, path: Path) -> None:
    """Raise AppNotInstalled: replication packages belong to an optional app."""
    raise DomainError(
        "AppNotInstalled",
        f"{path.name} needs the app publishing. Install it (KGHARVEST_CONTRIB), or remove {path.name} from "
        "report.outputs.",
    )


def published_table(study: Study, report: Report) -> Table:
    """Return the accepted and rejected shares of the report, averaged over relations, beside the published ones."""
    published, document = study.document["published"], report.document
    lms = {short_name(total["model"] or "") for total in document["totals"]}
    rows = []
    for row in published["rows"]:
        lm = short_name(row.get("model", ""))
        # A small version harvests another LM, whose numbers stand beside those of every published LM.
        totals = [
            total
            for total in document["totals"]
            if total["setting"] == row["setting"] and (lm not in lms or short_name(total["model"] or "") == lm)
        ]
        theirs = Rates(row["accepted"], row["rejected"])
        for total in totals or [None]:
            name = demonstrator_mark(document, total["model"]) if total else ""
            ours = average_rates(total) if total else None
            difference = ours.accepted - theirs.accepted if ours and ours.accepted is not None else None
            rows.append(Row((row["setting"], row.get("model", ""), name, theirs, ours, difference)))
    columns = (
        Column("setting"),
        Column("published LM"),
        Column("LM"),
        Column("published", Kind.RATES),
        Column("this study", Kind.RATES),
        Column("difference", Kind.POINTS),
    )
    origin = ORIGINS.get(document.get("source") or "", "")
    notes = [f"Published: {published['source']}."]
    notes += [
        "Accepted / rejected shares, averaged over relations, with the 95 % interval of this study's accepted share "
        "and its number of statements."
    ]
    if document.get("demonstrators"):
        notes.append("* Demonstrator: its accuracy says nothing about other LMs.")
    return Table("published", "Published and reproduced shares", columns, tuple(rows), tuple(notes), origin)
