"""Accuracies that rest on a model beside the share of verdicts: corrected for annotators' errors, and pooled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from kgharvest.statistics.cell_rates import EMPTY_STRATUM, UNKNOWN_POPULATION
from kgharvest.statistics.sides import Side

from evaluation.evidence.cells import Cell
from evaluation.evidence.evidence import Evidence
from evaluation.rendering.documents import Document, about_side, name_of
from evaluation.reports.sections.annotators import judged_opinions
from kgharvest.pages.number_format import share_with_interval
from kgharvest.statistics.annotator_errors import Sample, Truths, corrected_rate, sample_truths, why_unidentified
from kgharvest.statistics.arrays import ACCEPTED, Codes, Floats
from kgharvest.statistics.partial_pooling import SimpleSample, effective_sample, pooled_rates
from kgharvest.statistics.rates import NOTHING_COUNTED, Rate, unknown_rate
from kgharvest.tables.table import Column, Kind, Row, Table

METHOD = (
    "Accuracy corrected for annotators' errors: two classes, sensitivity and specificity of each annotator (Dawid and "
    "Skene 1979), partially pooled over annotators, prevalences over groups of statements drawn for the same strata, "
    "judgments of Unjudgeable missing, the truth of gold known; posterior by Gibbs's sampler. Each arm of its interval "
    "is the exact one's of the finite population and the posterior's added in squares. Partially pooled relations: "
    "beta-binomial over the relations of an LM and setting, mean and precision drawn from a grid; strata weigh as in "
    "the cell's rate, and what was judged is known."
)
NOTE_ON_CORRECTION = (
    "By verdicts: as in the first table. Corrected: the share of true statements, given how often people seem to err; "
    "it takes for granted that they err independently of each other, alike on all statements that are true, or false, "
    "and are right more often than not."
)
NOTE_ON_POOLING = (
    "Pooled: each relation is drawn towards the others of its LM and setting, the more the less is known of it. Of "
    "many such intervals 95 % hold the accuracy; a relation unlike all others is drawn to where it is not."
)
AVERAGE = "average"
NOT_TOLD = "The labels of incomplete statements do not tell how many will be accepted."


@dataclass(frozen=True)
class Correction:
    """What the judgments tell of the annotators; truths: None where `reason` says why they do not."""

    truths: Truths | None
    n_gold: int
    reason: str | None


def correct_for_errors(evidence: Evidence) -> Correction:
    judged, has_opinion = judged_opinions(evidence)
    number = np.cumsum(has_opinion) - 1  # of annotators with an opinion among these
    judged = judged._replace(annotator=number[judged.annotator], n_annotators=int(has_opinion.sum()))
    n_gold = len(np.unique(judged.task[judged.task >= evidence.n_tasks]))
    reason = why_unidentified(judged, evidence.gold_truth)
    if reason:
        return Correction(None, n_gold, reason)
    sample = Sample(evidence.draws.task, evidence.draws.stratum, len(evidence.strata))
    truths = sample_truths(judged, evidence.gold_truth, sample, np.random.default_rng(evidence.seed))
    return Correction(truths, n_gold, None)


# -- entries of the document -------------------------------------------------------------------------------------------


def correction_entry(correction: Correction) -> dict[str, Any]:
    """Return how often a judgment calls what is true True, and what is false False, on average over judgments."""
    truths = correction.truths
    return {
        "sensitivity": _skill_entry(None if truths is None else truths.sensitivity),
        "specificity": _skill_entry(None if truths is None else truths.specificity),
        "n_gold": correction.n_gold,
        "reason": correction.reason,
    }


def _skill_entry(draws: Floats | None) -> dict[str, float | None]:
    if draws is None:
        return {"value": None, "low": None, "high": None}
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"value": float(draws.mean()), "low": float(low), "high": float(high)}


def with_modelled_rates(
    entries: Sequence[dict[str, Any]], evidence: Evidence, cells: Sequence[Cell], correction: Correction
) -> list[dict[str, Any]]:
    """Return the entries of `cells`, in their order, with `corrected` and `pooled`."""
    pooled = _pooled(cells, np.random.default_rng(evidence.seed))
    return [
        {**entry, "corrected": _corrected([cell], [strata], correction)._asdict(), "pooled": rate._asdict()}
        for entry, cell, strata, rate in zip(entries, cells, evidence.strata_of_cells, pooled, strict=True)
    ]


def with_corrected_averages(
    totals: Sequence[dict[str, Any]], evidence: Evidence, cells: Sequence[Cell], correction: Correction
) -> list[dict[str, Any]]:
    """Return the entries of LMs and settings with `corrected`: the mean over relations that have a corrected rate."""
    strata = evidence.strata_of_cells
    averages = []
    for total in totals:
        side = Side(total["model"], total["setting"])
        of_side = [(cell, part) for cell, part in zip(cells, strata, strict=True) if cell.key.side == side]
        known = [pair for pair in of_side if _why_unknown(*pair, correction) is None]
        of_known, strata_of_known = zip(*(known or of_side[:1]), strict=True)
        averages.append({**total, "corrected": _corrected(of_known, strata_of_known, correction)._asdict()})
    return averages


def _why_unknown(cell: Cell, strata: Codes, correction: Correction) -> str | None:
    if correction.truths is None:
        return correction.reason
    n = correction.truths.n[strata]
    if not n.any():
        return NOTHING_COUNTED
    if not n.all():
        return EMPTY_STRATUM
    return UNKNOWN_POPULATION if cell.is_stratified and not cell.population.all() else None


def _corrected(cells: Sequence[Cell], strata: Sequence[Codes], correction: Correction) -> Rate:
    """Return the mean corrected rate of cells, each weighing the same."""
    reasons = [_why_unknown(cell, numbers, correction) for cell, numbers in zip(cells, strata, strict=True)]
    if correction.truths is None or any(reasons):
        return unknown_rate(next(filter(None, reasons)))
    population = np.concatenate([cell.population for cell in cells])
    weights = np.concatenate([cell.part_of_strata / len(cells) for cell in cells])
    return corrected_rate(correction.truths, np.concatenate(strata), population, weights)


def _pooled(cells: Sequence[Cell], rng: np.random.Generator) -> list[Rate]:
    """Return each cell's accuracy, partially pooled over those of its LM and setting."""
    rates = [cell.rate_of(ACCEPTED) for cell in cells]
    pooled = [unknown_rate(rate.reason or NOT_TOLD) for rate in rates]
    for side in dict.fromkeys(cell.key.side for cell in cells):
        known = [
            (number, rate.value, sample)
            for number, (cell, rate) in enumerate(zip(cells, rates, strict=True))
            if cell.key.side == side and rate.value is not None and (sample := _sample_of(cell))
        ]
        if known:
            numbers, shares, samples = zip(*known, strict=True)
            for number, rate in zip(numbers, pooled_rates(shares, samples, rng), strict=True):
                pooled[number] = rate
    return pooled


