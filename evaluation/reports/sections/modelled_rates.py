"""Accuracies corrected for annotators' errors, and anytime-valid intervals of accuracies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.evidence import Cell, DrawnVerdicts, Evidence
from evaluation.evidence.judges import JudgedStrata
from evaluation.rendering.documents import Document, about_side, name_of
from evaluation.reports.sections.annotators import judged_opinions
from evaluation.reports.sections.assisted_rates import macro_weights
from kgharvest.pages.number_format import share_with_interval
from kgharvest.statistics.annotator_errors import (
    Sample,
    Truths,
    corrected_rate,
    sample_truths,
    why_unidentified,
)
from kgharvest.statistics.arrays import ACCEPTED, Codes, Flags, Floats
from kgharvest.statistics.judge_assisted import JudgedSample, post_strata
from kgharvest.statistics.rates import EMPTY_STRATUM, NOTHING_COUNTED, UNKNOWN_POPULATION, Rate
from kgharvest.statistics.sequential import SeenStrata, anytime_average, anytime_interval
from kgharvest.tables.table import Column, Kind, Row, Table

METHOD_PARTS = {
    "corrected_rates": (
        "The accuracy corrected for annotators' errors is based on a two-class model with a sensitivity and a "
        "specificity for each annotator (Dawid and Skene 1979). Sensitivities and specificities are partially pooled "
        "over annotators. Statements drawn for the same strata form a group, and each group has its own prevalence. "
        "Unjudgeable counts as missing, and the truth of gold statements is known. The posterior is drawn by Gibbs "
        "sampling. Each arm of the interval combines two arms in quadrature: the arm of the exact interval for the "
        "finite population and the arm of the posterior."
    ),
    "every_look": (
        "An anytime-valid interval contains the numbers of hits whose prior-to-posterior ratio has stayed below 20, "
        "for a beta-binomial prior (1/2, 1/2) in each stratum (Waudby-Smith and Ramdas 2020). The ratios of strata "
        "are multiplied. In at most 5 % of rounds, at least one interim interval misses the true value."
    ),
    "every_look_with_judge": (
        "For anytime-valid intervals with a judge, the ratios of people alone and the ratios with the judge are "
        "averaged."
    ),
    "every_look_of_averages": (
        "Anytime-valid intervals of averages over relations are based on a normal mixture (Robbins 1970). Variances "
        "are computed from shares to which a hit and a miss are added. The intervals hold asymptotically: with two or "
        "three relations and few statements, at least one interim interval missed the true value in up to 6 of 100 "
        "simulated rounds."
    ),
}
NOTE_ON_CORRECTION = (
    "By verdicts: as in the first table. Corrected: the share of true statements given the estimated error rates of "
    "annotators. Assumptions: annotators err independently, with one error rate for all true statements and another "
    "for all false statements, and they are correct more often than not."
)
AVERAGE = "average"


class Correction(NamedTuple):
    """Estimated error rates of annotators.

    `truths` is None if the rates cannot be estimated; `entry` then contains the reason.
    """

    truths: Truths | None
    entry: dict[str, Any]


def correct_for_errors(evidence: Evidence) -> Correction:
    """Return the correction for annotators' errors.

    Its entry contains sensitivity and specificity, averaged over judgments.
    """
    judged, has_opinion = judged_opinions(evidence)
    number = np.cumsum(has_opinion) - 1  # new numbers of the annotators who gave a True or False label
    judged = judged._replace(annotator=number[judged.annotator], n_annotators=int(has_opinion.sum()))
    reason, truths = why_unidentified(judged, evidence.gold_truth), None
    if not reason:
        sample = Sample(evidence.draws.task, evidence.draws.stratum, len(evidence.strata))
        truths = sample_truths(judged, evidence.gold_truth, sample, np.random.default_rng(evidence.seed))
    entry: dict[str, Any] = {}
    for name in ("sensitivity", "specificity"):
        entry[name] = {"value": None, "low": None, "high": None}
        if truths is not None:
            draws: Floats = getattr(truths, name)
            low, high = np.quantile(draws, [0.025, 0.975])
            entry[name] = {"value": float(draws.mean()), "low": float(low), "high": float(high)}
    n_gold = len(np.unique(judged.task[judged.task >= evidence.n_tasks]))
    return Correction(truths, {**entry, "n_gold": n_gold, "reason": reason})


def with_modelled_rates(
    entries: Sequence[dict[str, Any]], evidence: Evidence, cells: Sequence[Cell], correction: Correction
) -> list[dict[str, Any]]:
    """Return the entries of `cells`, in their order, with the key `corrected`."""
    modelled = []
    for entry, cell, strata in zip(entries, cells, evidence.strata_of_cells, strict=True):
        if correction.truths is None:
            corrected = Rate(reason=correction.entry["reason"])
        elif not (n := correction.truths.n[strata]).all():
            corrected = Rate(reason=EMPTY_STRATUM if n.any() else NOTHING_COUNTED)
        elif not cell.has_shares:
            corrected = Rate(reason=UNKNOWN_POPULATION)
        else:
            sizes, effects = (cell.population, cell.part_of_strata), evidence.accuracy_effects[strata]
            corrected = corrected_rate(correction.truths, strata, *sizes, effects)
        modelled.append({**entry, "corrected": corrected._asdict()})
    return modelled


def with_corrected_averages(
    totals: Sequence[dict[str, Any]],
    cell_entries: Sequence[Mapping[str, Any]],
    evidence: Evidence,
    cells: Sequence[Cell],
    correction: Correction,
) -> list[dict[str, Any]]:
    """Return the entries of LMs and settings, extended by `corrected`.

    This is the mean over relations with a corrected rate.
    """
    averages = []
    for side, total in enumerate(totals):
        numbers = np.flatnonzero(evidence.side_of_cell == side).tolist()
        corrected = cell_entries[numbers[0]]["corrected"]
        numbers = [number for number in numbers if cell_entries[number]["corrected"]["reason"] is None]
        if correction.truths is not None and numbers:
            strata, population, parts = (
                np.concatenate(column)
                for column in zip(
                    *((evidence.strata_of_cells[n], cells[n].population, cells[n].part_of_strata) for n in numbers),
                    strict=True,
                )
            )
            parts, effects = parts / len(numbers), evidence.accuracy_effects[strata]
            corrected = corrected_rate(correction.truths, strata, population, parts, effects)._asdict()
        averages.append({**total, "corrected": corrected})
    return averages


INTERVAL = (("value", "Acc"), ("low", "low"), ("high", "high"))


def corrected_table(document: Document) -> Table:
    totals = [total for total in document["totals"] if total.get("corrected")]
    of_cells = [
        _row(cell, cell["relation"], ("accuracy", "accuracy_low", "accuracy_high"))
        for cell in document["cells"]
        if _annotator_errors(document)["reason"] is None
    ]
    keys = ("macro_accuracy", "macro_accuracy_these_low", "macro_accuracy_these_high")
    averages = [_row(total, AVERAGE, keys)._replace(is_summary=bool(of_cells)) for total in totals]
    notes = (NOTE_ON_CORRECTION, *_skills_in_words(document)) if totals else ()
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        Column("statements", Kind.COUNT),
        *(Column(title, Kind.SHARE, group) for group in ("by verdicts", "corrected") for _, title in INTERVAL),
        Column("reason"),
    )
    return Table("corrected", "Accuracy corrected for annotators' errors", columns, (*of_cells, *averages), notes)


def _annotator_errors(document: Document) -> Mapping[str, Any]:
    """Return the annotators' error rates.

    Old reports store them under another key, and the oldest reports lack them.
    """
    errors: Mapping[str, Any] | None = document.get("annotator_errors") or document.get("judge_errors")
    return errors or {"reason": "This report was created before annotators' errors were estimated."}


def _row(entry: Mapping[str, Any], relation: str, keys: Sequence[str]) -> Row:
    corrected = entry.get("corrected") or {}
    return Row(
        (
            relation,
            name_of(entry["model"]),
            name_of(entry["setting"]),
            entry["n"],
            *(entry.get(key) for key in keys),
            *(corrected.get(key) for key, _ in INTERVAL),
            corrected.get("reason"),
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
    gold = f" The estimates include {errors['n_gold']} gold statements." if errors["n_gold"] else ""
    yield (
        f"A true statement is labeled True with probability {true}, and a false statement is labeled False with "
        f"probability {false}.{gold}"
    )


# Anytime-valid intervals


def every_look_entries(
    evidence: Evidence,
    entries: Sequence[dict[str, Any]],
    group_of_draw: Codes | None = None,
    sizes: Codes | None = None,
) -> list[dict[str, Any]]:
    """Return the entries of cells, in order, with the key `every_look`: low and high, or None if undefined.

    group_of_draw (D,): label group of each draw, by the judge's label. sizes (S, G): number of tuples by stratum and
    group.
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
    if evidence.cluster is not None:  # anytime-valid intervals assume simple random samples
        intervals = [None] * len(evidence.cells)
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
    """Return the entries of LMs and settings, extended by `every_look`.

    This is the interval of the mean over relations, or of the only cell.
    """
    every_stratum = np.arange(len(evidence.strata))
    by_label = None if judged is None else judged.heard(every_stratum, judged.ranked.last)
    averages = []
    for side, total in enumerate(totals):
        cells = np.flatnonzero(evidence.side_of_cell == side).tolist()
        interval = cell_entries[cells[0]]["every_look"]
        if len(cells) > 1 and evidence.cluster is None:
            low_and_high = _average(evidence, [evidence.strata_of_cells[cell] for cell in cells], by_label, judged)
            interval = dict(zip(("low", "high"), low_and_high or (None, None), strict=True))
        averages.append({**total, "every_look": interval})
    return averages


