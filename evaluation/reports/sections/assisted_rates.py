"""Accuracies and comparisons from human verdicts combined with the labels of an LM judge."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.evidence import DrawnVerdicts, Evidence, SharedTasks, shared_between, shared_tasks
from evaluation.evidence.judges import N_GROUPS, JudgedStrata
from evaluation.rendering.documents import Document, about_side, name_of
from evaluation.reports.sections.comparisons import (
    common_about,
    common_of,
    comparison_in_words,
    pair_entry,
    planned_mark,
)
from kgharvest.pages.number_format import counted, share
from kgharvest.statistics.arrays import Codes, Floats
from kgharvest.statistics.judge_assisted import (
    CALLED_TRUE,
    GROUPS,
    POST_STRATIFIED,
    AssistedRate,
    JudgedSample,
    JudgedSide,
    judged_difference,
    people_alone,
)
from kgharvest.statistics.judge_quality import judge_errors
from kgharvest.statistics.paired_tests import (
    Pair,
    PairedDifference,
    holm_by_family,
    is_planned,
    pairs_of_sides,
    relations_of_sides,
)
from kgharvest.statistics.rates import Rate, difference_interval
from kgharvest.statistics.statement_test import StatementDifference
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD_PARTS = {
    "judge_assisted": (
        "In judge-assisted estimates, human verdicts are post-stratified by the LM judge's labels of all tuples in "
        "the population. Only human verdicts determine the truth, so the estimate holds for a judge of any quality. "
        "For a simple sample, the tuples that were not drawn have a beta-binomial posterior with a Jeffreys prior in "
        "each group, convolved over groups. The interval is the shortest 95 % interval of this posterior. For several "
        "strata and for averages, it is the exact interval over all groups."
    ),
    "people_alone": (
        "A judge-assisted estimate is based on human verdicts alone if fewer than three draws are expected in a "
        "group. The same holds if the verdicts on an LM and setting with several strata do not differ between the "
        "judge's labels (F test)."
    ),
    "judge_assisted_comparisons": (
        "Judge-assisted comparisons hold for these relations and are based on their statements. Each side is "
        "post-stratified and corrected by its own verdicts, because a judge's errors differ between sides. p is "
        "derived from the interval and adjusted by Holm's method for all judge-assisted comparisons. The intervals of "
        "the judge's Youden's J on each side, and of the difference between sides, are based on Newcombe's method."
    ),
}
METHOD_NAMES = {POST_STRATIFIED: "with the judge"}
KEYS = ("accuracy", "accuracy_low", "accuracy_high")


def with_assisted_rates(
    entries: Sequence[dict[str, Any]], evidence: Evidence, judged: JudgedStrata
) -> list[dict[str, Any]]:
    """Return the entries of the cells in the same order, each with the additional key `judge`."""
    with_judge = []
    for entry, strata in zip(entries, evidence.strata_of_cells, strict=True):
        last = judged.ranked.last[strata]
        sample = judged.sample(strata, last)
        columns = (sample.population.sum(axis=0), sample.drawn.sum(axis=0), sample.accepted.n_hits.sum(axis=0))
        judge = {
            **_judge(judged, strata),
            **_rate(judged.rate(strata, last)),
            "judge_alone": _judge_alone(strata, judged),
            "groups": [
                {"label": label, "population": int(size), "drawn": int(drawn), "accepted": float(n_hits)}
                for label, size, drawn, n_hits in zip(GROUPS, *columns, strict=True)
            ],
        }
        with_judge.append({**entry, "judge": judge})
    return with_judge


def _judge(judged: JudgedStrata, strata: Codes) -> dict[str, Any]:
    return {"run": judged.tuples.run, "n_labelled": judged.n_labelled(strata)}


def _rate(assisted: AssistedRate) -> dict[str, Any]:
    rate = assisted.rate
    return {
        **dict(zip(KEYS, rate[:3], strict=True)),
        "method": assisted.method,
        "effective_labels": assisted.effective_labels,
        "reason": rate.reason,
    }


def _judge_alone(strata: Codes, judged: JudgedStrata) -> float | None:
    """Return the share of tuples that the judge labels True, or None if the judge did not label every tuple."""
    population = judged.sample(strata, judged.ranked.last[strata]).population.sum(axis=0)
    size = int(population.sum())
    return int(population[CALLED_TRUE]) / size if size and judged.is_labelled(strata) else None


def with_assisted_averages(
    totals: Sequence[dict[str, Any]], evidence: Evidence, judged: JudgedStrata
) -> list[dict[str, Any]]:
    """Return the entries of LMs and settings with the key `judge`: the means over relations and over all tuples."""
    entries = []
    for side, total in enumerate(totals):
        cells = [evidence.strata_of_cells[number] for number in np.flatnonzero(evidence.side_of_cell == side)]
        last, all_strata = judged.ranked.last, np.concatenate(cells)
        rated_cells = [strata for strata in cells if judged.rate(strata, last[strata]).rate.value is not None]
        rated_strata = np.concatenate([*rated_cells, np.zeros(0, dtype=np.int64)])
        weighted = judged.rate(all_strata, last[all_strata])
        alone = [_judge_alone(strata, judged) for strata in rated_cells]
        judge = {
            **_judge(judged, all_strata),
            **_rate(judged.rate(rated_strata, last[rated_strata], macro_weights(rated_cells, evidence))),
            "n_relations": len(rated_cells),
            "judge_alone": None if None in alone or not alone else float(np.mean(np.array(alone, dtype=np.float64))),
            **{f"weighted_{key}": value for key, value in zip(KEYS, weighted.rate[:3], strict=True)},
        }
        entries.append({**total, "judge": judge})
    return entries


def macro_weights(cells: Sequence[Codes], evidence: Evidence) -> Floats:
    """Return the weights of the cells' strata. The weights add up to the same sum in every cell."""
    sizes = [evidence.population_of_stratum[strata] for strata in cells]
    return np.concatenate([*(size / size.sum() / len(cells) for size in sizes), np.zeros(0)])


