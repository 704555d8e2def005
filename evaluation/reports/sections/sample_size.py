"""Sample-size planning: statements, judgments and relations that a narrower interval takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from evaluation.evidence.cells import Cell
from evaluation.rendering.documents import Document, about_side, lm_and_setting
from kgharvest.pages.number_format import in_points
from kgharvest.statistics.arrays import ACCEPTED
from kgharvest.statistics.paired_tests import Side
from kgharvest.statistics.sample_size import (
    fewest_relations,
    relations_for_interval,
    relations_to_tell_apart,
    statements_to_shrink,
)
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = (
    "Planner: statements for half an interval from the finite population of each stratum (four times as many where "
    "that is endless); relations to tell two sides apart from the paired t test, power .8, two-sided .05 divided by "
    "the number of comparisons, and no fewer than the sign-flip test needs."
)
NO_INTERVAL = "There is no interval yet to make narrower."
NO_DIFFERENCE = "The two do not differ in what was judged, so no number of relations is enough."
NO_SPREAD = "The difference is the same in all relations, so its spread is not known."
TOO_MANY = "More than 10,000 relations would be needed."
ALL_JUDGED = "All tuples are judged: the interval for these relations has no width."
SHRINK = 0.5


def plan_entry(
    totals: Sequence[Mapping[str, Any]],
    cells: Sequence[Cell],
    comparisons: Sequence[Mapping[str, Any]],
    judgments_each: float,
) -> dict[str, Any]:
    """judgments_each: of a statement with a verdict, on average."""
    families = Counter(comparison.get("planned") for comparison in comparisons)
    return {
        "totals": [_plan_total(total, cells, judgments_each) for total in totals],
        "comparisons": [
            _plan_comparison(comparison, families[comparison.get("planned")]) for comparison in comparisons
        ],
    }


def _plan_total(total: Mapping[str, Any], cells: Sequence[Cell], judgments_each: float) -> dict[str, Any]:
    """Half as wide an interval for these relations, with every stratum's variance a quarter of what it is now."""
    side = {"model": total["model"], "setting": total["setting"]}
    low, high = total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
    if low is None or low == high:
        nothing = dict.fromkeys(("half_width", "target", "statements", "judgments", "relations"))
        return {**side, **nothing, "reason": NO_INTERVAL if low is None else ALL_JUDGED, "sentence": None}
    half_width = (high - low) / 2
    statements = sum(
        statements_to_shrink(ceil(n - 1e-9), int(population), SHRINK)
        for cell in cells
        if cell.key.side == Side(total["model"], total["setting"])
        for n, population in zip(cell.samples[ACCEPTED].n, cell.population, strict=True)
    )
    judgments = round(statements * judgments_each)
    relations = relations_for_interval(total["n_relations"], SHRINK) if total["n_relations"] > 1 else None
    how = f"judge about {statements:,} statements in all, {judgments:,} judgments at {judgments_each:.3g} each"
    return {
        **side,
        "half_width": half_width,
        "target": half_width * SHRINK,
        "statements": statements,
        "judgments": judgments,
        "relations": relations,
        "reason": None,
        "sentence": _total_in_words(side, half_width, how, relations),
    }


def _total_in_words(side: Mapping[str, str | None], half_width: float, how: str, relations: int | None) -> str:
    name = " · ".join(filter(None, side.values())) or "The side"
    more = f"; for relations like these, {relations} relations" if relations else ""
    return f"{name}: to halve the interval (now ± {in_points(half_width)}) for these relations, {how}{more}."


def _plan_comparison(comparison: Mapping[str, Any], n_comparisons: int) -> dict[str, Any]:
    common = "model" if comparison["kind"] == "settings" else "setting"
    fewest = fewest_relations(n_comparisons)
    entry = {"kind": comparison["kind"], common: comparison[common], "a": comparison["a"], "b": comparison["b"]}
    entry |= {"n_comparisons": n_comparisons, "fewest_relations": fewest}
    spread = float(np.std([relation["difference"] for relation in comparison["relations"]], ddof=1))
    if comparison["difference"] == 0 or spread < 1e-9:
        reason = NO_DIFFERENCE if comparison["difference"] == 0 else NO_SPREAD
        return {**entry, "relations": None, "reason": reason, "sentence": None}
    relations = relations_to_tell_apart(comparison["difference"], spread, n_comparisons)
    if relations is None:
        return {**entry, "relations": None, "reason": TOO_MANY, "sentence": None}
    holm = f" after Holm for {n_comparisons} comparisons" if n_comparisons > 1 else ""
    sentence = (
        f"{comparison['a']} and {comparison['b']}: a difference of {in_points(comparison['difference'])}, "
        f"spread over relations as here, shows{holm} in four of five rounds with {relations} relations."
    )
    if comparison["n_relations"] < fewest:
        sentence += f" Fewer than {fewest} relations cannot be told apart by relations, only by their statements."
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
        *of_kind(Kind.SHARE, "± now", "± wanted"),
        *of_kind(Kind.COUNT, "statements", "judgments"),
        Column("why not"),
    )
    sentences = [plan["sentence"] for part in ("totals", "comparisons") for plan in plans.get(part, [])]
    return Table("plan", "What it takes to know more", columns, tuple(rows), tuple(filter(None, sentences)))
