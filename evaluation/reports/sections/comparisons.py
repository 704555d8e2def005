"""Comparisons of settings of an LM and of LMs in a setting, paired by relation; ranks; matrices of differences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.evidence import Cell, DrawnVerdicts, Evidence, shared_statements, statement_comparisons
from evaluation.rendering.documents import Document, about_side, demonstrator_mark, lm_and_setting, name_of, short_model
from kgharvest.pages.number_format import counted, decimals_of_points, in_points, p_value, points, points_interval
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

METHOD_PARTS = {
    "comparisons": (
        "A comparison of two sides estimates the difference of their macro averages over the relations that both "
        "sides share. p is adjusted by Holm's method for all comparisons of the report. One side is better if the "
        "adjusted p is below .05. The interval of the difference in a single relation is based on the exact intervals "
        "of both sides (Newcombe's method 10)."
    ),
    "comparisons_by_relations": (
        "With at least six shared relations, a comparison holds for similar relations. It consists of a 95 % "
        "bootstrap-t interval over relations (5,000 resamples) and a two-sided sign-flip test over relations (exact "
        "up to 20 relations, otherwise with 9,999 random patterns). If the bootstrap-t interval is more than three "
        "times as wide as Student's t interval, Student's t interval is used."
    ),
    "comparisons_by_statements": (
        "With fewer than six shared relations, a test over relations cannot give p below .05. The comparison then "
        "holds only for these relations and is based on their statements. Its interval is derived from the intervals "
        "of both averages (MOVER, Zou and Donner 2008) and the correlation of shared statements. p is the level at "
        "which this interval ends at 0."
    ),
    "equivalence": (
        "Equivalence bounds come from two one-sided tests at .05 over the same unit of analysis as the comparison. "
        "They are not adjusted for multiple comparisons."
    ),
    "shared_tuples": (
        "McNemar's test does not apply to statements that were drawn for both sides, because such a statement has "
        "only one verdict. McNemar's test is used to compare the reports of two rounds that judged the same tuples."
    ),
    "ranks": (
        "LMs and settings are ranked by accuracy averaged over relations, with simultaneous 95 % intervals for the "
        "true ranks (Mogstad, Romano, Shaikh, and Wilhelm 2024). All pairs of sides that share two relations are "
        "compared like the comparisons of the report. p is adjusted by Holm's method for all these pairs. The first "
        "rank is 1 plus the number of significantly better sides. The last rank is the number of sides minus the "
        "number of significantly worse sides. The true rank of a side is 1 plus the number of sides that are more "
        "accurate on the relations that both sides share."
    ),
    "ranks_of_relations": (
        "Ranks within a relation are based on the exact intervals of the relation's cells (Newcombe's method 10, "
        "widened by half a statement of either cell). They are adjusted by Holm's method for the pairs of that "
        "relation. They hold with 95 % confidence for each relation separately."
    ),
}
ONE_VERDICT = "A statement has one verdict in a round, regardless of the side, so McNemar's test does not apply."


def comparison_entries(
    evidence: Evidence, cells: Sequence[Cell], drawn: DrawnVerdicts, margin: float = MARGIN
) -> list[dict[str, Any]]:
    """Return `comparisons` of docs/report-json.md. margin: equivalence margin, as a share."""
    rates = {cell.key: (cell, cell.rate_of(ACCEPTED)) for cell in cells}
    accuracies = {key: rate.value for key, (_, rate) in rates.items()}
    compare_statements = statement_comparisons(evidence)
    accepted = drawn.accepted
    entries = compare_sides(
        accuracies,
        shared_statements(evidence),
        evidence.seed,
        lambda pair: compare_statements(pair.a, pair.b, accepted),
        margin,
        evidence.planned,
    )
    return [_with_relations(entry, rates) for entry in entries]


def _with_relations(entry: dict[str, Any], rates: Mapping[CellKey, tuple[Cell, Rate]]) -> dict[str, Any]:
    sentence = entry.pop("sentence")
    a, b = sides_of(entry)
    relations = []
    for relation in sorted({key.relation for key in rates}):
        of_a, of_b = (rates.get(CellKey(relation, *side)) for side in (a, b))
        if of_a is None or of_b is None:
            continue
        (cell_a, rate_a), (cell_b, rate_b) = of_a, of_b
        if rate_a.value is None or rate_b.value is None:
            continue
        low, high = difference_interval(rate_a, rate_b)
        relations.append({
            "relation": relation,
            "n_a": cell_a.n,
            "n_b": cell_b.n,
            "difference": rate_a.value - rate_b.value,
            "low": low,
            "high": high,
        })  # fmt: skip
    return {**entry, "relations": relations, "sentence": sentence}


def sides_of(entry: Mapping[str, Any]) -> tuple[Side, Side]:
    if entry["kind"] == "settings":
        return Side(entry["model"], entry["a"]), Side(entry["model"], entry["b"])
    return Side(entry["a"], entry["setting"]), Side(entry["b"], entry["setting"])


# Function that compares two sides by their statements, or None if the statements are unknown.
ByStatements = Callable[[Pair], StatementDifference | None]


def unknown_statements(*_: object) -> None:
    return None


def compare_sides(
    accuracies: Mapping[CellKey, float | None],
    n_shared: Mapping[frozenset[Side], int],
    seed: int,
    by_statements: ByStatements = unknown_statements,
    margin: float = MARGIN,
    planned: Planned | None = None,
) -> list[dict[str, Any]]:
    """Compare every pair of settings of an LM, or of LMs in a setting, that shares at least two relations.

    accuracies: accuracy of each cell, None without a verdict. n_shared: number of shared statements with a verdict.
    margin: equivalence margin. planned: preregistered comparisons. Their p-values are adjusted as a separate family.
    """
    compared = [
        (pair, compare_pair(differences, statements := by_statements(pair), seed, margin), statements)
        for pair, differences in paired_accuracies(accuracies)
    ]
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
    """Compare two sides over relations or, if there are too few relations, over their statements."""
    paired = paired_difference(differences, np.random.default_rng(seed), margin)
    if statements is None or len(differences) >= FEWEST_RELATIONS_TO_TELL:
        return paired
    low, high = statements.interval
    equivalence = Equivalence(margin, statements.smallest_margin)
    return PairedDifference(
        len(differences), paired.difference, low, high, statements.p, None, "statements", equivalence
    )


# Function that compares two sides by their statements under the verdict rule with the given number.
ByStatementsOfRule = Callable[[Pair, int], StatementDifference | None]


class ComparedRules(NamedTuple):
    """A comparison of two sides under R rules.

    difference, p_holm (R,): NaN under rules that leave too few relations with verdicts.
    """

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
    """Return the differences and p-values of a report's comparisons under all rules.

    table (R, C): accuracies under each rule, the report's rule first; NaN if undefined.
    """
    columns = {key: column for column, key in enumerate(cells) if not np.isnan(table[0, column])}
    by_side = relations_of_sides(columns)
    compared = []
    for pair in pairs_of_sides(list(by_side)):
        a, b = by_side[pair.a], by_side[pair.b]
        shared = sorted(a.keys() & b.keys())
        if len(shared) >= FEWEST_RELATIONS:
            differences = table[:, [a[name] for name in shared]] - table[:, [b[name] for name in shared]]  # (R, n)
            is_known = ~np.isnan(differences)
            n_known = is_known.sum(axis=1)
            ps = sign_flip_ps(np.where(is_known, differences, 0), np.random.default_rng(seed))
            ps[n_known < FEWEST_RELATIONS] = np.nan
            for rule in np.flatnonzero((n_known >= FEWEST_RELATIONS) & (n_known < FEWEST_RELATIONS_TO_TELL)).tolist():
                if (statements := by_statements(pair, rule)) is not None:
                    ps[rule] = statements.p
            means = [
                mean_difference(row[known]) if known.sum() >= FEWEST_RELATIONS else np.nan
                for row, known in zip(differences, is_known, strict=True)
            ]
            compared.append((pair, np.array(means), ps))
    families = [is_planned(pair, planned) for pair, *_ in compared]
    # p-values are adjusted separately for each rule and family. Only comparisons that are defined under the rule count.
    ps = np.array([p for *_, p in compared]).reshape(len(compared), len(table))
    adjusted = np.full(ps.shape, np.nan)
    for rule, values in enumerate(ps.T):
        known = np.flatnonzero(~np.isnan(values)).tolist()
        adjusted[known, rule] = holm_by_family(values[known].tolist(), [families[number] for number in known])
    return [
        ComparedRules(pair, difference, p_holm)
        for (pair, difference, _), p_holm in zip(compared, adjusted, strict=True)
    ]


def pair_entry(pair: Pair) -> dict[str, Any]:
    common = "model" if pair.kind == "settings" else "setting"
    return {"kind": pair.kind, common: pair.common, **dict(zip("ab", pair.names, strict=True))}


def _entry(pair: Pair, paired: PairedDifference, p_holm: float, n_shared: int) -> dict[str, Any]:
    return {
        **pair_entry(pair),
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


def comparison_in_words(pair: Pair, paired: PairedDifference, p_holm: float) -> str:
    """Return the result as a sentence. The sentence calls a side better only if the Holm-adjusted p is below .05."""
    ahead, behind = pair.names if paired.difference >= 0 else pair.names[::-1]
    size = in_points(paired.difference, decimals_of_points(paired.difference))
    over = f"over {paired.n_relations} relations"
    if paired.unit == "statements":
        over = f"for these {paired.n_relations} relations, based on their statements"
        if paired.n_relations == 1:
            over = "for this relation, based on its statements"
    p = p_value(paired.p)
    p_values = f"p {p if p.startswith('<') else f'= {p}'}, Holm-adjusted {p_value(p_holm)}"
    if paired.unit == "relations" and (smallest := smallest_p(paired.n_relations)) >= SIGNIFICANCE:
        p_values += f" (with {paired.n_relations} relations, p cannot fall below {p_value(smallest)})"
    evidence = f"{_interval(paired)} {over}; {p_values}"
    start = f"With {pair.common}, " if pair.common else ""
    if p_holm < SIGNIFICANCE:
        return f"{start}{ahead} beats {behind} by {size}{evidence}."
    favor = f" in favor of {ahead}" if paired.difference else ""
    names = f"{pair.names[0]} and {pair.names[1]}"
    return f"{start}{names} are not distinguishable: {size}{favor}{evidence}{_at_most(paired.equivalence)}."


def _at_most(equivalence: Equivalence | None) -> str:
    """Return the equivalence bound as text: the requested margin if it holds, otherwise the smallest margin that holds.

    The text omits the word "points", because this word marks the main number of the sentence.
    """
    if equivalence is None or equivalence.smallest_margin is None or equivalence.smallest_margin >= 1:
        return ""
    if equivalence.smallest_margin < equivalence.margin:
        return f"; at most {100 * equivalence.margin:g} apart (p < .05)"
    return f"; at most {100 * rounded_up(equivalence.smallest_margin):.1f} apart (p = .05)"


def rounded_up(margin: float) -> float:
    """Return a margin rounded up to a tenth of a point."""
    return ceil(1000 * margin - 1e-9) / 1000


def _interval(paired: PairedDifference) -> str:
    """Return the interval of the difference as text, in favor of the leading side.

    Limits are in whole points, or have as many decimals as a small difference.
    """
    if paired.low is None or paired.high is None:
        return ""
    low, high = (paired.low, paired.high) if paired.difference >= 0 else (-paired.high, -paired.low)
    decimals = decimals_of_points(paired.difference)
    return f" ({points_interval(low, high, decimals=0 if decimals == 1 else decimals)})"


def family_of(comparison: Mapping[str, Any]) -> str:
    return "planned" if comparison["planned"] else "exploratory"


def comparison_table(document: Document) -> Table:
    """Return the table of comparisons. If the round was preregistered, a column shows the family of each comparison."""
    has_plan = any("planned" in comparison for comparison in document["comparisons"])
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
            None if (smallest := equivalence.get("smallest_margin")) is None else rounded_up(smallest),
            *([family_of(comparison)] if has_plan else ()),
        ), about=common_about(comparison))
        for comparison in document["comparisons"]
        for equivalence in [comparison.get("equivalence") or {}]
    ]  # fmt: skip
    columns = (
        *map(Column, ("held constant", "first", "second")),
        Column("relations", Kind.COUNT),
        Column("unit of analysis"),
        *of_kind(Kind.POINTS, "difference", "low", "high"),
        *of_kind(Kind.P, "p", "p (Holm)"),
        Column("equivalence bound", Kind.POINTS),
        *([Column("family")] if has_plan else ()),
    )
    sentences = tuple(comparison["sentence"] for comparison in document["comparisons"])
    return Table("comparisons", "Comparisons", columns, tuple(rows), sentences)


def common_of(comparison: Mapping[str, Any]) -> str:
    return name_of(comparison.get(common_key(comparison)))


def common_key(comparison: Mapping[str, Any]) -> str:
    return "model" if comparison["kind"] == "settings" else "setting"


def common_about(comparison: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the LM or setting that both sides share, for `Row.about`."""
    return {common_key(comparison): comparison.get(common_key(comparison))}


