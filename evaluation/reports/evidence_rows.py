"""The rows behind every number of a frozen report: statements, labels, and draws.

Later judgments are ignored. An error is raised if the rows no longer reproduce the report for another reason, for
example if an annotator was excluded.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from django.db.models import Q, QuerySet

from annotation.judges.labels import judge_labels
from annotation.judging.verdicts import task_verdict, wanted_if_split
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

# Maximum number of draws; the page then has 12 MB with three labels per statement and renders in half a second
MOST_ROWS = 100_000
INCOMPLETE = VERDICTS[-1]
COUNTS = ("n", *VERDICTS)
NO_ANSWER = None

Rows = dict[str, Any]


def gather_rows(report: Report, *, with_judge: bool = True) -> Rows:
    """Return the rows of a report as columns of JSON (docs/reports.md).

    Annotators appear as codes. Statements of hidden tuples have no text. Raises DomainError RowsChanged or TooManyRows.
    """
    document, round = report.document, report.round
    n_rows = sum(cell["n"] + cell["incomplete"] for cell in document["cells"])
    if n_rows > MOST_ROWS:
        raise DomainError(
            "TooManyRows",
            f"The report has {n_rows:,} rows; the limit of the evidence page is {MOST_ROWS:,}. Export the judgments of "
            f"{round} instead.",
        )
    with one_moment():
        cells = cells_with_strata(round)
        draws, ids = _draws(round, cells)
        tasks, tuples, wanted = _tasks(round, ids)
        judge = _judge(report, tuples) if with_judge else None
        rows = {"labels": LABELS, "verdicts": VERDICTS, "judge": judge, "draws": draws}
        rows["cells"] = [_cell(cell) for cell in document["cells"]]
        judgments = Judgment.objects.filter(task__round=round, task__is_gold=False)
        rows |= _judged(tasks, judgments.counted(), ids)
        difference = next(_differences(document, list(cells), rows), None)
        if difference and document.get("audit"):
            rows |= _judged(tasks, _at_entry(judgments, document["audit"]["number"]), ids)
            rows["tasks"]["verdict"] = [
                _verdict(round, n, labels[1::2]) for n, labels in zip(wanted, rows["tasks"]["labels"], strict=True)
            ]
            difference = next(_differences(document, list(cells), rows), None) and difference
    if difference:
        raise DomainError(
            "RowsChanged",
            f"{round} has changed since this report was created: {difference}. Create a new report to get the evidence "
            "page.",
        )
    return rows


def without_annotators(rows: Rows) -> Rows:
    """Return the rows for readers of share links: labels in a fixed order without annotators, comments, and a judge."""
    labels = [[part for label in sorted(of_task[1::2]) for part in (0, label)] for of_task in rows["tasks"]["labels"]]
    return {**rows, "annotators": [""], "judge": None, "tasks": {**rows["tasks"], "labels": labels, "comments": {}}}


def _draws(round: Round, cells: Mapping[CellKey, Sequence[Any]]) -> tuple[Rows, list[int]]:
    """Return the draws, sorted by cell and rank, and the statement ids. Draws refer to statements by position."""
    positions = {
        stratum.pk: (number, part)
        for number, strata in enumerate(cells.values())
        for part, stratum in enumerate(strata)
    }
    columns = ("stratum_id", "harvested_tuple__rank", "task__position", "task_id", OWN_SCORE)
    draws = Draw.objects.filter(stratum__round=round).order_by().values_list(*columns).iterator(ROWS_AT_ONCE)
    ordered = sorted((*positions[stratum], rank or 0, *rest) for stratum, rank, *rest in draws)
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


def _tasks(round: Round, ids: Sequence[int]) -> tuple[Rows, list[int], list[int]]:
    """Return the statements, the ids of their tuples, and the numbers of required judgments."""
    fields = ("statement", "spans", "verdict", "knowledge_tuple", "knowledge_tuple__curation", "n_wanted")
    values = {pk: rest for pk, *rest in round.tasks.order_by().values_list("pk", *fields).iterator(ROWS_AT_ONCE)}
    rows = [values[pk] for pk in ids]
    is_hidden = [row[4] == KnowledgeTuple.Curation.HIDDEN for row in rows]
    return (
        {
            "statement": [None if hidden else row[0] for row, hidden in zip(rows, is_hidden, strict=True)],
            "spans": [
                [] if hidden else list(chain.from_iterable(row[1])) for row, hidden in zip(rows, is_hidden, strict=True)
            ],
            "verdict": [VERDICTS.index(row[2] or INCOMPLETE) for row in rows],
        },
        [row[3] for row in rows],
        [row[5] for row in rows],
    )


def _at_entry(judgments: QuerySet[Judgment], number: int) -> QuerySet[Judgment]:
    """Return the judgments that counted at this entry of the audit log, before later answers and changes of answers."""
    is_last = Q(superseded_by=None) | Q(superseded_by__sealed_in=None) | Q(superseded_by__sealed_in__gt=number)
    return judgments.filter(is_last, is_counted=True, sealed_in__lte=number)


def _verdict(round: Round, n_wanted: int, labels: Sequence[int]) -> int:
    """Return the verdict of these labels as a position in VERDICTS. n_wanted: the current number, if it is constant."""
    counts = [labels.count(label) for label in range(len(LABELS))]
    if round.third_only_if_split:
        n_wanted = wanted_if_split(*counts)
    return VERDICTS.index(task_verdict(*counts, n_wanted, round.quorum) or INCOMPLETE)


def _judged(tasks: Rows, judgments: QuerySet[Judgment], ids: Sequence[int]) -> Rows:
    """Return the annotators, and the statements with their judgments: annotator, label, annotator, label, ..."""
    columns = ("task_id", "annotator__code", "label", "comment")
    rows = list(judgments.order_by("annotator__code", "pk").values_list(*columns).iterator(ROWS_AT_ONCE))
    annotators = list(dict.fromkeys(code for _, code, *_ in rows))
    number = {code: position for position, code in enumerate(annotators)}
    position_of = {task: position for position, task in enumerate(ids)}
    labels: list[list[int]] = [[] for _ in ids]
    comments: dict[int, dict[int, str]] = {}
    for task, code, label, comment in rows:
        labels[position_of[task]] += [number[code], LABELS.index(label)]
        if comment:
            comments.setdefault(position_of[task], {})[number[code]] = comment
    return {"annotators": annotators, "tasks": tasks | {"labels": labels, "comments": comments}}


def _judge(report: Report, tuples: Sequence[int]) -> Rows | None:
    """Return the labels of the report's judge by statement. Raises RowsChanged if the number of labels differs."""
    document = report.document
    if not document.get("judge"):
        return None
    name, model = document["judge"]["run"], document["judge"]["model"]
    run = report.round.judge_runs.filter(name=name).first()
    labels = judge_labels(run) if run else {}
    if len(labels) != (document.get("judge_card") or {}).get("n_asked", len(labels)):
        raise DomainError(
            "RowsChanged",
            f"The judge run {name} now has labels for {counted(len(labels), 'tuple')}, which differs from the report. "
            "Create a new report.",
        )
    return {"run": name, "model": model, "label": [labels.get(pk, NO_ANSWER) for pk in tuples]}


