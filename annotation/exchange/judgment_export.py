"""Export of current judgments: one row per annotator and statement, with annotator codes instead of names."""

from collections.abc import Iterator, Sequence

from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpResponse

from annotation.models import Adjudication, Judgment, Label, Round
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, added_formats
from kgharvest.tables.table import Column, Kind, Row, Table

ROWS_AT_ONCE = 5000
FILE_FORMATS = ("csv", "jsonl", "parquet", *added_formats())

# Query lookup and kind of value for each column.
FIELDS = {
    "relation": ("task__knowledge_tuple__relation__name", Kind.TEXT),
    "entities": ("task__entities", Kind.LIST),
    "statement": ("task__statement", Kind.TEXT),
    "annotator": ("annotator__code", Kind.TEXT),
    "label": ("label", Kind.TEXT),
    "is_counted": ("is_counted", Kind.BOOLEAN),
    "is_gold": ("task__is_gold", Kind.BOOLEAN),
    "seconds": ("seconds", Kind.NUMBER),
    "comment": ("comment", Kind.TEXT),
    "judged_at": ("judged_at", Kind.TIME),
    "is_excluded": ("is_excluded", Kind.BOOLEAN),
    "adjudication": ("adjudication", Kind.TEXT),
}
# Columns of rounds with these options.
ADDED = {"asks_wrong_part": ("wrong_part", Kind.TEXT), "has_references": ("opened_reference", Kind.BOOLEAN)}
LABEL, ADJUDICATION = (1 + list(FIELDS).index(name) for name in ("label", "adjudication"))


def current_judgments(round: Round) -> QuerySet[Judgment]:
    """Return the current judgments of a round, with the label given by an expert as `adjudication`."""
    adjudication = Adjudication.objects.current().filter(task=OuterRef("task")).values("label")
    current = Judgment.objects.current().not_withdrawn().filter(task__round=round)
    return current.annotate(adjudication=Subquery(adjudication))


def judgment_table(round: Round) -> Table:
    """Return the current judgments of a round, ordered by statement and time. Rows are read lazily."""
    fields = FIELDS | {field[0]: field for option, field in ADDED.items() if getattr(round, option)}
    columns = (Column("source"), *(Column(name, kind) for name, (_, kind) in fields.items()))
    return Table("judgments", "Judgments", columns, _rows(round, [path for path, _ in fields.values()]))


def _rows(round: Round, paths: Sequence[str]) -> Iterator[Row]:
    ordered = current_judgments(round).order_by("task__position", "judged_at", "client_uuid")
    labels = {label.value: label.label for label in Label}
    for values in ordered.values_list(*paths).iterator(chunk_size=ROWS_AT_ONCE):
        row = [round.source, *values]
        row[LABEL] = labels[row[LABEL]]
        row[ADJUDICATION] = labels.get(row[ADJUDICATION])
        yield Row(row)


def judgments_file(round: Round, file_format: str) -> HttpResponse:
    """Return the judgments of a round as a streamed file. Raises Http404 for an unknown format."""
    if file_format not in FILE_FORMATS:
        raise Http404(f"Unknown format. Use one of {', '.join(FILE_FORMATS)}.")
    return download(FORMATS[file_format].write(judgment_table(round)), f"{round.name}-judgments.{file_format}")
