"""Judgments as files: one row per annotator and statement, the last word, under codes instead of names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from annotation.models import Judgment, Label, Round
from kgharvest.services.writing import csv_lines

ROWS_AT_ONCE = 2000
COLUMNS = (
    "source", "relation", "entities", "statement", "annotator", "label", "is_counted", "seconds", "comment",
    "judged_at",
)  # fmt: skip

Row = dict[str, Any]


def judgment_rows(round: Round) -> Iterator[Row]:
    """Yield the current judgments of a round, by statement and time; memory stays flat."""
    judgments = (
        Judgment.objects.current()
        .filter(task__round=round)
        .select_related("annotator", "task__knowledge_tuple__relation")
        .order_by("task__position", "judged_at", "client_uuid")
    )
    for judgment in judgments.iterator(chunk_size=ROWS_AT_ONCE):
        yield {
            "source": round.source,
            "relation": judgment.task.knowledge_tuple.relation.name,
            "entities": judgment.task.entities,
            "statement": judgment.task.statement,
            "annotator": judgment.annotator.code,
            "label": Label(judgment.label).label,
            "is_counted": judgment.is_counted,
            "seconds": judgment.seconds,
            "comment": judgment.comment,
            "judged_at": judgment.judged_at.isoformat(),
        }


def as_jsonl(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False) + "\n"


def as_csv(rows: Iterable[Row]) -> Iterator[str]:
    return csv_lines(COLUMNS, (row | {"entities": json.dumps(row["entities"], ensure_ascii=False)} for row in rows))


FORMATS: dict[str, Callable[[Iterable[Row]], Iterator[str]]] = {"csv": as_csv, "jsonl": as_jsonl}
