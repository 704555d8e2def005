"""Leave-one-out: verdicts, accuracies and comparisons without each annotator in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.arrays import ACCEPTED, LABELS, Codes, Evidence, Floats, patterns_of
from evaluation.evidence.cells import DrawnVerdicts, accuracies_of, drawn_verdicts
from evaluation.rendering.tables import Column, Document, Kind, Marked, Row, Table, name_of
from evaluation.reports.sections.comparisons import common_of
from evaluation.statistics.incomplete_statements import CompletedVerdicts

FEWEST_ANNOTATORS = 2


class WithoutAnnotator(NamedTuple):
    """A round without the judgments of an annotator, which are missing then as those of an excluded one are.

    counts: (4,) verdicts that are certain all the same, in the order of VERDICTS. n_changed: how many statements with a
    verdict are expected to get another one. accuracy: (C,) of cells, NaN where there is none.
    """

    annotator: str
    counts: Codes
    n_changed: float
    accuracy: Floats
    drawn: DrawnVerdicts


def without_each_annotator(evidence: Evidence) -> Iterator[WithoutAnnotator]:
    """Leave out each annotator in turn, if there are others."""
    if len(evidence.annotators) < FEWEST_ANNOTATORS:
        return
    label = np.eye(len(LABELS), dtype=np.int64)
    for code, own in zip(evidence.annotators, _judgments_by_annotator(evidence), strict=True):
        counts = evidence.counts.copy()
        counts[evidence.judgments.task[own]] -= label[evidence.judgments.label[own]]
        yield without_labels(evidence, code, counts)


def without_labels(evidence: Evidence, annotator: str, counts: Codes) -> WithoutAnnotator:
    """counts: (T, 3) the labels that are left."""
    patterns = patterns_of(counts, evidence.wanted)
    drawn = drawn_verdicts(evidence, patterns)
    complete = np.flatnonzero(evidence.is_complete)
    whole = CompletedVerdicts(
        patterns.counts,
        patterns.wanted,
        np.bincount(patterns.of_task[complete], minlength=len(patterns.counts))[None],
        evidence.quorum,
    )
    probability = whole.probability[0][patterns.of_task[complete]]  # (complete T, 3)
    kept = probability[np.arange(len(complete)), evidence.verdict[complete]]
    certain = whole.certain[patterns.of_task[complete]].sum(axis=0).astype(np.int64)
    return WithoutAnnotator(
        annotator,
        np.append(certain, evidence.n_tasks - certain.sum()),
        float(len(complete) - kept.sum()),
        accuracies_of(evidence, drawn.shares(ACCEPTED)),
        drawn,
    )


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