def assisted_point(judged: JudgedStrata, strata: Codes, last_rank: Codes) -> dict[str, Any]:
    """Return the value of the key `judge` for a cut or for a point of a curve."""
    return {"judge": _rate(judged.rate(strata, last_rank))}


AVERAGE = "average"
PEOPLE, WITH_JUDGE = "people alone", "with the judge"
INTERVAL = ("Acc", "low", "high")
NOTE = (
    "With the judge: human verdicts, weighted by the number of harvested tuples in each label group of the LM. "
    "Labels without information do not change the estimate. Equivalent sample size: number of statements that people "
    "alone would need to judge for an interval of this width. Judge alone: the share that the LM labels True, which "
    "may be biased."
)
NOTE_ON_ALONE = (
    "The estimate by people alone is used if fewer than three draws are expected in a label group, "
    "if the judge did not label every tuple, or if the verdicts on an LM and setting do not differ between "
    "the judge's labels."
)


def assisted_table(document: Document) -> Table:
    """Table of accuracies per cell and average: by people alone, with the judge, and by the judge alone."""
    of_cells = [_row(cell, cell["relation"], KEYS) for cell in document["cells"] if cell.get("judge")]
    keys = ("macro_accuracy", "macro_accuracy_these_low", "macro_accuracy_these_high")
    averages = [
        _row(total, AVERAGE, keys)._replace(is_summary=True) for total in document["totals"] if total.get("judge")
    ]
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        *of_kind(Kind.COUNT, "statements", "equivalent sample size"),
        *of_kind(Kind.SHARE, *INTERVAL, group=PEOPLE),
        *of_kind(Kind.SHARE, *INTERVAL, group=WITH_JUDGE),
        Column("method"),
        Column("judge alone", Kind.SHARE),
    )
    notes = tuple(_notes(document)) if of_cells else ()
    return Table("assisted", "Accuracy with a judge", columns, (*of_cells, *averages), notes)


def _row(entry: Mapping[str, Any], relation: str, keys: Sequence[str]) -> Row:
    judge = entry["judge"]
    return Row(
        (
            relation,
            name_of(entry["model"]),
            name_of(entry["setting"]),
            entry["n"],
            judge["effective_labels"],
            *(entry.get(key) for key in keys),
            *(judge[key] for key in KEYS),
            judge["reason"] or METHOD_NAMES.get(judge["method"], PEOPLE),
            judge["judge_alone"],
        ),
        about=about_side(entry) | {"relation": entry.get("relation")},
    )


def _notes(document: Document) -> list[str]:
    judge = document["judge"]
    tuples = counted(judge["n_labelled"], "tuple")
    notes = [f"Judge: {judge['model']} (run {judge['run']}), {tuples} labeled. {NOTE}"]
    if any(cell["judge"]["method"] != POST_STRATIFIED for cell in document["cells"]):
        notes.append(NOTE_ON_ALONE)
    n_equivalent = sum(total["judge"]["effective_labels"] or 0 for total in document["totals"])
    n_judged = sum(total["n"] for total in document["totals"])
    if n_equivalent > n_judged:
        notes.append(
            f"For the averages, {n_judged:,} statements with the judge are equivalent to {n_equivalent:,} statements "
            "judged by people alone."
        )
    return notes


