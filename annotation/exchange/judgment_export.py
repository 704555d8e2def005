"""Export of judgments: one row per annotator and statement, the current judgment, under codes instead of names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from django.db.models import OuterRef, Subquery

from annotation.models import Adjudication, Judgment, Label, Round
from kgharvest.bulk.file_writing import StreamedFile, csv_lines

ROWS_AT_ONCE = 5000
ROWS_IN_A_GROUP = 20_000  # of a Parquet file; what one takes in memory

# Each column of an export: where it comes from, and its type in Parquet.
FIELDS = {
    "relation": ("task__knowledge_tuple__relation__name", pa.string()),
    "entities": ("task__entities", pa.list_(pa.string())),
    "statement": ("task__statement", pa.string()),
    "annotator": ("annotator__code", pa.string()),
    "label": ("label", pa.string()),
    "is_counted": ("is_counted", pa.bool_()),
    "is_gold": ("task__is_gold", pa.bool_()),
    "seconds": ("seconds", pa.float64()),
    "comment": ("comment", pa.string()),
    "judged_at": ("judged_at", pa.timestamp("us", "UTC")),
    "is_excluded": ("is_excluded", pa.bool_()),
    "adjudication": ("adjudication", pa.string()),
}
COLUMNS = ("source", *FIELDS)

Row = dict[str, Any]


def judgment_rows(round: Round) -> Iterator[Row]:
    """Yield the current judgments of a round, by statement and time; memory stays flat."""
    current = Judgment.objects.current().not_withdrawn().filter(task__round=round)
    adjudication = Adjudication.objects.current().filter(task=OuterRef("task")).values("label")
    current = current.annotate(adjudication=Subquery(adjudication))
    ordered = current.order_by("task__position", "judged_at", "client_uuid")
    values = ordered.values_list(*(path for path, _ in FIELDS.values()))
    labels = {label.value: label.label for label in Label}
    for row in values.iterator(chunk_size=ROWS_AT_ONCE):
        named = dict(zip(COLUMNS, (round.source, *row), strict=True))
        named["label"] = labels[named["label"]]
        named["adjudication"] = labels.get(named["adjudication"])
        yield named


def as_csv(rows: Iterable[Row]) -> Iterator[bytes]:
    """Write a table whose texts no spreadsheet takes for formulas; the other formats have every text as it is."""
    lists_as_json = (_as_text(row) | {"entities": json.dumps(row["entities"], ensure_ascii=False)} for row in rows)
    return (piece.encode() for piece in csv_lines(COLUMNS, lists_as_json))


def as_jsonl(rows: Iterable[Row]) -> Iterator[bytes]:
    for row in rows:
        yield json.dumps(_as_text(row), ensure_ascii=False).encode() + b"\n"


def _as_text(row: Row) -> Row:
    return row | {"judged_at": row["judged_at"].isoformat()}


def as_parquet(rows: Iterable[Row]) -> Iterator[bytes]:
    schema = pa.schema([("source", pa.string()), *((name, kind) for name, (_, kind) in FIELDS.items())])
    file = StreamedFile()
    with pq.ParquetWriter(file, schema) as writer:
        rows = iter(rows)
        while group := list(islice(rows, ROWS_IN_A_GROUP)):
            writer.write_batch(pa.RecordBatch.from_pylist(group, schema), ROWS_IN_A_GROUP)
            yield file.take()
    yield file.take()


class FileFormat(NamedTuple):
    """How rows become the bytes of a file, and what browsers are told it is."""

    name: str
    write: Callable[[Iterable[Row]], Iterator[bytes]]
    content_type: str


FORMATS = {
    "csv": FileFormat("CSV", as_csv, "text/csv; charset=utf-8"),
    "jsonl": FileFormat("JSONL", as_jsonl, "application/jsonl; charset=utf-8"),
    "parquet": FileFormat("Parquet", as_parquet, "application/vnd.apache.parquet"),
}
