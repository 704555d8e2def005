"""Accuracy against size and against score, per cell and per LM and setting; KG sizes at the cuts of Table 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np

from evaluation.evidence.evidence import BASES, Evidence, SampledHarvest
from evaluation.evidence.judges import JudgedStrata
from evaluation.rendering.documents import Document, about_side, name_of
from evaluation.reports.sections.assisted_rates import assisted_point
from evaluation.reports.sections.rates import demonstrator_mark
from kgharvest.statistics.arrays import Codes
from kgharvest.statistics.cut_rates import RankedStrata, largest_part, score_cuts
from kgharvest.statistics.paired_tests import Side
from kgharvest.statistics.rates import VerdictSample, accuracy_by_score
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = (
    "Accuracy against size, and of cuts: as of a cell, over what the cut takes of each stratum; none where it takes a "
    "part without a verdict."
)
TARGET = 0.8  # precision
N_SIZES, N_SIZES_OF_SIDES = 20, 10  # those of sides, over all their strata, take long


def curve_entries(
    evidence: Evidence, ranked: RankedStrata, accepted: VerdictSample, judged: JudgedStrata | None = None
) -> list[dict[str, Any]]:
    """Return a curve per cell whose population is known, then one per LM and setting; with `judge` if there is one."""
    known = np.flatnonzero((ranked.population > 0) & (ranked.last > 0))
    entries = []
    for number, key in enumerate(evidence.cells):
        strata = known[evidence.cell_of_stratum[known] == number]
        if len(strata):
            entries.append({
                **key._asdict(),
                "population": int(ranked.population[strata].sum()),
                "sizes": list(_sizes(evidence, ranked, strata, judged)),
                **_by_score(evidence, accepted, strata, ranked, judged),
            })  # fmt: skip
    side_of_stratum = evidence.side_of_cell[evidence.cell_of_stratum[known]]
    for number, (model, setting) in enumerate(evidence.sides):
        strata = known[side_of_stratum == number]
        if len(strata):
            sizes = _sizes(evidence, ranked, strata, judged, N_SIZES_OF_SIDES)
            entries.append({
                "relation": None,
                "model": model,
                "setting": setting,
                "population": int(ranked.population[strata].sum()),
                "sizes": [{**point, "size": None} for point in sizes],
                "scores": [],
            })  # fmt: skip
    return entries


def _sizes(
    evidence: Evidence, ranked: RankedStrata, strata: Codes, judged: JudgedStrata | None, n_sizes: int = N_SIZES
) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of the best parts of each harvest, up to all of it, where every stratum's has a verdict."""
    cell = evidence.cell_of_stratum[strata]
    deepest = np.zeros(len(evidence.cells), dtype=np.int64)
    np.maximum.at(deepest, cell, ranked.last[strata])
    for step in range(1, n_sizes + 1):
        last_rank = step * deepest[cell] // n_sizes
        rate, parts = ranked.rate(strata, last_rank)
        if rate.value is not None:
            yield {
                "size": int(parts.population.sum()),
                "share": step / n_sizes,
                "n": int(parts.n.sum()),
                "accuracy": rate.value,
                "low": rate.low,
                "high": rate.high,
                **(assisted_point(judged, strata, last_rank) if judged else {}),
            }


def _by_score(
    evidence: Evidence, accepted: VerdictSample, strata: Codes, ranked: RankedStrata, judged: JudgedStrata | None
) -> dict[str, Any]:
    """Return accuracy in bins of scores, and the largest best part of which TARGET is true; None if there is none.

    accepted: what each draw (D,) says. With a judge that part is found with it, too.
    """
    draws = evidence.draws
    chosen = (accepted.n > 0) & np.isin(draws.stratum, strata) & (draws.rank > 0) & np.isfinite(draws.score)
    if not chosen.any():
        return {"scores": [], "precision_cut": None}
    score, stratum, sample = draws.score[chosen], draws.stratum[chosen], accepted.at(chosen)
    n_of_stratum = np.bincount(stratum, sample.n)
    weight = evidence.population_of_stratum[stratum] / n_of_stratum[stratum]
    cuts = score_cuts(ranked, strata, draws.rank[chosen], score)
    part, with_judge = largest_part(cuts, TARGET), judged and judged.largest_part(cuts, TARGET)
    return {
        "scores": [score_bin._asdict() for score_bin in accuracy_by_score(score, sample.n, sample.n_hits, weight)],
        "precision_cut": part and {"target": TARGET, **part._asdict()},
        **({"precision_cut_judge": with_judge and {"target": TARGET, **with_judge._asdict()}} if judged else {}),
    }