def _sample_of(cell: Cell) -> SimpleSample | None:
    """Return what the cell's sample is worth; None where its labels do not tell what is accepted."""
    accepted = cell.samples[ACCEPTED]
    if not np.array_equal(accepted.least, accepted.most):
        return None
    return effective_sample(accepted.n, cell.population, cell.part_of_strata)


# -- tables ------------------------------------------------------------------------------------------------------------

INTERVAL = (("value", "Acc"), ("low", "low"), ("high", "high"))
BY_VERDICTS = "by verdicts"
NAMES = (Column("relation"), Column("LM"), Column("setting"), Column("statements", Kind.COUNT))


def corrected_table(document: Document) -> Table:
    totals = [total for total in document["totals"] if total.get("corrected")]
    of_cells = [
        _row(cell, cell["relation"], ("accuracy", "accuracy_low", "accuracy_high"), "corrected")
        for cell in document["cells"]
        if _annotator_errors(document)["reason"] is None
    ]
    keys = ("macro_accuracy", "macro_accuracy_these_low", "macro_accuracy_these_high")
    averages = [_row(total, AVERAGE, keys, "corrected")._replace(is_summary=bool(of_cells)) for total in totals]
    notes = (NOTE_ON_CORRECTION, *_skills_in_words(document)) if totals else ()
    return Table(
        "corrected",
        "Accuracy corrected for annotators' errors",
        _columns("corrected"),
        (*of_cells, *averages),
        notes,
    )


def pooled_table(document: Document) -> Table:
    rows = [
        _row(cell, cell["relation"], ("accuracy", "accuracy_low", "accuracy_high"), "pooled")
        for cell in document["cells"]
        if (cell.get("pooled") or {}).get("value") is not None
    ]
    return Table("pooled", "Relations, partially pooled", _columns("pooled"), tuple(rows), (NOTE_ON_POOLING,))


def _annotator_errors(document: Document) -> Mapping[str, Any]:
    """Return how often people err. Reports frozen before LMs were judges name it otherwise; the oldest lack it."""
    errors: Mapping[str, Any] | None = document.get("annotator_errors") or document.get("judge_errors")
    return errors or {"reason": "This report was made before annotators' errors were estimated."}


def _columns(name: str) -> tuple[Column, ...]:
    numbers = (Column(title, Kind.SHARE, group) for group in (BY_VERDICTS, name) for _, title in INTERVAL)
    return (*NAMES, *numbers, Column("why not"))


def _row(entry: Mapping[str, Any], relation: str, keys: Sequence[str], name: str) -> Row:
    modelled = entry.get(name) or {}
    return Row(
        (
            relation,
            name_of(entry["model"]),
            name_of(entry["setting"]),
            entry["n"],
            *(entry.get(key) for key in keys),
            *(modelled.get(key) for key, _ in INTERVAL),
            modelled.get("reason"),
        ),
        about=about_side(entry) | {"relation": entry.get("relation")},
    )


def _skills_in_words(document: Document) -> Iterable[str]:
    errors = _annotator_errors(document)
    if errors["reason"] is not None:
        return
    true, false = (
        share_with_interval(*(errors[name][key] for key, _ in INTERVAL)) for name in ("sensitivity", "specificity")
    )
    gold = f"; {errors['n_gold']} gold statements tell, too" if errors["n_gold"] else ""
    yield f"A judgment calls what is true True with {true}, and what is false False with {false}{gold}."
