"""The same numbers under other rules, and where a rule would turn a ranking or a claim around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluation.comparisons import SIGNIFICANT, compare_accuracies
from evaluation.documents.annotators import FittedModel
from evaluation.documents.rates import accuracies_of
from evaluation.evidence import LABELS, VERDICTS, Codes, Evidence, Floats
from evaluation.verdict_rules import adjudicated, majority, unanimous, unjudgeable_as_false, where_complete

MOST_LEFT_OUT = 20


class Applied(NamedTuple):
    """A rule and its verdicts (T,), or None and the reason why it could not be applied."""

    rule: str
    annotator: str | None
    title: str
    verdict: Codes | None
    reason: str | None = None


def sensitivity_entry(evidence: Evidence, models: Sequence[FittedModel]) -> dict[str, Any]:
    rules = list(_rules(evidence, models))
    accuracies = [None if rule.verdict is None else accuracies_of(evidence, rule.verdict) for rule in rules]
    table = np.array([np.full(len(evidence.cells), np.nan) if each is None else each for each in accuracies])  # (R, C)
    return {
        "rules": [_rule_entry(rule) for rule in rules],
        "cells": list(_cell_entries(evidence, table)),
        "totals": list(_total_entries(evidence, table)),
        "comparisons": _comparison_entries(evidence, table),
    }


# -- the rules ---------------------------------------------------------------------------------------------------------


def _rules(evidence: Evidence, models: Sequence[FittedModel]) -> Iterator[Applied]:
    """Yield the report's own rule first. A statement without a verdict has none under any rule."""
    yield Applied("majority", None, "Majority", evidence.verdict)
    counts, is_complete = evidence.counts, evidence.is_complete
    yield Applied("unanimous", None, "Unanimous", where_complete(unanimous(counts, evidence.quorum), is_complete))
    moved = unjudgeable_as_false(counts, evidence.quorum)
    yield Applied("unjudgeable_as_false", None, "Unjudgeable as False", where_complete(moved, is_complete))
    [dawid_skene] = [model for model in models if model.name == "dawid_skene"]
    yield Applied("dawid_skene", None, "Dawid-Skene", dawid_skene.verdict, dawid_skene.reason)
    if evidence.n_adjudicated:
        verdict = where_complete(adjudicated(evidence.verdict, evidence.adjudicated), is_complete)
        yield Applied("adjudicated", None, "Adjudicated", verdict)
    yield from _without_each_annotator(evidence)


def _without_each_annotator(evidence: Evidence) -> Iterator[Applied]:
    """Leave out each annotator, at most the busiest; a statement that only they judged is incomplete."""
    judgments = evidence.judgments
    n_judgments = np.bincount(judgments.annotator, minlength=len(evidence.annotators))
    busiest = np.sort(np.argsort(-n_judgments, kind="stable")[:MOST_LEFT_OUT])
    order = np.argsort(judgments.annotator, kind="stable")
    edges = np.searchsorted(judgments.annotator[order], np.arange(len(evidence.annotators) + 1))
    for annotator in busiest[n_judgments[busiest] > 0].tolist():
        own = order[edges[annotator] : edges[annotator + 1]]
        task = judgments.task[own]
        left = evidence.counts[task] - np.eye(len(LABELS), dtype=np.int64)[judgments.label[own]]
        verdict = evidence.verdict.copy()
        has_others = evidence.is_complete[task] & (left.sum(axis=1) > 0)
        verdict[task] = where_complete(majority(left, evidence.quorum), has_others)
        code = evidence.annotators[annotator]
        yield Applied("without_annotator", code, f"Without {code}", verdict)


def _rule_entry(rule: Applied) -> dict[str, Any]:
    entry = {"rule": rule.rule, "annotator": rule.annotator, "title": rule.title}
    if rule.verdict is None:
        return {**entry, **dict.fromkeys(("n", *VERDICTS[:3])), "reason": rule.reason}
    numbers = [int(np.count_nonzero(rule.verdict == verdict)) for verdict in range(3)]
    return {**entry, "n": sum(numbers), **dict(zip(VERDICTS, numbers, strict=False)), "reason": None}