def _average(
    evidence: Evidence, cells: Sequence[Codes], by_label: JudgedSample | None, judged: JudgedStrata | None
) -> tuple[float, float] | None:
    """Return the interval of the mean over cells. `by_label` is the sample by the judge's label."""
    strata = np.concatenate(cells)
    if not evidence.population_of_stratum[strata].all():
        return None
    weights = macro_weights(cells, evidence)
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    if judged is None or by_label is None:
        seen = seen_strata(evidence, evidence.draws.stratum, evidence.population_of_stratum.astype(np.int64))
        return anytime_average(_at(seen, strata), weights, n_drawn[strata])
    groups = post_strata(by_label)
    group = groups.group_of[evidence.draws.stratum, judged.tuples.group_of_draw]
    seen = seen_strata(evidence, group, groups.population)
    in_groups = np.bincount(groups.group_of.ravel(), by_label.drawn.ravel(), len(groups.population)).astype(np.int64)
    of_strata = np.zeros(len(evidence.strata))
    of_strata[strata] = weights
    is_in = np.isin(groups.stratum, strata) & (groups.population > 0)
    return anytime_average(_at(seen, is_in), groups.weights(of_strata)[is_in], in_groups[is_in])


def seen_strata(evidence: Evidence, stratum: Codes, population: Codes) -> SeenStrata:
    """Return the judged draws by stratum (D,), including incomplete statements with a label."""
    drawn = DrawnVerdicts(len(population), (stratum, evidence.draws.task), evidence.patterns, evidence.quorum)
    least, most = drawn.extremes(ACCEPTED)
    has_label = (evidence.counts.sum(axis=1) > 0)[evidence.draws.task]
    n = np.bincount(stratum[has_label], minlength=len(population))
    most = most - (drawn.n_drawn - n)
    return SeenStrata(n, np.rint(least).astype(np.int64), np.rint(most).astype(np.int64), population)


def _at(strata: SeenStrata, chosen: Codes | Flags) -> SeenStrata:
    return SeenStrata(*(column[chosen] for column in strata))