def assisted_cut_table(document: Document) -> Table:
    """Table of accuracies of cuts and of top-ranked parts of each harvest, by people alone and with the judge."""
    of_cuts = [
        _part_row("all", cut, cut["cut"], cut["size"], cut) for cut in document.get("cuts", []) if cut.get("judge")
    ]
    of_curves = [
        _part_row(curve["relation"] or "all", curve, f"top {share(point['share'])}", point["size"], point)
        for curve in document.get("curves", [])
        for point in curve["sizes"]
        if point.get("judge")
    ]
    columns = (
        *map(Column, ("relation", "LM", "setting", "part")),
        *of_kind(Kind.COUNT, "tuples", "judged"),
        *of_kind(Kind.SHARE, *INTERVAL, group=PEOPLE),
        *of_kind(Kind.SHARE, *INTERVAL, group=WITH_JUDGE),
        Column("equivalent sample size", Kind.COUNT),
    )
    return Table("assisted-cuts", "Accuracy of cuts with a judge", columns, (*of_cuts, *of_curves))


def _part_row(relation: str, part: Mapping[str, Any], name: str, size: int | None, of: Mapping[str, Any]) -> Row:
    judge = of["judge"]
    return Row((
        relation, name_of(part["model"]), name_of(part["setting"]), name, size, of["n"],
        *(of[key] for key in ("accuracy", "low", "high")), *(judge[key] for key in KEYS), judge["effective_labels"],
    ))  # fmt: skip


# Comparisons


Compared = tuple[Pair, int, StatementDifference, StatementDifference, dict[str, Any]]


def judge_entry(evidence: Evidence, drawn: DrawnVerdicts, judged: JudgedStrata) -> dict[str, Any]:
    """Return `judge` of docs/report-json.md."""
    comparisons = assisted_comparison_entries(evidence, drawn, judged)
    n_labelled = int(judged.tuples.is_labelled.sum())
    return {
        "run": judged.tuples.run, "model": judged.tuples.model, "n_labelled": n_labelled, "comparisons": comparisons,
    }  # fmt: skip


def assisted_comparison_entries(evidence: Evidence, drawn: DrawnVerdicts, judged: JudgedStrata) -> list[dict[str, Any]]:
    strata = dict(zip(evidence.cells, evidence.strata_of_cells, strict=True))
    rated = {
        key: numbers if judged.rate(numbers, judged.ranked.last[numbers]).rate.value is not None else None
        for key, numbers in strata.items()
    }
    by_side = relations_of_sides(rated)
    compared: list[Compared] = []
    for pair in pairs_of_sides(list(by_side)):
        relations = sorted(by_side[pair.a].keys() & by_side[pair.b].keys())
        if not relations:
            continue
        cells_a, cells_b = ([by_side[side][name] for name in relations] for side in (pair.a, pair.b))
        tasks = shared_tasks(evidence, pair.a, pair.b)
        with_judge, alone = _differences(evidence, drawn, judged, (cells_a, cells_b), tasks)
        if with_judge is not None and alone is not None:
            youden = _youden(evidence, judged, np.concatenate(cells_a), np.concatenate(cells_b))
            compared.append((pair, len(relations), with_judge, alone, youden | {"n_shared_tuples": len(tasks.draw_a)}))
    families = [is_planned(pair, evidence.planned) for pair, *_ in compared]
    adjusted = holm_by_family([with_judge.p for _, _, with_judge, _, _ in compared], families)
    return [
        _entry(*of_pair, p_holm) | planned_mark(family)
        for of_pair, p_holm, family in zip(compared, adjusted, families, strict=True)
    ]