def _cell(cell: Mapping[str, Any]) -> Rows:
    keys = ("relation", "model", "setting", *COUNTS, "accuracy", "accuracy_low", "accuracy_high", "rejection")
    strata = [{key: stratum[key] for key in ("rank_from", "rank_to", "population")} for stratum in cell["strata"]]
    return {key: cell[key] for key in keys} | {"strata": strata}


def _differences(document: Document, cells: Sequence[CellKey], rows: Rows) -> Iterator[str]:
    """Yield texts that describe the differences between the current rows and the frozen numbers."""
    reported = [CellKey(cell["relation"], cell["model"], cell["setting"]) for cell in document["cells"]]
    if reported != list(cells):
        yield "relations, LMs, or settings were renamed"
        return
    outcomes = Counter(
        (cell, rows["tasks"]["verdict"][task])
        for cell, task in zip(rows["draws"]["cell"], rows["draws"]["task"], strict=True)
    )
    for number, cell in enumerate(document["cells"]):
        for code, verdict in enumerate(VERDICTS):
            if outcomes[number, code] != cell[verdict]:
                now = f"{outcomes[number, code]:,} {verdict}, but {cell[verdict]:,} in the report"
                yield f"{cell['relation']} by {lm_and_setting(cell)} has {now}"
    labels = rows["tasks"]["labels"]
    counts = Counter(pair for of_task in labels for pair in zip(of_task[::2], of_task[1::2], strict=True))
    if (n_judgments := sum(counts.values())) != document["n_judgments"]:
        yield f"there are {counted(n_judgments, 'judgment')}, but {document['n_judgments']:,} in the report"
    reported = {entry["annotator"]: entry for entry in document["annotators"]}
    for number, code in enumerate(rows["annotators"]):
        if any(counts[number, place] != reported.get(code, {}).get(label, 0) for place, label in enumerate(LABELS)):
            yield f"annotator {code} has changed labels"
