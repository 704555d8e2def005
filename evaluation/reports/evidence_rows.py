"""The rows behind every number of a frozen report: statements, labels, draws; refused where they are others by now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from annotation.judges.labels import judge_labels
from annotation.models import Draw, Judgment, Round
from evaluation.evidence.rows import OWN_SCORE, ROWS_AT_ONCE, cells_with_strata
from evaluation.models import Report
from evaluation.rendering.documents import Document, lm_and_setting
from evaluation.reports.services import one_moment
from kgharvest.errors import DomainError
from kgharvest.knowledge.models import KnowledgeTuple
from kgharvest.pages.number_format import counted
from kgharvest.statistics.arrays import LABELS, VERDICTS
from kgharvest.statistics.paired_tests import CellKey

MOST_ROWS = 100_000  # draws; 12 MB with three labels a statement, which browsers show in half a second
INCOMPLETE = VERDICTS[-1]
COUNTS = ("n", *VERDICTS)
NO_ANSWER = None

Rows = dict[str, Any]


def gather_rows(report: Report) -> Rows:
    """Return what the numbers of a report rest on, as JSON in columns (docs/reports.md).

    Annotators are codes. Statements of hidden tuples have no text. Raises RowsChanged, TooManyRows.
    """
    document, round = report.document, report.round
    n_rows = sum(cell["n"] + cell["incomplete"] for cell in document["cells"])
    if n_rows > MOST_ROWS:
        raise DomainError(
            "TooManyRows",
            f"This report rests on {n_rows:,} rows; a page holds {MOST_ROWS:,}. Export the judgments of {round} "
            "instead.",
        )
    with one_moment():
        cells = cells_with_strata(round)
        draws, ids = _draws(round, cells)
        tasks, tuples = _tasks(round, ids)
        annotators, judgments = _judgments(round, ids)
        judge = _judge(report, tuples)
    rows = {"labels": LABELS, "verdicts": VERDICTS, "annotators": annotators, "judge": judge, "draws": draws}
    rows |= {"tasks": tasks | judgments, "cells": [_cell(cell) for cell in document["cells"]]}
    if difference := next(_differences(document, list(cells), rows), None):
        raise DomainError(
            "RowsChanged",
            f"{round} has changed since this report was made: {difference}. Make a new report; its page rests on the "
            "rows of today.",
        )
    return rows


# -- rows --------------------------------------------------------------------------------------------------------------


def _draws(round: Round, cells: Mapping[CellKey, Sequence[Any]]) -> tuple[Rows, list[int]]:
    """Return the draws, cell by cell with the best ranks first, and the ids of the statements that they number."""
    place = {
        stratum.pk: (number, part)
        for number, strata in enumerate(cells.values())
        for part, stratum in enumerate(strata)
    }
    columns = ("stratum_id", "harvested_tuple__rank", "task__position", "task_id", OWN_SCORE)
    drawn = Draw.objects.filter(stratum__round=round).order_by().values_list(*columns).iterator(ROWS_AT_ONCE)
    ordered = sorted((*place[stratum], rank or 0, *rest) for stratum, rank, *rest in drawn)
    statements = round.tasks.without_gold().order_by("position").values_list("pk", flat=True)
    ids = list(dict.fromkeys([*(task for *_, task, _ in ordered), *statements]))
    number = {task: position for position, task in enumerate(ids)}
    return {
        "cell": [row[0] for row in ordered],
        "stratum": [row[1] for row in ordered],
        "rank": [row[2] or None for row in ordered],
        "task": [number[row[4]] for row in ordered],
        "score": [None if row[5] is None else float(f"{row[5]:.6g}") for row in ordered],
    }, ids


def _tasks(round: Round, ids: Sequence[int]) -> tuple[Rows, list[int]]:
    """Return the statements, and the ids of their tuples."""
    fields = ("statement", "spans", "verdict", "knowledge_tuple", "knowledge_tuple__curation")
    values = {pk: rest for pk, *rest in round.tasks.order_by().values_list("pk", *fields).iterator(ROWS_AT_ONCE)}
    rows = [values[pk] for pk in ids]
    is_hidden = [row[4] == KnowledgeTuple.Curation.HIDDEN for row in rows]
    return {
        "statement": [None if hidden else row[0] for row, hidden in zip(rows, is_hidden, strict=True)],
        "spans": [
            [] if hidden else list(chain.from_iterable(row[1])) for row, hidden in zip(rows, is_hidden, strict=True)
        ],
        "verdict": [VERDICTS.index(row[2] or INCOMPLETE) for row in rows],
    }, [row[3] for row in rows]


def _judgments(round: Round, ids: Sequence[int]) -> tuple[list[str], Rows]:
    """Return the annotators, and by statement the counted judgments: annotator, label, annotator, label, ..."""
    counted_ones = Judgment.objects.counted().filter(task__round=round, task__is_gold=False)
    columns = ("task_id", "annotator__code", "label", "comment")
    given = list(counted_ones.order_by("annotator__code", "pk").values_list(*columns).iterator(ROWS_AT_ONCE))
    annotators = list(dict.fromkeys(code for _, code, *_ in given))
    number = {code: position for position, code in enumerate(annotators)}
    place = {task: position for position, task in enumerate(ids)}
    labels: list[list[int]] = [[] for _ in ids]
    comments: dict[int, dict[int, str]] = {}
    for task, code, label, comment in given:
        labels[place[task]] += [number[code], LABELS.index(label)]
        if comment:
            comments.setdefault(place[task], {})[number[code]] = comment
    return annotators, {"labels": labels, "comments": comments}


def _judge(report: Report, tuples: Sequence[int]) -> Rows | None:
    """Return what the LM that the report used says of each statement. Raises RowsChanged if it says other than then."""
    document = report.document
    if not document.get("judge"):
        return None
    name, model = document["judge"]["run"], document["judge"]["model"]
    run = report.round.judge_runs.filter(name=name).first()
    labels = judge_labels(run) if run else {}
    if len(labels) != (document.get("judge_card") or {}).get("n_asked", len(labels)):
        raise DomainError(
            "RowsChanged",
            f"The judge run {name} has answered about {counted(len(labels), 'tuple')} by now, other than when this "
            "report was made. Make a new report.",
        )
    return {"run": name, "model": model, "label": [labels.get(pk, NO_ANSWER) for pk in tuples]}


def _cell(cell: Mapping[str, Any]) -> Rows:
    keys = ("relation", "model", "setting", *COUNTS, "accuracy", "accuracy_low", "accuracy_high", "rejection")
    strata = [{key: stratum[key] for key in ("rank_from", "rank_to", "population")} for stratum in cell["strata"]]
    return {key: cell[key] for key in keys} | {"strata": strata}


# -- as of the report --------------------------------------------------------------------------------------------------


def _differences(document: Document, cells: Sequence[CellKey], rows: Rows) -> Iterator[str]:
    """Yield in what rows differ from the frozen numbers, in words."""
    reported = [CellKey(cell["relation"], cell["model"], cell["setting"]) for cell in document["cells"]]
    if reported != list(cells):
        yield "its relations, LMs or settings have other names"
        return
    outcomes = Counter(
        (cell, rows["tasks"]["verdict"][task])
        for cell, task in zip(rows["draws"]["cell"], rows["draws"]["task"], strict=True)
    )
    for number, cell in enumerate(document["cells"]):
        for code, verdict in enumerate(VERDICTS):
            if outcomes[number, code] != cell[verdict]:
                now = f"{outcomes[number, code]:,} {verdict}, in the report {cell[verdict]:,}"
                yield f"{cell['relation']} by {lm_and_setting(cell)} has {now}"
    yield from _differences_of_labels(document, rows)


def _differences_of_labels(document: Document, rows: Rows) -> Iterator[str]:
    labels = rows["tasks"]["labels"]
    said = Counter(pair for own in labels for pair in zip(own[::2], own[1::2], strict=True))
    if (n_judgments := sum(said.values())) != document["n_judgments"]:
        yield f"there are {counted(n_judgments, 'judgment')}, in the report {document['n_judgments']:,}"
    reported = {entry["annotator"]: entry for entry in document["annotators"]}
    for number, code in enumerate(rows["annotators"]):
        if any(said[number, place] != reported.get(code, {}).get(label, 0) for place, label in enumerate(LABELS)):
            yield f"annotator {code} says otherwise"