# Ranks


NOTHING_RANKED = "No two LMs or settings share two relations with verdicts."
MOST_NAMED = 4


def rank_entry(evidence: Evidence, cells: Sequence[Mapping[str, Any]], drawn: DrawnVerdicts) -> dict[str, Any]:
    """Return the ranks of all sides, overall and per relation.

    cells: the report's entries of cells, with accuracy and interval.
    """
    by_side = relations_of_sides({_key(cell): cell["accuracy"] for cell in cells})
    sides = [side for side, relations in by_side.items() if len(relations) >= FEWEST_RELATIONS]
    tests = list(_tests(evidence, {side: by_side[side] for side in sides}, drawn))
    is_better = better_by_tests(len(sides), tests)
    ranked = _ranked(sides, is_better) if tests else []
    relations = list(_relation_entries(cells))
    return {
        "n_pairs": len(sides) * (len(sides) - 1) // 2,
        "n_tested": len(tests),
        "n_told_apart": int(is_better.sum()),
        "sides": [
            entry | {"tied_with": [sides[number]._asdict() for number in tied]}
            for entry, tied in zip(ranked, tied_with(is_better), strict=False)
        ],
        "reason": None if tests else NOTHING_RANKED,
        "n_relations": len(relations),
        "relations": [relation for relation in relations if relation["n_told_apart"]],
    }