def _differences(
    evidence: Evidence,
    drawn: DrawnVerdicts,
    judged: JudgedStrata,
    cells: tuple[Sequence[Codes], Sequence[Codes]],
    tasks: SharedTasks,
) -> tuple[StatementDifference | None, StatementDifference | None]:
    """Return the differences between sides, with the judge and by people alone."""
    group, accepted = judged.tuples.group_of_draw, evidence.effective(drawn.accepted)
    in_groups = tasks._replace(
        stratum_a=tasks.stratum_a * N_GROUPS + group[tasks.draw_a],
        stratum_b=tasks.stratum_b * N_GROUPS + group[tasks.draw_b],
    )
    groups_a, groups_b = (
        (np.concatenate(strata)[:, np.newaxis] * N_GROUPS + np.arange(N_GROUPS)).ravel() for strata in cells
    )
    shared = shared_between(in_groups, accepted, groups_a, groups_b)
    a, b = (_side(evidence, judged, strata) for strata in cells)
    alone_a, alone_b = (side._replace(sample=people_alone(side.sample)) for side in (a, b))
    shared_alone = shared_between(in_groups._replace(
        stratum_a=tasks.stratum_a * N_GROUPS + N_GROUPS - 1, stratum_b=tasks.stratum_b * N_GROUPS + N_GROUPS - 1,
    ), accepted, groups_a, groups_b)  # fmt: skip
    return (judged_difference(a, b, shared).difference, judged_difference(alone_a, alone_b, shared_alone).difference)


def _side(evidence: Evidence, judged: JudgedStrata, cells: Sequence[Codes]) -> JudgedSide:
    strata = np.concatenate(cells)
    relation = np.repeat(np.arange(len(cells)), [len(numbers) for numbers in cells])
    sample: JudgedSample = judged.heard(strata, judged.ranked.last[strata])
    return JudgedSide(sample, strata, macro_weights(cells, evidence), relation)


def _youden(evidence: Evidence, judged: JudgedStrata, of_a: Codes, of_b: Codes) -> dict[str, Any]:
    """Return Youden's J of the judge on each side, and the difference."""
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    weight = (evidence.population_of_stratum / np.maximum(n_drawn, 1))[evidence.draws.stratum]
    verdict = evidence.verdict[evidence.draws.task]
    rates: list[Rate] = []
    for strata in (of_a, of_b):
        is_in = np.isin(evidence.draws.stratum, strata) & evidence.is_complete[evidence.draws.task]
        if not judged.is_labelled(strata):
            is_in[:] = False  # a missing label does not count as an error of the judge
        rates.append(judge_errors(verdict[is_in], judged.tuples.group_of_draw[is_in], weight[is_in]).youden_j)
    a, b = rates
    low, high = difference_interval(a, b)
    difference = {"value": None if a.value is None or b.value is None else a.value - b.value, "low": low, "high": high}
    return {"youden_j_a": a.value, "youden_j_b": b.value, "youden_j_difference": difference}


def _entry(
    pair: Pair,
    n_relations: int,
    with_judge: StatementDifference,
    alone: StatementDifference,
    youden: Mapping[str, Any],
    p_holm: float,
) -> dict[str, Any]:
    low, high = with_judge.interval
    paired = PairedDifference(n_relations, with_judge.value, low, high, with_judge.p, None, "statements", None)
    return {
        **pair_entry(pair),
        "n_relations": n_relations,
        "difference": with_judge.value,
        "low": low,
        "high": high,
        "p": with_judge.p,
        "p_holm": p_holm,
        "people": {"difference": alone.value, "low": alone.interval[0], "high": alone.interval[1]},
        **youden,
        "sentence": comparison_in_words(pair, paired, p_holm),
    }


def assisted_comparison_table(document: Document) -> Table:
    compared = (document.get("judge") or {}).get("comparisons", [])
    rows = [
        Row((
            common_of(entry), entry["a"], entry["b"], entry["n_relations"],
            *(entry["people"][key] for key in ("difference", "low", "high")),
            *(entry[key] for key in ("difference", "low", "high", "p", "p_holm", "youden_j_a", "youden_j_b")),
            entry["youden_j_difference"]["value"],
        ), about=common_about(entry))
        for entry in compared
    ]  # fmt: skip
    difference = ("difference", *INTERVAL[1:])
    columns = (
        Column("held constant"), Column("first"), Column("second"), Column("relations", Kind.COUNT),
        *(Column(title, Kind.POINTS, PEOPLE) for title in difference),
        *(Column(title, Kind.POINTS, WITH_JUDGE) for title in difference),
        Column("p", Kind.P), Column("p (Holm)", Kind.P),
        *of_kind(Kind.COEFFICIENT, "first", "second", "difference", group="Youden's J of the judge"),
    )  # fmt: skip
    notes = (
        "Each side is corrected by its own verdicts. Without this correction, a judge whose J differs between the "
        "sides favors one side. A judge with a small J adds nothing to the verdicts of people.",
        *(entry["sentence"] for entry in compared),
    )
    return Table("assisted-comparisons", "Comparisons with a judge", columns, tuple(rows), notes if rows else ())
