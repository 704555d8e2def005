"""Accuracy against size and against score, per cell and per LM and setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.arrays import ACCEPTED, INCOMPLETE, Codes, Evidence, Flags, Floats
from evaluation.rendering.tables import Column, Document, Kind, Row, Table, name_of
from evaluation.reports.sections.rates import draw_weights
from evaluation.statistics.curves import accuracy_by_score, accuracy_by_size, kept_parts, largest_part

METHOD = (
    "Accuracy against size: Hajek's estimate over the draws of the best ranks, Wilson's interval on Kish's effective "
    "size."
)
TARGET = 0.8  # precision


class Ranked(NamedTuple):
    """Draws with a verdict and a rank; place: rank as a share of the cell's population. All of shape (D,)."""

    cell: Codes
    rank_share: Floats
    weight: Floats
    score: Floats
    is_accepted: Flags

    def where(self, chosen: Flags | Codes | slice) -> Ranked:
        cell, rank_share, weight, score, is_accepted = self
        return Ranked(cell[chosen], rank_share[chosen], weight[chosen], score[chosen], is_accepted[chosen])


def curve_entries(evidence: Evidence) -> list[dict[str, Any]]:
    """Return one curve per cell whose population is known, then one per LM and setting."""
    population = _populations(evidence)
    draws = _ranked(evidence, population)
    draws = draws.where(np.argsort(draws.cell, kind="stable").astype(np.int64))
    edges = np.searchsorted(draws.cell, np.arange(len(evidence.cells) + 1))
    entries = [
        _cell_curve(evidence, number, int(population[number]), draws.where(slice(*edges[number : number + 2])))
        for number in np.flatnonzero(population).tolist()
    ]
    return entries + list(_side_curves(evidence, population, draws))


def _populations(evidence: Evidence) -> Codes:
    """Return (C,): how many tuples each cell was drawn from, 0 where nobody knows."""
    return np.bincount(evidence.cell_of_stratum, evidence.population_of_stratum, len(evidence.cells)).astype(np.int64)


def _ranked(evidence: Evidence, population: Codes) -> Ranked:
    draws = evidence.draws
    verdict = evidence.verdict[draws.task]
    is_known = (verdict != INCOMPLETE) & (draws.rank > 0) & (population[evidence.cell_of_draw] > 0)
    weight = draw_weights(evidence, is_known)
    rank_share = draws.rank / np.maximum(population[evidence.cell_of_draw], 1)
    return Ranked(evidence.cell_of_draw, rank_share, weight, draws.score, verdict == ACCEPTED).where(is_known)


def _cell_curve(evidence: Evidence, number: int, population: int, draws: Ranked) -> dict[str, Any]:
    points = accuracy_by_size(draws.rank_share, draws.is_accepted, draws.weight) if len(draws.rank_share) else []
    return {
        **evidence.cells[number]._asdict(),
        "population": population,
        "sizes": [{"size": int(point.share * population + 1e-9), **point._asdict()} for point in points],
        "scores": list(_scores(draws)),
        "precision_cut": _precision_cut(draws),
    }


def _precision_cut(draws: Ranked) -> dict[str, Any] | None:
    """Return the largest best part of which TARGET is true, None where no part is as precise."""
    scored = draws.where(np.isfinite(draws.score))
    if not len(scored.score):
        return None
    part = largest_part(kept_parts(scored.score, scored.is_accepted, scored.weight), TARGET, surely=False)
    return part and {"target": TARGET, **part._asdict()}


def _scores(draws: Ranked) -> Iterable[dict[str, Any]]:
    scored = draws.where(np.isfinite(draws.score))
    if not len(scored.score):
        return
    yield from (score_bin._asdict() for score_bin in accuracy_by_score(scored.score, scored.is_accepted, scored.weight))


def _side_curves(evidence: Evidence, population: Codes, draws: Ranked) -> Iterable[dict[str, Any]]:
    side_of_draw = evidence.side_of_cell[draws.cell]
    for number, (model, setting) in enumerate(evidence.sides):
        own = draws.where(side_of_draw == number)
        if not len(own.rank_share):
            continue
        points = accuracy_by_size(own.rank_share, own.is_accepted, own.weight)
        yield {
            "relation": None,
            "model": model,
            "setting": setting,
            "population": int(population[evidence.side_of_cell == number].sum()),
            "sizes": [{"size": None, **point._asdict()} for point in points],
            "scores": [],
        }


# -- figures and tables ------------------------------------------------------------------------------------------------

MOST_SIDES = 8  # as many as the hues of a figure tell apart
MOST_PANELS = 12


def side_curves(document: Document) -> list[Mapping[str, Any]]:
    """Return the curves of the LMs and settings over all their relations, as many as a figure draws."""
    sized = [curve for curve in document.get("curves", []) if curve["relation"] is None and curve["sizes"]]
    return sized[:MOST_SIDES]


def calibration_curves(document: Document) -> list[Mapping[str, Any]]:
    """Return the cells with scores, as many as a figure draws: scores of two cells are on scales of their own."""
    return [curve for curve in document.get("curves", []) if curve["scores"]][:MOST_PANELS]


INTERVAL = (Column("low", Kind.SHARE), Column("high", Kind.SHARE))


def size_curve_table(document: Document) -> Table:
    """Accuracy of the best part of each harvest, from one sample."""
    rows = [
        Row((
            name_of(curve["relation"]) if curve["relation"] else "all",
            name_of(curve["model"]),
            name_of(curve["setting"]),
            *(point[key] for key in ("share", "size", "n", "accuracy", "low", "high")),
        ))
        for curve in document.get("curves", [])
        for point in curve["sizes"]
    ]  # fmt: skip
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        Column("share", Kind.SHARE),
        Column("tuples", Kind.COUNT),
        Column("judged", Kind.COUNT),
        Column("accuracy", Kind.SHARE),
        *INTERVAL,
    )
    return Table("size-curves", "Accuracy of the best tuples", columns, tuple(rows))


def calibration_table(document: Document) -> Table:
    """Accuracy by score, in bins of equally many judged tuples."""
    rows = [
        Row((
            curve["relation"],
            name_of(curve["model"]),
            name_of(curve["setting"]),
            *(point[key] for key in ("score_low", "score_high", "n", "accuracy", "low", "high")),
        ))
        for curve in document.get("curves", [])
        for point in curve["scores"]
    ]  # fmt: skip
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        Column("score from", Kind.NUMBER),
        Column("to", Kind.NUMBER),
        Column("judged", Kind.COUNT),
        Column("accuracy", Kind.SHARE),
        *INTERVAL,
    )
    return Table("calibration", "Accuracy by score", columns, tuple(rows))
