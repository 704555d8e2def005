"""The same numbers under other rules, and where a rule would turn a ranking or a claim around."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.arrays import INCOMPLETE, VERDICTS, Codes, Evidence, Floats
from evaluation.reports.sections.annotators import FittedModel
from evaluation.reports.sections.compare_sides import SIGNIFICANT, ComparedRules, compare_rules
from evaluation.reports.sections.leave_one_out import LeftOut, without_each_annotator
from evaluation.reports.sections.rates import accuracies_of, stratum_counts
from evaluation.statistics.verdict_rules import adjudicated, unanimous, unjudgeable_as_false, where_complete


class Applied(NamedTuple):
    """A rule and its verdicts (T,), or None and the reason why it could not be applied."""

    rule: str
    title: str
    verdict: Codes | None
    reason: str | None = None


def sensitivity_entry(evidence: Evidence, models: Sequence[FittedModel]) -> dict[str, Any]:
    rules = list(_rules(evidence, models))
    left_out = list(without_each_annotator(evidence))
    table = np.array([*(_accuracies(evidence, rule) for rule in rules), *(each.accuracy for each in left_out)])
    return {
        "rules": [_rule_entry(rule) for rule in rules],
        "left_out": [_left_out_entry(each) for each in left_out],
        "cells": list(_cell_entries(evidence, table, len(rules))),
        "totals": list(_total_entries(evidence, table, len(rules))),
        "comparisons": [
            _comparison_entry(each, len(rules)) for each in compare_rules(evidence.cells, table, evidence.seed)
        ],
    }


# -- the rules ---------------------------------------------------------------------------------------------------------


def _rules(evidence: Evidence, models: Sequence[FittedModel]) -> Iterator[Applied]:
    """Yield the report's own rule first. A statement without a verdict has none under any rule."""
    yield Applied("majority", "Majority", evidence.verdict)
    counts, is_complete = evidence.counts, evidence.is_complete
    yield Applied("unanimous", "Unanimous", where_complete(unanimous(counts, evidence.quorum), is_complete))
    moved = unjudgeable_as_false(counts, evidence.quorum)
    yield Applied("unjudgeable_as_false", "Unjudgeable as False", where_complete(moved, is_complete))
    [dawid_skene] = [model for model in models if model.name == "dawid_skene"]
    yield Applied("dawid_skene", "Dawid-Skene", dawid_skene.verdict, dawid_skene.reason)
    if evidence.n_adjudicated:
        verdict = where_complete(adjudicated(evidence.verdict, evidence.adjudicated), is_complete)
        yield Applied("adjudicated", "Adjudicated", verdict)


def _accuracies(evidence: Evidence, rule: Applied) -> Floats:
    if rule.verdict is None:
        return np.full(len(evidence.cells), np.nan)
    return accuracies_of(evidence, stratum_counts(evidence, rule.verdict))


def _rule_entry(rule: Applied) -> dict[str, Any]:
    entry = {"rule": rule.rule, "title": rule.title}
    if rule.verdict is None:
        return {**entry, **dict.fromkeys(("n", *VERDICTS[:INCOMPLETE])), "reason": rule.reason}
    return {**entry, **_numbers_of(np.bincount(rule.verdict, minlength=len(VERDICTS))), "reason": None}


def _left_out_entry(left_out: LeftOut) -> dict[str, Any]:
    return {
        "annotator": left_out.annotator,
        **_numbers_of(left_out.counts),
        "n_changed": left_out.n_changed,
    }


def _numbers_of(counts: Codes) -> dict[str, int]:
    numbers = dict(zip(VERDICTS[:INCOMPLETE], counts[:INCOMPLETE].tolist(), strict=True))
    return {"n": sum(numbers.values()), **numbers}


# -- cells and totals, ranked ------------------------------------------------------------------------------------------


