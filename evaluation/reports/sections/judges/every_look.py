"""Intervals that hold at every look: for whoever looks while people judge, and stops once it is narrow enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evaluation.evidence.arrays import ACCEPTED, Codes, Evidence
from evaluation.evidence.cells import DrawnVerdicts
from evaluation.rendering.tables import Column, Document, Kind, Row, Table, about_side, name_of
from evaluation.statistics.judges import sequential
from evaluation.statistics.judges.sequential import SeenStrata, anytime_interval

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
        anytime_interval(_of(number, cell, strata), None if split is None else _of(number, cell_of_group, split))
        for number in range(len(evidence.cells))
    ]
    return [
        {**entry, "every_look": dict(zip(("low", "high"), interval or (None, None), strict=True))}
        for entry, interval in zip(entries, intervals, strict=True)
    ]


def seen_strata(evidence: Evidence, stratum: Codes, population: Codes) -> SeenStrata:
    """Return what was judged of strata of which draws (D,) are; statements with a label count, whatever they become."""
    drawn = DrawnVerdicts(len(population), (stratum, evidence.draws.task), evidence.patterns, evidence.quorum)
    least, most = drawn.extremes(ACCEPTED)
    has_label = (evidence.counts.sum(axis=1) > 0)[evidence.draws.task]
    n = np.bincount(stratum[has_label], minlength=len(population))
    most = most - (drawn.n_drawn - n)
    return SeenStrata(n, np.rint(least).astype(np.int64), np.rint(most).astype(np.int64), population)


def _of(cell: int, cell_of_stratum: Codes, strata: SeenStrata) -> SeenStrata:
    return SeenStrata(*(column[cell_of_stratum == cell] for column in strata))


def every_look_table(document: Document) -> Table:
    rows = [
        Row(
            (
                cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), cell["n"], cell["accuracy"],
                cell["every_look"]["low"], cell["every_look"]["high"],
                (cell["every_look"]["high"] - cell["every_look"]["low"]) / 2,
            ),
            about={"relation": cell["relation"], **about_side(cell)},
        )
        for cell in document["cells"]
        if (cell.get("every_look") or {}).get("low") is not None
    ]  # fmt: skip
    columns = (
        Column("relation"),
        Column("LM"),
        Column("setting"),
        Column("verdicts", Kind.COUNT),
        Column("accuracy", Kind.SHARE),
        Column("low", Kind.SHARE, "holds at every look"),
        Column("high", Kind.SHARE, "holds at every look"),
        Column("±", Kind.SHARE),
    )
    notes = (
        "For whoever looks while people judge and stops when it is narrow enough: all looks together miss in at most 5 "
        "of 100 rounds, however many there are. The usual interval of a cell is for a sample whose size was fixed "
        "beforehand: of six looks at it, one missed in up to 17 of 100 simulated rounds. That is what it costs: this "
        "one is about one and a half times as wide at a look.",
    )
    return Table("every-look", "Accuracy of cells, to look at as often as one likes", columns, tuple(rows), notes)
