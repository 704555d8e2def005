"""Leave-one-out: verdicts, accuracies and comparisons without each annotator in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.arrays import LABELS, VERDICTS, Codes, Evidence, Floats
from evaluation.rendering.tables import Column, Document, Kind, Marked, Row, Table, name_of
from evaluation.reports.sections.comparisons import common_of
from evaluation.reports.sections.rates import accuracies_of, stratum_counts
from evaluation.statistics.verdict_rules import majority, where_complete

FEWEST_ANNOTATORS = 2


class ChangedVerdicts(NamedTuple):
    """Statements with another verdict than the report's, or none any more. All of shape (n,)."""

    task: Codes
    verdict: Codes

    def applied_to(self, verdict: Codes) -> Codes:
        """Return all verdicts (T,) with these changes."""
        verdict = verdict.copy()
        verdict[self.task] = self.verdict
        return verdict


class WithoutAnnotator(NamedTuple):
    """A round without an annotator.

    counts: (4,) verdicts, in the order of VERDICTS. accuracy: (C,) of cells, NaN where there is none.
    """

    annotator: str
    changed: ChangedVerdicts
    counts: Codes
    accuracy: Floats


def without_each_annotator(evidence: Evidence) -> Iterator[WithoutAnnotator]:
    """Leave out each annotator in turn, if there are others; a statement that only they judged is incomplete."""
    if len(evidence.annotators) < FEWEST_ANNOTATORS:
        return
    counts = np.bincount(evidence.verdict, minlength=len(VERDICTS))
    counts_of_strata = stratum_counts(evidence, evidence.verdict)
    count_changed_draws = partial(_count_changed_draws, evidence, _DrawsOfTasks(evidence))
    for annotator, own in enumerate(_judgments_by_annotator(evidence)):
        changed = _changed_without(evidence, own)
        before = evidence.verdict[changed.task]
        yield WithoutAnnotator(
            evidence.annotators[annotator],
            changed,
            counts + _count_changes(before, changed.verdict, 1)[0],
            accuracies_of(evidence, counts_of_strata + count_changed_draws(changed)),
        )


def _judgments_by_annotator(evidence: Evidence) -> list[Codes]:
    """Return which judgments are whose."""
    annotator = evidence.judgments.annotator
    order = np.argsort(annotator, kind="stable")
    edges = np.searchsorted(annotator[order], np.arange(1, len(evidence.annotators)))
    return np.split(order, edges) if evidence.annotators else []


def _changed_without(evidence: Evidence, own: Codes) -> ChangedVerdicts:
    task, label = evidence.judgments.task[own], evidence.judgments.label[own]
    left = evidence.counts[task] - np.eye(len(LABELS), dtype=np.int64)[label]
    has_others = evidence.is_complete[task] & (left.sum(axis=1) > 0)
    verdict = where_complete(majority(left, evidence.quorum), has_others)
    is_changed = verdict != evidence.verdict[task]
    return ChangedVerdicts(task[is_changed], verdict[is_changed])


class _DrawsOfTasks:
    """The strata that drew each statement, found without looking at the other draws."""

    def __init__(self, evidence: Evidence) -> None:
        order = np.argsort(evidence.draws.task, kind="stable")
        self.stratum = evidence.draws.stratum[order]
        self.edges = np.searchsorted(evidence.draws.task[order], np.arange(evidence.n_tasks + 1))

    def of(self, task: Codes) -> tuple[Codes, Codes]:
        """Return the strata of all draws of these statements, and how many draws each statement has."""
        n_draws = self.edges[task + 1] - self.edges[task]
        before = np.cumsum(n_draws) - n_draws
        position = np.repeat(self.edges[task] - before, n_draws) + np.arange(n_draws.sum())
        return self.stratum[position], n_draws


def _count_changed_draws(evidence: Evidence, draws: _DrawsOfTasks, changed: ChangedVerdicts) -> Codes:
    """Return (S, 4): by how much each stratum's verdicts change."""
    stratum, n_draws = draws.of(changed.task)
    before, after = (np.repeat(verdict, n_draws) for verdict in (evidence.verdict[changed.task], changed.verdict))
    return _count_changes(before, after, len(evidence.strata), stratum)