# -- cuts of the paper's Table 2 ---------------------------------------------------------------------------------------


def sizes_of_cuts(harvests: Iterable[SampledHarvest]) -> dict[str, dict[int, int]]:
    """Return by cut how many tuples it keeps of each job, of which it is a part of what was sampled."""
    harvests = list(harvests)
    return {
        **{
            f"base:{base}": {own.job: own.kept_by_base[base] for own in harvests if base in own.kept_by_base}
            for base in BASES
        },
        "share:0.5": {own.job: ceil(own.population / 2) for own in harvests},
        "all": {own.job: own.population for own in harvests},
    }


def cut_entries(evidence: Evidence, ranked: RankedStrata, judged: JudgedStrata | None = None) -> list[dict[str, Any]]:
    """Return an entry per LM, setting and cut, for docs/report-json.md: a part of what was sampled, so estimable."""
    job_of_stratum = np.array([stratum.job or 0 for stratum in evidence.strata], dtype=np.int64)
    jobs_of_side: dict[Side, list[int]] = {}
    for harvest in evidence.harvests:
        jobs_of_side.setdefault(harvest.side, []).append(harvest.job)
    entries = []
    for (model, setting), jobs in jobs_of_side.items():
        for cut, sizes in sizes_of_cuts(evidence.harvests).items():
            n_kept = {job: sizes[job] for job in jobs if job in sizes}
            if not n_kept:
                continue
            strata = np.flatnonzero(np.isin(job_of_stratum, list(n_kept)))
            last_rank = np.array([n_kept[job] for job in job_of_stratum[strata].tolist()], np.int64)
            rate, parts = ranked.rate(strata, last_rank)
            entries.append({
                "model": model,
                "setting": setting,
                "cut": cut,
                "size": int(parts.population.sum()),
                "n_relations": len(n_kept),
                "n": int(parts.n.sum()),
                "accuracy": rate.value,
                "low": rate.low,
                "high": rate.high,
                "reason": rate.reason,
                **(assisted_point(judged, strata, last_rank) if judged else {}),
            })  # fmt: skip
    return entries


# -- figures and tables ------------------------------------------------------------------------------------------------

MOST_PANELS = 12  # that are shown unasked


def side_curves(document: Document) -> list[Mapping[str, Any]]:
    """Return the curves of the LMs and settings over all their relations."""
    return [curve for curve in document.get("curves", []) if curve["relation"] is None and curve["sizes"]]


def scored_cells(document: Document) -> list[Mapping[str, Any]]:
    return [curve for curve in document.get("curves", []) if curve["scores"]]


def scored_relations(document: Document) -> list[str]:
    """Return the relations of all cells with scores, by name; a shortened document has them beside its curves."""
    names = document.get("scored_relations")
    return sorted({curve["relation"] for curve in scored_cells(document)}) if names is None else names


def calibration_curves(document: Document) -> list[Mapping[str, Any]]:
    """Return the cells with scores that a figure draws: all of one relation, the first ones of several."""
    cells = scored_cells(document)
    return cells if len({cell["relation"] for cell in cells}) == 1 else cells[:MOST_PANELS]


