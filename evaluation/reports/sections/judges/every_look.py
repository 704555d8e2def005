"""Intervals that hold at every look: for whoever looks while people judge, and stops once it is narrow enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.arrays import Evidence
from evaluation.evidence.cells import DrawnVerdicts
from evaluation.evidence.judged_population import JudgedStrata
from evaluation.rendering.documents import Document, about_side, name_of
from evaluation.reports.sections.judges.assisted_rates import macro_weights
from kgharvest.statistics import sequential
from kgharvest.statistics.arrays import ACCEPTED, Codes, Flags
from kgharvest.statistics.judge_assisted import JudgedSample, post_strata
from kgharvest.statistics.sequential import SeenStrata, anytime_average, anytime_interval
from kgharvest.statistics.sides import Side
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = sequential.METHOD


def every_look_entries(
    evidence: Evidence,
    entries: Sequence[dict[str, Any]],
    group_of_draw: Codes | None = None,
    sizes: Codes | None = None,
) -> list[dict[str, Any]]:
    """Return the entries of cells, in their order, with `every_look`: low and high, None where nothing is known.

    group_of_draw (D,), sizes (S, G): what a judge calls each draw, and how many tuples of each stratum it calls so.
    """
    strata = seen_strata(evidence, evidence.draws.stratum, evidence.population_of_stratum.astype(np.int64))
    cell = cell_of_group = evidence.cell_of_stratum
    split = None
    if group_of_draw is not None and sizes is not None:
        n_groups = sizes.shape[1]
        split = seen_strata(evidence, evidence.draws.stratum * n_groups + group_of_draw, sizes.reshape(-1))
        cell_of_group = np.repeat(cell, n_groups)
    intervals = [
        anytime_interval(_at(strata, cell == number), None if split is None else _at(split, cell_of_group == number))
        for number in range(len(evidence.cells))
    ]
    return [
        {**entry, "every_look": dict(zip(("low", "high"), interval or (None, None), strict=True))}
        for entry, interval in zip(entries, intervals, strict=True)
    ]


def with_every_look_averages(
    totals: Sequence[dict[str, Any]],
    cell_entries: Sequence[Mapping[str, Any]],
    evidence: Evidence,
    judged: JudgedStrata | None = None,
) -> list[dict[str, Any]]:
    """Return the entries of LMs and settings with `every_look`: of their mean over relations, or of their one cell."""
    every_stratum = np.arange(len(evidence.strata))
    by_label = None if judged is None else judged.heard(every_stratum, judged.ranked.last)
    intervals = []
    for total in totals:
        side = Side(total["model"], total["setting"])
        cells = [number for number, key in enumerate(evidence.cells) if key.side == side]
        if len(cells) == 1:
            intervals.append(cell_entries[cells[0]]["every_look"])
            continue
        strata = [evidence.strata_of_cells[number] for number in cells]
        interval = _average(evidence, strata, by_label, judged)
        intervals.append(dict(zip(("low", "high"), interval or (None, None), strict=True)))
    return [{**total, "every_look": interval} for total, interval in zip(totals, intervals, strict=True)]


def _average(
    evidence: Evidence, cells: Sequence[Codes], by_label: JudgedSample | None, judged: JudgedStrata | None
) -> tuple[float, float] | None:
    """Return the interval of the mean of cells, given by their strata; by the judge's groups where it is heard."""
    own = np.concatenate(cells)
    if not evidence.population_of_stratum[own].all():
        return None
    weights = macro_weights(cells, evidence)
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    if judged is None or by_label is None:
        seen = seen_strata(evidence, evidence.draws.stratum, evidence.population_of_stratum.astype(np.int64))
        return anytime_average(_at(seen, own), weights, n_drawn[own])
    groups = post_strata(by_label)
    group = groups.group_of[evidence.draws.stratum, judged.tuples.group_of_draw]
    seen = seen_strata(evidence, group, groups.population)
    in_groups = np.bincount(groups.group_of.ravel(), by_label.drawn.ravel(), len(groups.population)).astype(np.int64)
    of_strata = np.zeros(len(evidence.strata))
    of_strata[own] = weights
    is_own = np.isin(groups.stratum, own) & (groups.population > 0)
    return anytime_average(_at(seen, is_own), groups.weights(of_strata)[is_own], in_groups[is_own])


def seen_strata(evidence: Evidence, stratum: Codes, population: Codes) -> SeenStrata:
    """Return what was judged of strata of which draws (D,) are; statements with a label count, whatever they become."""
    drawn = DrawnVerdicts(len(population), (stratum, evidence.draws.task), evidence.patterns, evidence.quorum)
    least, most = drawn.extremes(ACCEPTED)
    has_label = (evidence.counts.sum(axis=1) > 0)[evidence.draws.task]
    n = np.bincount(stratum[has_label], minlength=len(population))
    most = most - (drawn.n_drawn - n)
    return SeenStrata(n, np.rint(least).astype(np.int64), np.rint(most).astype(np.int64), population)


def _at(strata: SeenStrata, wanted: Codes | Flags) -> SeenStrata:
    return SeenStrata(*(column[wanted] for column in strata))


AVERAGE = "average"


def every_look_table(document: Document) -> Table:
    rows = [
        Row(_values(cell, cell["relation"], cell["accuracy"]), about={"relation": cell["relation"], **about_side(cell)})
        for cell in document["cells"]
        if _is_known(cell)
    ]
    rows += [
        Row(_values(total, AVERAGE, total["macro_accuracy"]), is_summary=True, about=about_side(total))
        for total in document["totals"]
        if _is_known(total) and total["n_relations"] > 1
    ]
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        Column("verdicts", Kind.COUNT),
        Column("accuracy", Kind.SHARE),
        *of_kind(Kind.SHARE, "low", "high", group="holds at every look"),
        Column("±", Kind.SHARE),
    )
    notes = (
        "For whoever looks while people judge and stops when it is narrow enough: all looks together miss in at most 5 "
        "of 100 rounds, however many there are. The usual interval of a cell is for a sample whose size was fixed "
        "beforehand: of six looks at it, one missed in up to 17 of 100 simulated rounds. That is what it costs: this "
        "one is about one and a half times as wide at a look. Averages are known once each of their relations has a "
        "judgment.",
    )
    return Table("every-look", "Accuracy, to look at as often as one likes", columns, tuple(rows), notes)


def _is_known(entry: Mapping[str, Any]) -> bool:
    return (entry.get("every_look") or {}).get("low") is not None


def _values(entry: Mapping[str, Any], relation: str | None, accuracy: float | None) -> tuple[Any, ...]:
    low, high = entry["every_look"]["low"], entry["every_look"]["high"]
    return (
        relation, name_of(entry["model"]), name_of(entry["setting"]), entry["n"], accuracy, low, high, (high - low) / 2,
    )  # fmt: skip