def _count_changes(before: Codes, after: Codes, n_groups: int, group: Codes | int = 0) -> Codes:
    """Return (n_groups, 4): how many more or fewer of a group have each verdict than before."""
    counts = (
        np.bincount(group * len(VERDICTS) + verdict, minlength=n_groups * len(VERDICTS)) for verdict in (after, before)
    )
    more, fewer = counts
    return (more - fewer).reshape(n_groups, len(VERDICTS))


CLAIMS = "± the sign is another one. ! p after Holm is on the other side of .05."


def sensitivity_part(document: Document, name: str) -> list[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = (document.get("sensitivity") or {}).get(name, [])
    return entries


NOBODY_LEFT_OUT = {
    **dict.fromkeys(("macro_accuracy", "rank", "difference", "p_holm"), ()),
    **dict.fromkeys(("changes", "sign_changes", "significance_changes"), ()),
    **dict.fromkeys(("low", "high", "n_changes")),
}


def without_one(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an entry says of annotators left out; nothing in documents that list them among the rules."""
    without: Mapping[str, Any] = entry.get("left_out", NOBODY_LEFT_OUT)
    return without


def marked_ranks(total: Mapping[str, Any]) -> Iterable[float | Marked | None]:
    moved = set(total["changes"])
    for position, (value, rank) in enumerate(zip(total["macro_accuracy"], total["rank"], strict=True)):
        yield Marked(value, f"({rank})") if position in moved else value


def leave_one_out_table(document: Document) -> Table:
    """Annotators as rows: what each of them decides."""
    totals = [{**total, **without_one(total)} for total in sensitivity_part(document, "totals")]
    accuracies = zip(*(marked_ranks(total) for total in totals), strict=True)
    rows = [
        Row((entry["annotator"], entry["n_changed"], entry["n"], *values), about={"annotator": entry["annotator"]})
        for entry, values in zip(sensitivity_part(document, "left_out"), accuracies, strict=False)
    ]
    columns = (
        Column("left out"),
        Column("other verdicts", Kind.COUNT),
        Column("with a verdict", Kind.COUNT),
        *(Column(name_of(total["setting"]), Kind.SHARE, name_of(total["model"])) for total in totals),
    )
    notes = (
        "other verdicts: statements whose verdict is another, or gone, without this annotator. Accuracy, mean over "
        "relations; in brackets: the place among LMs and settings, where it is another one.",
    )
    return Table("left-out", "Accuracy without each annotator", columns, tuple(rows), notes)


def leave_one_out_comparison_table(document: Document) -> Table:
    """The annotators on whom a comparison hangs; no row where none does."""
    codes = [entry["annotator"] for entry in sensitivity_part(document, "left_out")]
    rows = [
        Row((
            contrast_of(comparison),
            codes[position],
            differences[position],
            without_one(comparison)["p_holm"][position],
        ), about={"annotator": codes[position]})
        for comparison in sensitivity_part(document, "comparisons")
        if (differences := list(marked_differences(without_one(comparison))))
        for position in changed_claims(without_one(comparison))
    ]  # fmt: skip
    columns = (Column("comparison"), Column("without"), Column("difference", Kind.POINTS), Column("p (Holm)", Kind.P))
    return Table("left-out-comparisons", "Comparisons that turn without one annotator", columns, tuple(rows), (CLAIMS,))


def changed_claims(claims: Mapping[str, Any]) -> list[int]:
    return sorted({*claims["sign_changes"], *claims["significance_changes"]})


def contrast_of(comparison: Mapping[str, Any]) -> str:
    return f"{common_of(comparison)}: {comparison['a']} − {comparison['b']}"


def marked_differences(claims: Mapping[str, Any]) -> Iterable[float | Marked | None]:
    for position, difference in enumerate(claims["difference"]):
        turned = {"±": claims["sign_changes"], "!": claims["significance_changes"]}
        mark = " ".join(mark for mark, positions in turned.items() if position in positions)
        yield Marked(difference, mark) if mark else difference