def calibration_left_out(document: Document) -> str:
    """Return how many of the cells the figure shows, in words; nothing if it is all of them."""
    n_shown, n_cells = len(calibration_curves(document)), document.get("n_scored_cells", len(scored_cells(document)))
    return "" if n_shown == n_cells else f"{n_shown} of {n_cells:,} cells shown"


def scores_by_relation(document: Document) -> dict[str, Document]:
    """Return by relation what a figure of its cells' scores is drawn from: a document of little else."""
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for cell in scored_cells(document):
        cells.setdefault(cell["relation"], []).append({**cell, "sizes": []})
    sides = [{key: total[key] for key in ("model", "setting")} for total in document["totals"]]
    return {
        relation: {"totals": sides, "curves": of_relation, "n_scored_cells": len(of_relation)}
        for relation, of_relation in cells.items()
    }


def size_curve_table(document: Document) -> Table:
    """Accuracy of the best part of each harvest, from one sample."""
    keys = ("share", "size", "n", "accuracy", "low", "high")
    columns = (Column("share", Kind.SHARE), *of_kind(Kind.COUNT, "tuples", "judged"))
    return Table("size-curves", "Accuracy of the best tuples", *_points(document, "sizes", keys, columns))


def calibration_table(document: Document) -> Table:
    """Accuracy by score, in bins of equally many judged tuples."""
    keys = ("score_low", "score_high", "n", "accuracy", "low", "high")
    columns = (*of_kind(Kind.NUMBER, "score from", "to"), Column("judged", Kind.COUNT))
    return Table("calibration", "Accuracy by score", *_points(document, "scores", keys, columns))


def _points(
    document: Document, part: str, keys: Iterable[str], columns: Iterable[Column]
) -> tuple[tuple[Column, ...], tuple[Row, ...]]:
    """Return the columns and a row for each point of a part of the curves."""
    rows = tuple(
        Row((
            curve["relation"] or "all",
            name_of(curve["model"]),
            name_of(curve["setting"]),
            *(point[key] for key in keys),
        ))
        for curve in document.get("curves", [])
        for point in curve[part]
    )  # fmt: skip
    return (
        *map(Column, ("relation", "LM", "setting")),
        *columns,
        *of_kind(Kind.SHARE, "accuracy", "low", "high"),
    ), rows


def size_table(document: Document) -> Table:
    """How large the KG of each LM and setting is at several cuts, how much of it is true, and how much is new."""
    novelty = {(total["model"], total["setting"]): total for total in (document.get("novelty") or {}).get("totals", [])}
    rows = [
        Row((
            demonstrator_mark(document, cut["model"]),
            name_of(cut["setting"]),
            cut["cut"],
            cut["size"],
            cut["n_relations"],
            cut["accuracy"],
            cut["low"],
            cut["high"],
            cut["n"],
            novelty.get((cut["model"], cut["setting"]), {}).get("entity_novelty") if cut["cut"] == "all" else None,
        ), about=about_side(cut))
        for cut in document.get("cuts", [])
    ]  # fmt: skip
    columns = (
        *map(Column, ("LM", "setting", "cut")),
        *of_kind(Kind.COUNT, "tuples", "relations"),
        *of_kind(Kind.SHARE, "accuracy", "low", "high"),
        Column("judged", Kind.COUNT),
        Column("novelty", Kind.SHARE),
    )
    notes = (
        "Accuracy of all tuples that the cut keeps, each weighing the same, estimated from the judged ones among them; "
        "95 % interval. None where a part of a harvest that the cut keeps has no verdict.",
        "base-k keeps what is at least a tenth as probable as the k-th tuple of its relation. Relations where it "
        "reaches beyond what was sampled are left out.",
        _novelty_note(document),
    )
    return Table("sizes", "Size and accuracy of the KG", columns, tuple(rows), notes)


def _novelty_note(document: Document) -> str:
    novelty = document.get("novelty")
    if not novelty:
        return "Novelty needs a reference KG, which this report has none of."
    return f"Novelty: share of entities that {novelty['reference']['name']} does not hold, over the whole harvest."
