"""What it takes to know more: statements, judgments, relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from evaluation.metrics.planning import relations_for_interval, relations_to_tell_apart

NO_INTERVAL = "There is no interval yet to make narrower."
NO_DIFFERENCE = "The two do not differ in what was judged, so no number of relations is enough."
NO_SPREAD = "The difference is the same in all relations, so its spread is not known."
TOO_MANY = "More than 10,000 relations would be needed."
SHRINK = 0.5


def planner_entry(
    totals: Sequence[Mapping[str, Any]], comparisons: Sequence[Mapping[str, Any]], judgments_each: float
) -> dict[str, Any]:
    """judgments_each: of a statement with a verdict, on average."""
    return {
        "totals": [_plan_total(total, judgments_each) for total in totals],
        "comparisons": [_plan_comparison(comparison) for comparison in comparisons],
    }


def _plan_total(total: Mapping[str, Any], judgments_each: float) -> dict[str, Any]:
    """Half as wide an interval for these relations takes four times the statements, spread over relations as now."""
    side = {"model": total["model"], "setting": total["setting"]}
    low, high = total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
    if low is None:
        nothing = dict.fromkeys(("half_width", "target", "statements", "judgments", "relations"))
        return {**side, **nothing, "reason": NO_INTERVAL, "sentence": None}
    half_width = (high - low) / 2
    statements = ceil(total["n"] / SHRINK**2)
    judgments = round(statements * judgments_each)
    relations = relations_for_interval(total["n_relations"], SHRINK) if total["n_relations"] > 1 else None
    name = " · ".join(filter(None, side.values())) or "The side"
    more = f"; for relations like these, {relations} relations" if relations else ""
    sentence = (
        f"{name}: to halve the interval (now ± {100 * half_width:.1f} points) for these relations, judge about "
        f"{statements:,} statements in all, {judgments:,} judgments at {judgments_each:.3g} each{more}."
    )
    return {
        **side,
        "half_width": half_width,
        "target": half_width * SHRINK,
        "statements": statements,
        "judgments": judgments,
        "relations": relations,
        "reason": None,
        "sentence": sentence,
    }


def _plan_comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    common = "model" if comparison["kind"] == "settings" else "setting"
    entry = {"kind": comparison["kind"], common: comparison[common], "a": comparison["a"], "b": comparison["b"]}
    spread = float(np.std([each["difference"] for each in comparison["relations"]], ddof=1))
    if comparison["difference"] == 0 or spread < 1e-9:
        reason = NO_DIFFERENCE if comparison["difference"] == 0 else NO_SPREAD
        return {**entry, "relations": None, "reason": reason, "sentence": None}
    relations = relations_to_tell_apart(comparison["difference"], spread)
    if relations is None:
        return {**entry, "relations": None, "reason": TOO_MANY, "sentence": None}
    sentence = (
        f"{comparison['a']} and {comparison['b']}: a difference of {100 * abs(comparison['difference']):.1f} points, "
        f"spread over relations as here, shows in four of five rounds with {relations} relations."
    )
    return {**entry, "relations": relations, "reason": None, "sentence": sentence}
