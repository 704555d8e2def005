"""Ranks of LMs and settings by accuracy: as intervals, with the sides that each was not told apart from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from evaluation.evidence.arrays import Evidence
from evaluation.evidence.cells import DrawnVerdicts
from evaluation.evidence.statement_comparisons import statement_comparisons
from evaluation.rendering.documents import Document, about_side, lm_and_setting, name_of
from evaluation.reports.sections.comparisons import p_of_pair
from evaluation.reports.sections.rates import demonstrator_mark
from kgharvest.pages.number_format import counted
from kgharvest.statistics.arrays import ACCEPTED, Flags, Floats
from kgharvest.statistics.paired_tests import FEWEST_RELATIONS_TO_TELL, mean_difference
from kgharvest.statistics.ranks import (
    PairTest,
    better_by_limits,
    better_by_tests,
    rank_intervals,
    tied_with,
)
from kgharvest.statistics.sides import FEWEST_RELATIONS, CellKey, Side, relations_of_sides
from kgharvest.statistics.statement_test import StatementDifference
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = (
    "Ranks: of LMs and settings by accuracy averaged over relations, as intervals that hold the true ranks of all of "
    "them at once with 95 %. All pairs of sides that share two relations are compared with the test of comparisons, "
    "adjusted after Holm for all these pairs; the first rank is 1 plus how many sides are told to be better, the last "
    "one the number of sides less how many are told to be worse (Mogstad, Romano, Shaikh and Wilhelm 2024). A side's "
    "true rank is 1 plus the number of sides that are more accurate on the relations both have. In a single relation: "
    "from the exact intervals of its cells by Newcombe's method 10, half a statement of either added, adjusted "
    "likewise for the pairs of that relation, with 95 % for each relation alone."
)
NOTHING_RANKED = "No two LMs or settings have verdicts on the same two relations."
MOST_NAMED = 4


def rank_entry(evidence: Evidence, cells: Sequence[Mapping[str, Any]], drawn: DrawnVerdicts) -> dict[str, Any] | None:
    """Return the ranks of all sides, and of those of each relation; None where there are no two sides.

    cells: the report's entries, with accuracy and interval.
    """
    if len(evidence.sides) < 2:
        return None
    by_side = relations_of_sides({_key(cell): cell["accuracy"] for cell in cells})
    sides = [side for side, known in by_side.items() if len(known) >= FEWEST_RELATIONS]
    tests = list(_tests(evidence, {side: by_side[side] for side in sides}, drawn))
    is_better = better_by_tests(len(sides), tests)
    relations = list(_relation_entries(cells))
    return {
        "n_pairs": len(sides) * (len(sides) - 1) // 2,
        "n_tested": len(tests),
        "n_told_apart": int(is_better.sum()),
        "sides": _with_ties(_ranked(sides, is_better), is_better) if tests else [],
        "reason": None if tests else NOTHING_RANKED,
        "n_relations": len(relations),
        "relations": [relation for relation in relations if relation["n_told_apart"]],
    }


def _key(cell: Mapping[str, Any]) -> CellKey:
    return CellKey(cell["relation"], cell["model"], cell["setting"])


def _tests(evidence: Evidence, by_side: Mapping[Side, Mapping[str, float]], drawn: DrawnVerdicts) -> Iterator[PairTest]:
    """Yield the test of each pair of sides that share enough relations: that of comparisons."""
    compare_statements, accepted = statement_comparisons(evidence), drawn.of_draws(ACCEPTED)
    for (number_a, a), (number_b, b) in combinations(enumerate(by_side), 2):
        shared = sorted(by_side[a].keys() & by_side[b].keys())
        if len(shared) >= FEWEST_RELATIONS:
            differences: Floats = np.array([by_side[a][relation] - by_side[b][relation] for relation in shared])
            is_few = len(shared) < FEWEST_RELATIONS_TO_TELL
            statements = compare_statements(a, b, accepted) if is_few else None  # seconds of work where there are many
            p = p_of_pair(differences, statements, evidence.seed)
            yield PairTest(number_a, number_b, mean_difference(differences), p)


def _ranked(sides: Sequence[Side], is_better: Flags) -> list[dict[str, Any]]:
    ranks = rank_intervals(is_better).tolist()
    return [{**side._asdict(), "low": low, "high": high} for side, (low, high) in zip(sides, ranks, strict=True)]


def _with_ties(ranked: Sequence[dict[str, Any]], is_better: Flags) -> list[dict[str, Any]]:
    names = [{key: entry[key] for key in ("model", "setting")} for entry in ranked]
    ties = tied_with(is_better)
    return [{**entry, "tied_with": [names[n] for n in tied]} for entry, tied in zip(ranked, ties, strict=True)]


# -- within a relation -------------------------------------------------------------------------------------------------


def _relation_entries(cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    by_relation: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        if cell["accuracy_low"] is not None:
            by_relation.setdefault(cell["relation"], []).append(cell)
    for relation, own in sorted(by_relation.items()):
        if len(own) > 1:
            is_better = _better_cells(own)
            sides = [_key(cell).side for cell in own]
            n_told_apart = int(is_better.sum())
            yield {"relation": relation, "n_told_apart": n_told_apart, "sides": _ranked(sides, is_better)}


def _better_cells(cells: Sequence[Mapping[str, Any]]) -> Flags:
    rates = [(cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"]) for cell in cells]
    # Exact limits are steps: half a statement of either cell, where not all tuples were judged, keeps far levels safe.
    half = [0.5 / max(cell["n"], 1) if low < high else 0.0 for cell, (_, low, high) in zip(cells, rates, strict=True)]
    differences = {(a, b): StatementDifference(rates[a], rates[b], 0.0) for a, b in combinations(range(len(rates)), 2)}

    def lower_limits(z: float) -> Floats:
        limits = np.full((len(rates), len(rates)), np.nan)
        for (a, b), difference in differences.items():
            room = half[a] + half[b]
            limits[a, b], limits[b, a] = difference.low_at(z) - room, -difference.high_at(z) - room
        return limits

    return better_by_limits(lower_limits)


# -- tables ------------------------------------------------------------------------------------------------------------


def ranks_of(document: Document) -> Mapping[str, Any]:
    """Return the block of ranks; of documents without one that of no sides."""
    return document.get("ranks") or {"sides": [], "relations": []}


def rank_table(document: Document) -> Table:
    """Sides with the ranks they may have, those with the best first rank on top; never in the order of the sample."""
    ranks = ranks_of(document)
    rows = [
        Row(
            (
                demonstrator_mark(document, side["model"]),
                name_of(side["setting"]),
                side["low"],
                side["high"],
                ties_in_words(side, len(ranks["sides"])),
            ),
            about=about_side(side),
        )
        for side in sorted(ranks["sides"], key=lambda side: (side["low"], side["high"]))
    ]
    columns = (
        *map(Column, ("LM", "setting")),
        *of_kind(Kind.COUNT, "first rank", "last rank"),
        Column("tied with"),
    )
    return Table("ranks", "Ranks by accuracy, 95 %", columns, tuple(rows), tuple(_notes(document)) if rows else ())


def rank_in_words(side: Mapping[str, Any]) -> str:
    return f"{side['low']}" if side["low"] == side["high"] else f"{side['low']} to {side['high']}"


def ties_in_words(side: Mapping[str, Any], n_sides: int) -> str:
    """Return whom a side was not told apart from; the first few of many by name."""
    tied = side["tied_with"]
    if not tied:
        return "nobody"
    if len(tied) == n_sides - 1:
        return "all others"
    named = [lm_and_setting(other) for other in tied]
    if len(named) <= MOST_NAMED + 1:
        return "; ".join(named)
    return f"{'; '.join(named[:MOST_NAMED])} and {len(named) - MOST_NAMED} others"


def _notes(document: Document) -> Iterator[str]:
    ranks = ranks_of(document)
    yield (
        "From first to last rank: where each may stand by its average over relations; with 95 % the true ranks of all "
        "lie in these intervals at once. Tied with: not told apart from, which is not the same as equal."
    )
    if not ranks["n_told_apart"]:
        yield "No two are told apart: the order in this sample says nothing about which is better."
    if untested := ranks["n_pairs"] - ranks["n_tested"]:
        yield f"{counted(untested, 'pair')} without two relations in common could not be compared, and count as tied."
    if n := ranks["n_relations"]:
        yield f"Within a single relation all are tied in {n - len(ranks['relations'])} of {counted(n, 'relation')}."


def relation_rank_table(document: Document) -> Table:
    """The relations in which some are told apart; sides as columns."""
    sides = [(total["model"], total["setting"]) for total in document["totals"]]
    rows = []
    for relation in ranks_of(document)["relations"]:
        ranks = {(side["model"], side["setting"]): rank_in_words(side) for side in relation["sides"]}
        rows.append(Row((relation["relation"], *(ranks.get(side) for side in sides))))
    columns = [Column(name_of(setting), Kind.TEXT, demonstrator_mark(document, model)) for model, setting in sides]
    notes = (
        "Relations in which no two are told apart are left out. Each relation's ranks hold with 95 % alone, not all "
        "relations together: of twenty relations one may have a false one.",
    )
    return Table("relation-ranks", "Ranks within relations, 95 %", (Column("relation"), *columns), tuple(rows), notes)
