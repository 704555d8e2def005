"""Files that a study writes when it is complete, and its numbers beside the published ones."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.utils.module_loading import import_string

from evaluation.models import Report, Study
from evaluation.rendering.documents import ORIGINS, demonstrator_mark
from evaluation.reports.files import FILES, file_suffix, write_report
from evaluation.reports.sections.rates import average_rates
from evaluation.studies.schema import validated_report
from evaluation.studies.sections import sections_of
from kgharvest.bulk.file_writing import write_atomically, write_if_changed
from kgharvest.errors import DomainError
from kgharvest.names import short_name
from kgharvest.tables.formats import markdown_of
from kgharvest.tables.table import Column, Kind, Rates, Row, Table

PUBLISHED = "published.md"
Measured = TypeVar("Measured")


def write_outputs(study: Study, report: Report | None, folder: Path) -> Iterator[Path]:
    """Write the missing and outdated files of the study to the folder; yield their paths. Raises NotWritable.

    report: None while the study has no report.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DomainError(
            "NotWritable", f"{folder} cannot be created ({error.strerror}). Choose another folder with --output."
        ) from error
    if report:
        yield from _write_report(study, report, folder)
    for section in sections_of(study.document):
        yield from section.write(study, folder)
    if tables := published_tables(study, report):
        path = folder / PUBLISHED
        if write_if_changed(path, markdown_of(study.name, tables)):
            yield path


def _write_report(study: Study, report: Report, folder: Path) -> Iterator[Path]:
    formats = {file_suffix(name): name for name in FILES}
    for name in validated_report(study.document.get("report", {}))["outputs"]:
        path = folder / name
        if report.pk is None and name not in formats:
            continue  # a package needs a stored report
        if path.exists() and path.stat().st_mtime > report.created_at.timestamp():
            continue
        if name in formats:
            write_atomically(path, [write_report(report, formats[name])])
        else:
            import_string(settings.REPORT_OUTPUTS[name])(report, path)
        yield path


def check_outputs(study: Study) -> None:
    """Raise AppNotInstalled if an output needs an optional app that is not installed."""
    for name in validated_report(study.document.get("report", {}))["outputs"]:
        if not is_available(name):
            refuse_pack(None, Path(name))


def is_available(output: str) -> bool:
    """Return False if the output needs an optional app that is not installed."""
    return output not in settings.REPORT_OUTPUTS or import_string(settings.REPORT_OUTPUTS[output]) is not refuse_pack


def refuse_pack(report: Report | None, path: Path) -> None:
    """Raise AppNotInstalled: replication packages belong to an optional app."""
    raise DomainError(
        "AppNotInstalled",
        f"{path.name} needs the app publishing. Install it (KGHARVEST_CONTRIB), or remove {path.name} from "
        "report.outputs.",
    )


def published_tables(study: Study, report: Report | None) -> list[Table]:
    """Return the results of the study beside the published ones."""
    has_rows = report is not None and "rows" in study.document.get("published", {})
    of_report = [published_table(study, report)] if has_rows else []
    return of_report + [table for section in sections_of(study.document) for table in section.published_tables(study)]


def measured_on(published_lm: str, measured: Sequence[Measured], lm_of: Callable[[Measured], str]) -> list[Measured]:
    """Return the measurements of the published LM.

    Returns all if there are none: a small version measures another LM, whose numbers appear beside those of every
    published LM.
    """
    lm = short_name(published_lm)
    return [entry for entry in measured if short_name(lm_of(entry)) == lm] or list(measured)


def published_table(study: Study, report: Report) -> Table:
    """Return the accepted and rejected shares of the report, averaged over relations, beside the published ones."""
    published, document = study.document["published"], report.document
    rows = []
    for row in published["rows"]:
        of_lm = measured_on(row.get("model", ""), document["totals"], lambda total: total["model"] or "")
        totals = [total for total in of_lm if total["setting"] == row["setting"]]
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