# -- cells and totals, ranked ------------------------------------------------------------------------------------------


def _cell_entries(evidence: Evidence, table: Floats) -> Iterator[dict[str, Any]]:
    relations = np.array([cell.relation for cell in evidence.cells], dtype=object)
    ranks = np.full(table.shape, np.nan)
    for relation in dict.fromkeys(relations.tolist()):
        columns = np.flatnonzero(relations == relation)
        ranks[:, columns] = _ranks(table[:, columns])
    for number, key in enumerate(evidence.cells):
        yield {**key._asdict(), "accuracy": _numbers(table[:, number]), **_ranking(table[:, number], ranks[:, number])}


def _total_entries(evidence: Evidence, table: Floats) -> Iterator[dict[str, Any]]:
    averages = np.array([_means(table[:, evidence.side_of_cell == side]) for side in range(len(evidence.sides))]).T
    ranks = _ranks(averages) if averages.size else averages
    for number, (model, setting) in enumerate(evidence.sides):
        values = averages[:, number]
        yield {
            "model": model,
            "setting": setting,
            "macro_accuracy": _numbers(values),
            **_ranking(values, ranks[:, number]),
        }


def _means(table: Floats) -> Floats:
    """Return the mean of each row without its NaNs; NaN for a row of nothing else."""
    n = np.count_nonzero(~np.isnan(table), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 0, np.nansum(table, axis=1) / n, np.nan)


def _ranks(table: Floats) -> Floats:
    """Return the place of each value in its row, 1 the largest; ties share the better place; NaN stays NaN."""
    is_above = table[:, np.newaxis, :] > table[:, :, np.newaxis] + 1e-9  # (R, n, n)
    return np.where(np.isnan(table), np.nan, 1 + is_above.sum(axis=2))


def _ranking(values: Floats, ranks: Floats) -> dict[str, Any]:
    is_known = ~np.isnan(values)
    changes = np.flatnonzero(is_known & is_known[0] & (ranks != ranks[0]))
    return {"rank": [None if np.isnan(rank) else int(rank) for rank in ranks], "changes": changes.tolist()}


def _numbers(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


# -- claims ------------------------------------------------------------------------------------------------------------


def _comparison_entries(evidence: Evidence, table: Floats) -> list[dict[str, Any]]:
    """Return one entry per comparison of the report, None where a rule leaves too few relations."""
    by_rule = []
    for row in table:
        accuracies = dict(zip(evidence.cells, _numbers(row), strict=True))
        by_rule.append({_identity(each): each for each in compare_accuracies(accuracies, evidence.seed)})
    return [_comparison_entry(identity, [rule.get(identity) for rule in by_rule]) for identity in by_rule[0]]


def _identity(entry: Mapping[str, Any]) -> tuple[str, str | None, str, str]:
    return entry["kind"], entry["common"], entry["a"], entry["b"]


def _comparison_entry(identity: tuple, entries: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    kind, common, a, b = identity
    known = [(position, entry) for position, entry in enumerate(entries) if entry is not None]
    own = entries[0]
    return {
        "kind": kind,
        "model" if kind == "settings" else "setting": common,
        "a": a,
        "b": b,
        "difference": [entry and entry["difference"] for entry in entries],
        "p_holm": [entry and entry["p_holm"] for entry in entries],
        "sign_changes": [position for position, entry in known if _sign(entry) != _sign(own)],
        "significance_changes": [
            position for position, entry in known if _is_significant(entry) != _is_significant(own)
        ],
    }


def _sign(entry: Mapping[str, Any]) -> int:
    return int(np.sign(entry["difference"]))


def _is_significant(entry: Mapping[str, Any]) -> bool:
    return entry["p_holm"] < SIGNIFICANT