def _cell_entries(evidence: Evidence, table: Floats, n_rules: int) -> Iterator[dict[str, Any]]:
    """Rows of `table`, of shape (R + A, C): the rules, then the annotators left out, too many to list in each cell."""
    relations = np.array([cell.relation for cell in evidence.cells], dtype=object)
    ranks = np.full(table.shape, np.nan)
    for relation in dict.fromkeys(relations.tolist()):
        columns = np.flatnonzero(relations == relation)
        ranks[:, columns] = _ranks(table[:, columns])
    for number, key in enumerate(evidence.cells):
        values, places = table[:, number], ranks[:, number]
        yield {
            **key._asdict(),
            "accuracy": _numbers(values[:n_rules]),
            **_ranking(values, places, slice(n_rules)),
            "left_out": _extremes(values[n_rules:])
            | {"n_changes": len(_ranking(values, places, slice(n_rules, None))["changes"])},
        }


def _extremes(values: Floats) -> dict[str, float | None]:
    known = values[~np.isnan(values)]
    return {"low": float(known.min()), "high": float(known.max())} if len(known) else {"low": None, "high": None}


def _total_entries(evidence: Evidence, table: Floats, n_rules: int) -> Iterator[dict[str, Any]]:
    averages = np.array([_means(table[:, evidence.side_of_cell == side]) for side in range(len(evidence.sides))]).T
    ranks = _ranks(averages) if averages.size else averages
    for number, (model, setting) in enumerate(evidence.sides):
        values, places = averages[:, number], ranks[:, number]
        of_rules, of_annotators = (
            {"macro_accuracy": _numbers(values[part]), **_ranking(values, places, part)}
            for part in (slice(n_rules), slice(n_rules, None))
        )
        yield {"model": model, "setting": setting, **of_rules, "left_out": of_annotators}


def _means(table: Floats) -> Floats:
    """Return the mean of each row without its NaNs; NaN for a row of nothing else."""
    n = np.count_nonzero(~np.isnan(table), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 0, np.nansum(table, axis=1) / n, np.nan)


def _ranks(table: Floats) -> Floats:
    """Return the place of each value in its row, 1 the largest; ties share the better place; NaN stays NaN."""
    is_above = table[:, np.newaxis, :] > table[:, :, np.newaxis] + 1e-9  # (R, n, n)
    return np.where(np.isnan(table), np.nan, 1 + is_above.sum(axis=2))


def _ranking(values: Floats, ranks: Floats, part: slice) -> dict[str, Any]:
    """Return the ranks of a part of the rows, and where in it they are not those of the report's own rule."""
    is_known = ~np.isnan(values) & ~np.isnan(values[0])
    changes = np.flatnonzero((is_known & (ranks != ranks[0]))[part])
    return {"rank": [None if np.isnan(rank) else int(rank) for rank in ranks[part]], "changes": changes.tolist()}


def _numbers(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


# -- claims ------------------------------------------------------------------------------------------------------------


def _comparison_entry(compared: ComparedRules, n_rules: int) -> dict[str, Any]:
    pair = compared.pair
    a, b = pair.names
    of_rules, of_annotators = (_claims(compared, part) for part in (slice(n_rules), slice(n_rules, None)))
    common = "model" if pair.kind == "settings" else "setting"
    return {"kind": pair.kind, common: pair.common, "a": a, "b": b, **of_rules, "left_out": of_annotators}


def _claims(compared: ComparedRules, part: slice) -> dict[str, Any]:
    """Return a comparison under a part of the rules, None where one leaves too few relations."""
    difference, p = compared.difference, compared.p_holm
    is_known = ~np.isnan(difference)
    other_sign = is_known & (np.sign(difference) != np.sign(difference[0]))
    other_significance = is_known & ((p < SIGNIFICANT) != (p[0] < SIGNIFICANT))
    return {
        "difference": _numbers(difference[part]),
        "p_holm": _numbers(p[part]),
        "sign_changes": np.flatnonzero(other_sign[part]).tolist(),
        "significance_changes": np.flatnonzero(other_significance[part]).tolist(),
    }
