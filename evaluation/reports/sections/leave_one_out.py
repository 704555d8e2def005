"""Leave-one-out: verdicts, accuracies and comparisons without each annotator in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.arrays import Evidence, changed_patterns, patterns_of
from evaluation.evidence.cells import DrawnVerdicts, accuracies_of, drawn_verdicts
from evaluation.rendering.documents import Document, name_of
from evaluation.reports.sections.comparisons import common_of
from kgharvest.statistics.arrays import ACCEPTED, LABELS, Codes, Floats
from kgharvest.statistics.incomplete_statements import CompletedVerdicts
from kgharvest.tables.table import Column, Kind, Marked, Row, Table

FEWEST_ANNOTATORS = 2


class WithoutAnnotator(NamedTuple):
    """A round without the judgments of an annotator, which are missing then as those of an excluded one are.

    counts: (4,) verdicts that are certain all the same, in the order of VERDICTS. n_changed: how many statements with a
    verdict are expected to get another one. accuracy: (C,) of cells, NaN where there is none. drawn: computes what the
    draws say, which takes as long and as much memory as for the whole round.
    """

    annotator: str
    counts: Codes
    n_changed: float
    accuracy: Floats
    drawn: Callable[[], DrawnVerdicts]


def without_each_annotator(evidence: Evidence) -> Iterator[WithoutAnnotator]:
    """Leave out each annotator in turn, if there are others."""
    if len(evidence.annotators) < FEWEST_ANNOTATORS:
        return
    tables = PatternTables(evidence)
    for code, own in zip(evidence.annotators, _judgments_by_annotator(evidence), strict=True):
        yield tables.without(code, evidence.judgments.task[own], evidence.judgments.label[own])


class PatternTables:
    """How many statements show each pattern, by verdict and by stratum.

    Without a few labels they change in few places, so that leaving out each of hundreds of annotators takes little more
    than counting once. verdicts (P, 3): of complete statements; drawn (S, P): draws.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        patterns = evidence.patterns
        self._verdicts = _count_pairs(
            patterns.of_task[evidence.is_complete], evidence.verdict[evidence.is_complete],
            (len(patterns.counts), len(LABELS)),
        )  # fmt: skip
        self._drawn = _count_pairs(
            evidence.draws.stratum, patterns.of_task[evidence.draws.task], (len(evidence.strata), len(patterns.counts))
        )

    def without(self, annotator: str, tasks: Codes, labels: Codes) -> WithoutAnnotator:
        """tasks, labels: of the annotator's judgments, one of a statement."""
        evidence, old = self._evidence, self._evidence.patterns
        counts = evidence.counts[tasks] - np.eye(len(LABELS), dtype=np.int64)[labels]
        new, renumbered = changed_patterns(old, tasks, counts, evidence.wanted[tasks])
        complete = evidence.is_complete[tasks]
        verdicts = _moved(
            self._verdicts.T, renumbered, len(new.counts),
            (evidence.verdict[tasks][complete], old.of_task[tasks][complete], new.of_task[complete]),
        ).T  # fmt: skip
        place = np.full(evidence.n_tasks, -1)
        place[tasks] = np.arange(len(tasks))
        own = np.flatnonzero(place[evidence.draws.task] >= 0)
        drawn_task = evidence.draws.task[own]
        moves = evidence.draws.stratum[own], old.of_task[drawn_task], new.of_task[place[drawn_task]]
        drawn = _moved(self._drawn, renumbered, len(new.counts), moves)
        whole = CompletedVerdicts(new.counts, new.wanted, verdicts.sum(axis=1)[None], evidence.quorum)
        in_strata = CompletedVerdicts(new.counts, new.wanted, drawn, evidence.quorum)
        certain = (whole.certain * verdicts.sum(axis=1)[:, None]).sum(axis=0).astype(np.int64)
        return WithoutAnnotator(
            annotator,
            np.append(certain, evidence.n_tasks - certain.sum()),
            float((verdicts * (1 - whole.probability[0])).sum()),
            accuracies_of(evidence, in_strata.shares(ACCEPTED)),
            partial(_drawn_without, evidence, tasks, labels),
        )


def _count_pairs(rows: Codes, columns: Codes, shape: tuple[int, int]) -> Codes:
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)


def _moved(table: Codes, renumbered: Codes, n_columns: int, moves: tuple[Codes, Codes, Codes]) -> Codes:
    """Return `table` with its columns renumbered after what `moves` in a row: its row, column before and after."""
    rows, before, after = moves
    stay = table - _count_pairs(rows, before, table.shape)
    moved = _count_pairs(rows, after, (len(table), n_columns))
    moved[:, renumbered[renumbered >= 0]] += stay[:, renumbered >= 0]
    return moved


def _drawn_without(evidence: Evidence, tasks: Codes, labels: Codes) -> DrawnVerdicts:
    counts = evidence.counts.copy()
    counts[tasks, labels] -= 1
    return drawn_verdicts(evidence, patterns_of(counts, evidence.wanted))


def _judgments_by_annotator(evidence: Evidence) -> list[Codes]:
    """Return which judgments are whose."""
    annotator = evidence.judgments.annotator
    order = np.argsort(annotator, kind="stable")
    edges = np.searchsorted(annotator[order], np.arange(1, len(evidence.annotators)))
    return np.split(order, edges) if evidence.annotators else []


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
        Column("other verdicts", Kind.NUMBER),
        Column("with a verdict", Kind.COUNT),
        *(Column(name_of(total["setting"]), Kind.SHARE, name_of(total["model"])) for total in totals),
    )
    notes = (
        "other verdicts: how many statements would be decided otherwise without this annotator, as their other labels "
        "make likely; with a verdict: where these decide. Accuracy, mean over "
        "relations; in brackets: the place in the order of this sample, where it is another one; what is known of "
        "ranks: Ranks.",
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
