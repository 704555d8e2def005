"""Comparisons of settings and of LMs with a judge: each side corrected by verdicts of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.arrays import Evidence
from evaluation.evidence.cells import DrawnVerdicts
from evaluation.evidence.judged_population import N_GROUPS, JudgedStrata
from evaluation.evidence.statement_comparisons import SharedTasks, shared_between, shared_tasks
from evaluation.rendering.documents import Document
from evaluation.reports.sections.comparisons import common_about, common_of, comparison_in_words, planned_mark
from evaluation.reports.sections.judges.assisted_rates import INTERVAL, PEOPLE, WITH_JUDGE, macro_weights
from kgharvest.statistics.arrays import ACCEPTED, Codes
from kgharvest.statistics.judge_assisted import JudgedSample, JudgedSide, judged_difference, people_alone
from kgharvest.statistics.judge_quality import judge_errors
from kgharvest.statistics.paired_tests import PairedDifference, holm_by_family
from kgharvest.statistics.rates import Rate, difference_interval
from kgharvest.statistics.sides import Pair, is_planned, pairs_of_sides, relations_of_sides
from kgharvest.statistics.statement_test import StatementDifference
from kgharvest.tables.table import Column, Kind, Row, Table

METHOD = (
    "Comparisons with a judge: for these very relations, by their statements, each side post-stratified and corrected "
    "by its own verdicts, as a judge errs differently on what each says; p by the interval, adjusted after Holm for "
    "all comparisons with the judge. Youden's J of the judge on either side, and its difference, by Newcombe."
)
Compared = tuple[Pair, int, StatementDifference, StatementDifference, dict[str, Any]]


def judge_entry(evidence: Evidence, drawn: DrawnVerdicts, judged: JudgedStrata) -> dict[str, Any]:
    """Return `judge` of docs/report-json.md."""
    tuples = judged.tuples
    return {
        "run": tuples.run,
        "model": tuples.model,
        "n_labelled": int(tuples.is_labelled.sum()),
        "comparisons": assisted_comparison_entries(evidence, drawn, judged),
    }


def assisted_comparison_entries(evidence: Evidence, drawn: DrawnVerdicts, judged: JudgedStrata) -> list[dict[str, Any]]:
    strata = {key: np.flatnonzero(evidence.cell_of_stratum == number) for number, key in enumerate(evidence.cells)}
    known = {
        key: own if judged.rate(own, judged.ranked.last[own]).rate.value is not None else None
        for key, own in strata.items()
    }
    by_side = relations_of_sides(known)
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
    """Return the difference with the judge, and by people alone."""
    group, accepted = judged.tuples.group_of_draw, drawn.of_draws(ACCEPTED)
    in_groups = tasks._replace(
        stratum_a=tasks.stratum_a * N_GROUPS + group[tasks.draw_a],
        stratum_b=tasks.stratum_b * N_GROUPS + group[tasks.draw_b],
    )
    groups_a, groups_b = (
        (np.concatenate(own)[:, np.newaxis] * N_GROUPS + np.arange(N_GROUPS)).ravel() for own in cells
    )
    shared = shared_between(in_groups, accepted, groups_a, groups_b)
    a, b = (_side(evidence, judged, own) for own in cells)
    alone_a, alone_b = (side._replace(sample=people_alone(side.sample)) for side in (a, b))
    shared_alone = shared_between(in_groups._replace(
        stratum_a=tasks.stratum_a * N_GROUPS + N_GROUPS - 1, stratum_b=tasks.stratum_b * N_GROUPS + N_GROUPS - 1,
    ), accepted, groups_a, groups_b)  # fmt: skip
    return (
        judged_difference(a, b, shared).difference,
        judged_difference(alone_a, alone_b, shared_alone).difference,
    )


def _side(evidence: Evidence, judged: JudgedStrata, cells: Sequence[Codes]) -> JudgedSide:
    strata = np.concatenate(cells)
    relation = np.repeat(np.arange(len(cells)), [len(own) for own in cells])
    sample: JudgedSample = judged.heard(strata, judged.ranked.last[strata])
    return JudgedSide(sample, strata, macro_weights(cells, evidence), relation)


def _youden(evidence: Evidence, judged: JudgedStrata, of_a: Codes, of_b: Codes) -> dict[str, Any]:
    """Return Youden's J of the judge on what each side says, and its difference."""
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    weight = (evidence.population_of_stratum / np.maximum(n_drawn, 1))[evidence.draws.stratum]
    verdict = evidence.verdict[evidence.draws.task]
    rates: list[Rate] = []
    for strata in (of_a, of_b):
        own = np.isin(evidence.draws.stratum, strata) & evidence.is_complete[evidence.draws.task]
        if not judged.is_labelled(strata):
            own[:] = False  # what has no label is no error
        rates.append(judge_errors(verdict[own], judged.tuples.group_of_draw[own], weight[own]).youden_j)
    a, b = rates
    low, high = difference_interval(a, b)
    value = None if a.value is None or b.value is None else a.value - b.value
    return {
        "youden_j_a": a.value,
        "youden_j_b": b.value,
        "youden_j_difference": {"value": value, "low": low, "high": high},
    }


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
    a, b = pair.names
    return {
        "kind": pair.kind,
        "model" if pair.kind == "settings" else "setting": pair.common,
        "a": a,
        "b": b,
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
        Column("in both"), Column("first"), Column("second"), Column("relations", Kind.COUNT),
        *(Column(title, Kind.POINTS, PEOPLE) for title in difference),
        *(Column(title, Kind.POINTS, WITH_JUDGE) for title in difference),
        Column("p", Kind.P), Column("p (Holm)", Kind.P),
        *(Column(title, Kind.COEFFICIENT, "Youden's J of the judge") for title in ("first", "second", "difference")),
    )  # fmt: skip
    notes = (
        "Each side is corrected by its own verdicts. A judge whose J differs between the sides would favour one of "
        "them; one whose J is small tells no more than people alone.",
        *(entry["sentence"] for entry in compared),
    )
    return Table("assisted-comparisons", "Comparisons with a judge", columns, tuple(rows), notes if rows else ())
