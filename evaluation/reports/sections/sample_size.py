"""Sample-size planning: statements, judgments and relations that a narrower interval takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from evaluation.rendering.tables import Column, Document, Kind, Row, Table, about_side, lm_and_setting
from evaluation.statistics.sample_size import relations_for_interval, relations_to_tell_apart
from kgharvest.pages.number_format import in_points

METHOD = (
    "Planner: half an interval takes four times the statements; relations to tell two sides apart from the paired t "
    "test, two-sided .05, power .8."
)
NO_INTERVAL = "There is no interval yet to make narrower."
NO_DIFFERENCE = "The two do not differ in what was judged, so no number of relations is enough."
NO_SPREAD = "The difference is the same in all relations, so its spread is not known."
TOO_MANY = "More than 10,000 relations would be needed."
TOO_FEW_TUPLES = "There are fewer tuples than it would take statements."
SHRINK = 0.5


def plan_entry(
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
    wanted = ceil(total["n"] / SHRINK**2)
    judgments = round(wanted * judgments_each)
    there_are = total["population"]
    is_possible = there_are is None or wanted <= there_are
    relations = relations_for_interval(total["n_relations"], SHRINK) if total["n_relations"] > 1 else None
    how = (
        f"judge about {wanted:,} statements in all, {judgments:,} judgments at {judgments_each:.3g} each"
        if is_possible
        else f"about {wanted:,} statements would have to be judged, but there are only {there_are:,} tuples"
    )
    return {
        **side,
        "half_width": half_width,
        "target": half_width * SHRINK,
        "statements": wanted if is_possible else None,
        "judgments": judgments if is_possible else None,
        "relations": relations,
        "reason": None if is_possible else TOO_FEW_TUPLES,
        "sentence": _total_in_words(side, half_width, how, relations),
    }


def _total_in_words(side: Mapping[str, str | None], half_width: float, how: str, relations: int | None) -> str:
    name = " · ".join(filter(None, side.values())) or "The side"
    more = f"; for relations like these, {relations} relations" if relations else ""
    return f"{name}: to halve the interval (now ± {in_points(half_width)}) for these relations, {how}{more}."


def _plan_comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    common = "model" if comparison["kind"] == "settings" else "setting"
    entry = {"kind": comparison["kind"], common: comparison[common], "a": comparison["a"], "b": comparison["b"]}
    spread = float(np.std([relation["difference"] for relation in comparison["relations"]], ddof=1))
    if comparison["difference"] == 0 or spread < 1e-9:
        reason = NO_DIFFERENCE if comparison["difference"] == 0 else NO_SPREAD
        return {**entry, "relations": None, "reason": reason, "sentence": None}
    relations = relations_to_tell_apart(comparison["difference"], spread)
    if relations is None:
        return {**entry, "relations": None, "reason": TOO_MANY, "sentence": None}
    sentence = (
        f"{comparison['a']} and {comparison['b']}: a difference of {in_points(comparison['difference'])}, "
        f"spread over relations as here, shows in four of five rounds with {relations} relations."
    )
    return {**entry, "relations": relations, "reason": None, "sentence": sentence}


def plan_table(document: Document) -> Table:
    plans = document.get("planner") or {}
    rows = [
        Row(
            (
                lm_and_setting(total),
                *(total[key] for key in ("half_width", "target", "statements", "judgments", "reason")),
            ),
            about=about_side(total),
        )
        for total in plans.get("totals", [])
    ]
    columns = (
        Column("LM and setting"),
        Column("± now", Kind.SHARE),
        Column("± wanted", Kind.SHARE),
        Column("statements", Kind.COUNT),
        Column("judgments", Kind.COUNT),
        Column("why not"),
    )
    sentences = [plan["sentence"] for part in ("totals", "comparisons") for plan in plans.get(part, [])]
    return Table("plan", "What it takes to know more", columns, tuple(rows), tuple(filter(None, sentences)))