def _key(cell: Mapping[str, Any]) -> CellKey:
    return CellKey(cell["relation"], cell["model"], cell["setting"])


def _tests(evidence: Evidence, by_side: Mapping[Side, Mapping[str, float]], drawn: DrawnVerdicts) -> Iterator[PairTest]:
    """Yield a test of each pair of sides that shares enough relations.

    Each pair is tested like a comparison of the report.
    """
    compare_statements, accepted = statement_comparisons(evidence), drawn.accepted
    for (number_a, a), (number_b, b) in combinations(enumerate(by_side), 2):
        shared = sorted(by_side[a].keys() & by_side[b].keys())
        if len(shared) >= FEWEST_RELATIONS:
            differences: Floats = np.array([by_side[a][relation] - by_side[b][relation] for relation in shared])
            is_few = len(shared) < FEWEST_RELATIONS_TO_TELL
            statements = compare_statements(a, b, accepted) if is_few else None  # slow with many statements
            p = statements.p if statements else sign_flip_p(differences, np.random.default_rng(evidence.seed))
            yield PairTest(number_a, number_b, mean_difference(differences), p)


def _ranked(sides: Sequence[Side], is_better: Flags) -> list[dict[str, Any]]:
    ranks = rank_intervals(is_better).tolist()
    return [{**side._asdict(), "low": low, "high": high} for side, (low, high) in zip(sides, ranks, strict=True)]


