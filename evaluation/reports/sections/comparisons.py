"""Comparisons of settings of an LM and of LMs in a setting, paired by relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.cells import Cell, DrawnVerdicts, shared_statements, statement_comparisons
from evaluation.evidence.evidence import Evidence
from evaluation.rendering.documents import Document, about_side, lm_and_setting, name_of
from evaluation.reports.sections.rates import demonstrator_mark
from kgharvest.pages.number_format import (
    counted,
    decimals_of_points,
    in_points,
    p_value,
    points_interval,
)
from kgharvest.statistics.arrays import ACCEPTED, Flags, Floats
from kgharvest.statistics.paired_tests import (
    FEWEST_RELATIONS,
    FEWEST_RELATIONS_TO_TELL,
    MARGIN,
    CellKey,
    Equivalence,
    Pair,
    PairedDifference,
    PairTest,
    Planned,
    Side,
    better_by_limits,
    better_by_tests,
    holm_by_family,
    is_planned,
    mean_difference,
    paired_accuracies,
    paired_difference,
    pairs_of_sides,
    rank_intervals,
    relations_of_sides,
    sign_flip_p,
    sign_flip_ps,
    smallest_p,
    tied_with,
)
from kgharvest.statistics.rates import SIGNIFICANCE, Rate, difference_interval
from kgharvest.statistics.statement_test import StatementDifference
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = (
    "Comparisons: difference of macro averages over the relations that both sides share. From six relations on, for "
    "relations like these: 95 % bootstrap-t interval over relations (5,000 resamples; Student's where that is more "
    "than three times as wide); p of the two-sided sign-flip test over relations, exact up to 20 relations, else over "
    "9,999 random patterns. Below six, where no such p is below .05, for these very relations, by their statements: "
    "interval from both averages' own (MOVER, Zou and Donner 2008) with the correlation of shared statements, and the "
    "p at which it ends at 0. p adjusted after Holm for all comparisons of the report; one side beats the other where "
    "the adjusted p is below .05. At most so many points apart: two one-sided tests at .05, over the same unit, not "
    "adjusted. "
    "A statement that both sides drew has one verdict, so McNemar's test over shared statements does not apply; "
    "it compares two rounds that judged the same tuples, where reports are laid side by side. "
    "Intervals of single relations: Newcombe's method 10 on both exact intervals."
)
ONE_VERDICT = "A statement has one verdict in a round, whichever side drew it, so none tells the sides apart."


def comparison_entries(
    evidence: Evidence, cells: Sequence[Cell], drawn: DrawnVerdicts, margin: float = MARGIN
) -> list[dict[str, Any]]:
    """margin: at most how far apart two sides are to count as alike, as a share."""
    rates = {cell.key: (cell, cell.rate_of(ACCEPTED)) for cell in cells}
    accuracies = {key: rate.value for key, (_, rate) in rates.items()}
    compare_statements = statement_comparisons(evidence)
    accepted = drawn.accepted
    compared = _compared(accuracies, evidence.seed, lambda pair: compare_statements(pair.a, pair.b, accepted), margin)
    entries = _entries(compared, shared_statements(evidence), evidence.planned)
    return [_with_relations(entry, rates) for entry in entries]


def _with_relations(entry: dict[str, Any], rates: Mapping[CellKey, tuple[Cell, Rate]]) -> dict[str, Any]:
    sentence = entry.pop("sentence")
    a, b = sides_of(entry)
    known = {key: (rate.value, rate) for key, (_, rate) in rates.items() if rate.value is not None}
    pairs = [
        (CellKey(relation, *a), CellKey(relation, *b))
        for relation in sorted({key.relation for key in known})
        if CellKey(relation, *a) in known and CellKey(relation, *b) in known
    ]
    relations = []
    for cell_a, cell_b in pairs:
        (value_a, rate_a), (value_b, rate_b) = known[cell_a], known[cell_b]
        low, high = difference_interval(rate_a, rate_b)
        relations.append({
            "relation": cell_a.relation,
            "n_a": rates[cell_a][0].n,
            "n_b": rates[cell_b][0].n,
            "difference": value_a - value_b,
            "low": low,
            "high": high,
        })  # fmt: skip
    return {**entry, "relations": relations, "sentence": sentence}


def sides_of(entry: Mapping[str, Any]) -> tuple[Side, Side]:
    if entry["kind"] == "settings":
        return Side(entry["model"], entry["a"]), Side(entry["model"], entry["b"])
    return Side(entry["a"], entry["setting"]), Side(entry["b"], entry["setting"])


# The comparison of two sides by their statements; None where these are not known.
ByStatements = Callable[[Pair], StatementDifference | None]


def unknown_statements(*_: object) -> None:
    return None


def compare_sides(
    accuracies: Mapping[CellKey, float | None],
    n_shared: Mapping[frozenset[Side], int],
    seed: int,
    by_statements: ByStatements = unknown_statements,
    margin: float = MARGIN,
) -> list[dict[str, Any]]:
    """Compare all settings of each LM and all LMs in each setting that share at least two relations.

    accuracies: None where nothing has a verdict. n_shared: statements with a verdict that both sides drew. margin: of
    equivalence.
    """
    return _entries(_compared(accuracies, seed, by_statements, margin), n_shared)


Compared = tuple[Pair, PairedDifference, StatementDifference | None]


def _compared(
    accuracies: Mapping[CellKey, float | None], seed: int, by_statements: ByStatements, margin: float
) -> list[Compared]:
    return [
        (pair, compare_pair(differences, statements := by_statements(pair), seed, margin), statements)
        for pair, differences in paired_accuracies(accuracies)
    ]


def _entries(
    compared: Sequence[Compared], n_shared: Mapping[frozenset[Side], int], planned: Planned | None = None
) -> list[dict[str, Any]]:
    """Adjust p in two families where comparisons were planned: those, and all others."""
    families = [is_planned(pair, planned) for pair, *_ in compared]
    adjusted = holm_by_family([paired.p for _, paired, _ in compared], families)
    return [
        _entry(pair, paired, p_holm, n_shared.get(frozenset((pair.a, pair.b)), 0))
        | ({} if statements is None else dict(zip(("these_low", "these_high"), statements.interval, strict=True)))
        | planned_mark(family)
        for (pair, paired, statements), p_holm, family in zip(compared, adjusted, families, strict=True)
    ]


def planned_mark(family: bool | None) -> dict[str, bool]:
    return {} if family is None else {"planned": family}


def compare_pair(
    differences: Floats, statements: StatementDifference | None, seed: int, margin: float = MARGIN
) -> PairedDifference:
    """Compare two sides over relations like these or, where these are too few to tell, over their statements."""
    paired = paired_difference(differences, np.random.default_rng(seed), margin)
    if statements is None or len(differences) >= FEWEST_RELATIONS_TO_TELL:
        return paired
    low, high = statements.interval
    equivalence = Equivalence(margin, statements.equivalence_p(margin), statements.smallest_margin)
    return PairedDifference(
        len(differences), paired.difference, low, high, statements.p, None, "statements", equivalence
    )


def p_of_pair(differences: Floats, statements: StatementDifference | None, seed: int) -> float:
    """Return the p of `compare_pair` without its interval, which takes far longer."""
    if statements is None or len(differences) >= FEWEST_RELATIONS_TO_TELL:
        return sign_flip_p(differences, np.random.default_rng(seed))
    return statements.p


# The same under one of several rules, by its number.
ByStatementsOfRule = Callable[[Pair, int], StatementDifference | None]


class ComparedRules(NamedTuple):
    """Two sides under R rules. difference, p_holm: (R,), NaN where a rule leaves too few relations."""

    pair: Pair
    difference: Floats
    p_holm: Floats


def compare_rules(
    cells: Sequence[CellKey],
    table: Floats,
    seed: int,
    by_statements: ByStatementsOfRule = unknown_statements,
    planned: Planned | None = None,
) -> list[ComparedRules]:
    """Return the comparisons of a report as difference and p alone, for all rules at once.

    table: accuracies (R, C) under each rule, the first the report's own; NaN where there is none.
    """
    columns = {key: column for column, key in enumerate(cells) if not np.isnan(table[0, column])}
    by_side = relations_of_sides(columns)
    compared = []
    for pair in pairs_of_sides(list(by_side)):
        a, b = by_side[pair.a], by_side[pair.b]
        shared = sorted(a.keys() & b.keys())
        if len(shared) >= FEWEST_RELATIONS:
            differences = table[:, [a[name] for name in shared]] - table[:, [b[name] for name in shared]]  # (R, n)
            ps = _ps(differences, seed)
            n_known = np.count_nonzero(~np.isnan(differences), axis=1)
            for rule in np.flatnonzero((n_known >= FEWEST_RELATIONS) & (n_known < FEWEST_RELATIONS_TO_TELL)).tolist():
                if (statements := by_statements(pair, rule)) is not None:
                    ps[rule] = statements.p
            compared.append((pair, np.array([_mean_of_known(row) for row in differences]), ps))
    families = [is_planned(pair, planned) for pair, *_ in compared]
    # p of all comparisons that a rule allows are adjusted rule by rule, each family for itself.
    ps = np.array([p for *_, p in compared]).reshape(len(compared), len(table))
    adjusted = np.full(ps.shape, np.nan)
    for rule, values in enumerate(ps.T):
        known = np.flatnonzero(~np.isnan(values)).tolist()
        adjusted[known, rule] = holm_by_family(values[known].tolist(), [families[number] for number in known])
    return [
        ComparedRules(pair, difference, p_holm)
        for (pair, difference, _), p_holm in zip(compared, adjusted, strict=True)
    ]


def _mean_of_known(differences: Floats) -> float:
    known = differences[~np.isnan(differences)]
    return mean_difference(known) if len(known) >= FEWEST_RELATIONS else np.nan


def _ps(differences: Floats, seed: int) -> Floats:
    is_known = ~np.isnan(differences)
    ps = sign_flip_ps(np.where(is_known, differences, 0), np.random.default_rng(seed))
    return np.where(is_known.sum(axis=1) >= FEWEST_RELATIONS, ps, np.nan)


def _entry(pair: Pair, paired: PairedDifference, p_holm: float, n_shared: int) -> dict[str, Any]:
    a, b = pair.names
    return {
        "kind": pair.kind,
        "model" if pair.kind == "settings" else "setting": pair.common,
        "a": a,
        "b": b,
        "n_relations": paired.n_relations,
        "difference": paired.difference,
        "low": paired.low,
        "high": paired.high,
        "reason": paired.reason,
        **tested(paired, p_holm),
        "n_shared_tuples": n_shared,
        "p_mcnemar": None,
        "reason_mcnemar": ONE_VERDICT,
        "sentence": comparison_in_words(pair, paired, p_holm),
    }


def tested(paired: PairedDifference, p_holm: float) -> dict[str, Any]:
    return {
        "unit": paired.unit,
        "p": paired.p,
        "p_sign_flip": paired.p if paired.unit == "relations" else None,
        "p_holm": p_holm,
        "equivalence": paired.equivalence._asdict() if paired.equivalence else None,
    }


# -- in words ----------------------------------------------------------------------------------------------------------


def comparison_in_words(pair: Pair, paired: PairedDifference, p_holm: float) -> str:
    """Return the result as one sentence, which says that a side is better only where p after Holm is below .05."""
    ahead, behind = pair.names if paired.difference >= 0 else pair.names[::-1]
    size = in_points(paired.difference, decimals_of_points(paired.difference))
    evidence = f"{_interval(paired)} {_over(paired)}; {_p_values(paired, p_holm)}"
    start = f"With {pair.common}, " if pair.common else ""
    if p_holm < SIGNIFICANCE:
        return f"{start}{ahead} beats {behind} by {size}{evidence}."
    favour = f" in favour of {ahead}" if paired.difference else ""
    names = f"{pair.names[0]} and {pair.names[1]}"
    return f"{start}{names} are not distinguishable: {size}{favour}{evidence}{_at_most(paired.equivalence)}."


def _over(paired: PairedDifference) -> str:
    if paired.unit == "statements" and paired.n_relations == 1:
        return "for this relation, by its statements"
    if paired.unit == "statements":
        return f"for these {paired.n_relations} relations, by their statements"
    return f"over {paired.n_relations} relations"


def _at_most(equivalence: Equivalence | None) -> str:
    """Return how many points apart the two are at most: the margin asked for if it holds, else the smallest that does.

    Without the word, which marks the difference as the number that the sentence is about.
    """
    if equivalence is None or equivalence.p is None or equivalence.smallest_margin is None:
        return ""
    if equivalence.p < SIGNIFICANCE:
        p = p_value(equivalence.p)
        return f"; at most {100 * equivalence.margin:g} apart (p {p if p.startswith('<') else f'= {p}'})"
    if equivalence.smallest_margin >= 1:
        return ""
    return f"; at most {100 * rounded_up(equivalence.smallest_margin):.1f} apart (p = .05)"


def rounded_up(margin: float) -> float:
    """Return a margin as it is printed: to a tenth of a point, never below what holds."""
    return ceil(1000 * margin - 1e-9) / 1000


def _interval(paired: PairedDifference) -> str:
    """Return the interval in whole points, or as fine as a small difference, seen from the side that is ahead."""
    if paired.low is None or paired.high is None:
        return ""
    low, high = (paired.low, paired.high) if paired.difference >= 0 else (-paired.high, -paired.low)
    decimals = decimals_of_points(paired.difference)
    return f" ({points_interval(low, high, decimals=0 if decimals == 1 else decimals)})"


def _p_values(paired: PairedDifference, p_holm: float) -> str:
    p = p_value(paired.p)
    text = f"p {p if p.startswith('<') else f'= {p}'}, after Holm {p_value(p_holm)}"
    if paired.unit == "relations" and (smallest := smallest_p(paired.n_relations)) >= SIGNIFICANCE:
        text += f" (with {paired.n_relations} relations p cannot fall below {p_value(smallest)})"
    return text


def family_of(comparison: Mapping[str, Any]) -> str:
    return "planned" if comparison["planned"] else "exploratory"


def comparison_table(document: Document) -> Table:
    """Which comparisons were planned is a column where the round was preregistered, and only there."""
    has_plan = any("planned" in comparison for comparison in document["comparisons"])
    margin = 100 * document.get("equivalence_margin", MARGIN)
    rows = [
        Row((
            common_of(comparison),
            comparison["a"],
            comparison["b"],
            comparison["n_relations"],
            comparison.get("unit", "relations"),
            comparison["difference"],
            comparison["low"],
            comparison["high"],
            comparison.get("p", comparison["p_sign_flip"]),
            comparison["p_holm"],
            equivalence.get("p"),
            None if (smallest := equivalence.get("smallest_margin")) is None else rounded_up(smallest),
            *([family_of(comparison)] if has_plan else ()),
        ), about=common_about(comparison))
        for comparison in document["comparisons"]
        for equivalence in [comparison.get("equivalence") or {}]
    ]  # fmt: skip
    columns = (
        *map(Column, ("in both", "first", "second")),
        Column("relations", Kind.COUNT),
        Column("tested over"),
        *of_kind(Kind.POINTS, "difference", "low", "high"),
        *of_kind(Kind.P, "p", "p (Holm)"),
        Column(f"p (at most {margin:g} points apart)", Kind.P),
        Column("at most apart", Kind.POINTS),
        *([Column("family")] if has_plan else ()),
    )
    sentences = tuple(comparison["sentence"] for comparison in document["comparisons"])
    return Table("comparisons", "Comparisons", columns, tuple(rows), sentences)


def common_of(comparison: Mapping[str, Any]) -> str:
    return name_of(comparison.get(common_key(comparison)))


def common_key(comparison: Mapping[str, Any]) -> str:
    return "model" if comparison["kind"] == "settings" else "setting"


def common_about(comparison: Mapping[str, Any]) -> dict[str, str | None]:
    """Name the statements of both sides."""
    return {common_key(comparison): comparison.get(common_key(comparison))}


# Ranks


RANK_METHOD = (
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
    compare_statements, accepted = statement_comparisons(evidence), drawn.accepted
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