def _relation_entries(cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    by_relation: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        if cell["accuracy_low"] is not None:
            by_relation.setdefault(cell["relation"], []).append(cell)
    for relation, relation_cells in sorted(by_relation.items()):
        if len(relation_cells) > 1:
            is_better = _better_cells(relation_cells)
            ranked = _ranked([_key(cell).side for cell in relation_cells], is_better)
            yield {"relation": relation, "n_told_apart": int(is_better.sum()), "sides": ranked}


def _better_cells(cells: Sequence[Mapping[str, Any]]) -> Flags:
    rates = [(cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"]) for cell in cells]
    # Exact limits are step functions. Widening them by half a statement per cell keeps extreme levels conservative.
    half = [0.5 / max(cell["n"], 1) if low < high else 0.0 for cell, (_, low, high) in zip(cells, rates, strict=True)]
    differences = {(a, b): StatementDifference(rates[a], rates[b], 0.0) for a, b in combinations(range(len(rates)), 2)}

    def lower_limits(z: float) -> Floats:
        limits = np.full((len(rates), len(rates)), np.nan)
        for (a, b), difference in differences.items():
            room = half[a] + half[b]
            limits[a, b], limits[b, a] = difference.low_at(z) - room, -difference.high_at(z) - room
        return limits

    return better_by_limits(lower_limits)


def ranks_of(document: Document) -> Mapping[str, Any]:
    """Return the ranks of a document. They are empty if the document has none."""
    return document.get("ranks") or {"sides": [], "relations": []}


def rank_table(document: Document) -> Table:
    """Return the table of sides with their possible ranks.

    It is sorted by these ranks, never by the order in the sample.
    """
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
    columns = (*map(Column, ("LM", "setting")), *of_kind(Kind.COUNT, "first rank", "last rank"), Column("tied with"))
    return Table("ranks", "Ranks by accuracy, 95 %", columns, tuple(rows), tuple(_notes(document)) if rows else ())


def rank_in_words(side: Mapping[str, Any]) -> str:
    return f"{side['low']}" if side["low"] == side["high"] else f"{side['low']} to {side['high']}"


def ties_in_words(side: Mapping[str, Any], n_sides: int) -> str:
    """Name the sides that do not differ significantly from `side`. If there are many, name only the first few."""
    tied = side["tied_with"]
    if not tied:
        return "none"
    if len(tied) == n_sides - 1:
        return "all others"
    names = [lm_and_setting(other) for other in tied]
    if len(names) <= MOST_NAMED + 1:
        return "; ".join(names)
    return f"{'; '.join(names[:MOST_NAMED])}; and {len(names) - MOST_NAMED} others"


def _notes(document: Document) -> Iterator[str]:
    ranks = ranks_of(document)
    yield (
        "First and last rank: simultaneous 95 % interval for the true rank by accuracy averaged over relations. Tied "
        "with: no significant difference, which does not mean that the accuracies are equal."
    )
    if not ranks["n_told_apart"]:
        yield "No difference is significant: the order in this sample does not show which side is better."
    if untested := ranks["n_pairs"] - ranks["n_tested"]:
        yield f"{counted(untested, 'pair')} without two shared relations could not be compared and count as tied."
    if n := ranks["n_relations"]:
        yield f"In {n - len(ranks['relations'])} of {counted(n, 'relation')}, all sides are tied."


def relation_rank_table(document: Document) -> Table:
    """Return the table of ranks in relations with significant differences, with sides as columns."""
    sides = [(total["model"], total["setting"]) for total in document["totals"]]
    rows = []
    for relation in ranks_of(document)["relations"]:
        ranks = {(side["model"], side["setting"]): rank_in_words(side) for side in relation["sides"]}
        rows.append(Row((relation["relation"], *(ranks.get(side) for side in sides))))
    columns = [Column(name_of(setting), Kind.TEXT, demonstrator_mark(document, model)) for model, setting in sides]
    notes = (
        "Relations without a significant difference are omitted. The ranks hold with 95 % confidence for each "
        "relation, but not for all relations jointly: one of twenty relations may have a false rank.",
    )
    return Table("relation-ranks", "Ranks within relations, 95 %", (Column("relation"), *columns), tuple(rows), notes)


# Matrices


MOST_SENTENCES = 10  # if there are more comparisons, pages show matrices and fold the sentences


class Difference(NamedTuple):
    """A difference between two sides. number: position of the comparison in its report. interval: text, or empty."""

    number: int
    text: str
    interval: str
    is_significant: bool
    sentence: str


class Matrix(NamedTuple):
    """Differences between settings of an LM, or between LMs in a setting: row minus column, None on the diagonal."""

    common: str
    names: list[str]
    rows: list[tuple[str, list[Difference | None]]]


def matrices_of(document: Document) -> list[Matrix]:
    """Return a matrix for each LM or setting that compared sides share.

    If there are few comparisons, return no matrices.
    """
    if len(document["comparisons"]) <= MOST_SENTENCES:
        return []
    groups: dict[tuple[str, str], dict[tuple[str, str], Difference]] = {}
    for number, comparison in enumerate(document["comparisons"], start=1):
        group = groups.setdefault((comparison["kind"], common_of(comparison)), {})
        for sign, pair in ((1, ("a", "b")), (-1, ("b", "a"))):
            first, second = (comparison[side] for side in pair)
            group[first, second] = _difference(number, comparison, sign)
    matrices = []
    for (_, common), differences in groups.items():
        sides = list(dict.fromkeys(side for pair in differences for side in pair))
        rows = [(short_model(side), [differences.get((side, other)) for other in sides]) for side in sides]
        matrices.append(Matrix(short_model(common), [short_model(side) for side in sides], rows))
    return matrices


def _difference(number: int, comparison: Document, sign: int) -> Difference:
    ends = (comparison["low"], comparison["high"])
    low, high = sorted(sign * end for end in ends) if None not in ends else (None, None)
    return Difference(
        number,
        points(sign * comparison["difference"]),
        "" if low is None or high is None else points_interval(low, high),
        comparison["p_holm"] is not None and comparison["p_holm"] < SIGNIFICANCE,
        comparison["sentence"],
    )
