"""Accuracy and rejection per cell, per LM and setting, by size and by score, and sample-size planning."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from evaluation.evidence.evidence import BASES, Cell, Evidence, SampledHarvest, joint_rate
from evaluation.evidence.judges import JudgedStrata
from evaluation.rendering.documents import Document, about_side, demonstrator_mark, lm_and_setting, name_of
from evaluation.reports.sections.assisted_rates import assisted_point
from kgharvest.pages.number_format import DASH, counted, in_points, share, share_with_interval
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, REJECTED, UNDECIDED, VERDICTS, Codes
from kgharvest.statistics.paired_tests import (
    Side,
    fewest_relations,
    interval_for_similar,
    relations_for_interval,
    relations_to_tell_apart,
    statements_to_shrink,
)
from kgharvest.statistics.rates import (
    EMPTY_STRATUM,
    NOTHING_COUNTED,
    UNKNOWN_POPULATION,
    RankedStrata,
    Rate,
    VerdictSample,
    accuracy_by_score,
    largest_part,
    score_cuts,
)
from kgharvest.tables.table import Column, Kind, Rates, Row, Table, of_kind

METHOD_PARTS = {
    "rates": (
        "Accuracy and rejection rates estimate shares of the population of tuples from which the statements of a cell "
        "were drawn. They are based on the statements with a verdict. Strata of ranks are weighted by their size. The "
        "95 % intervals are exact for the finite population: they are Blaker's intervals for the hypergeometric "
        "distribution, convolved over strata. A census has an interval of zero width, because nothing remains unknown "
        "about judged tuples."
    ),
    "unknown_population": ("If the size of the population is unknown, the interval is Blaker's binomial interval."),
    "averages": (
        "Macro averages are means over these relations, each with the same weight. Their 95 % interval is exact, like "
        "that of a cell, with relations as strata. The pooled rate of all statements is not weighted by the sizes of "
        "the harvests and therefore has no interval. In the weighted accuracy, the weight of a relation is its "
        "population."
    ),
    "fixed_width": (
        "The round closed once the accuracy of each LM and setting, averaged over relations, was known to the target "
        "half-width. The interval of this average is a fixed-width interval. In simple samples with one label per "
        "statement, it contains the accuracy at the stop with a probability of at least .945, for every accuracy "
        "between .005 and .995 (computed by dynamic programming). Averages over strata use an effective sample size."
    ),
    "similar_relations": (
        "The interval of the average for similar relations is a bootstrap-t interval over relations (5,000 resamples), "
        "from six relations on."
    ),
    "curves_and_cuts": (
        "The accuracy of top-ranked tuples and of cuts is estimated like the accuracy of a cell, but from the part of "
        "each stratum inside the cut. The accuracy is undefined if any of these parts has no verdict."
    ),
}


def cell_entries(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    entries = []
    for cell in cells:
        accuracy, rejection, undecided = (cell.rate_of(verdict) for verdict in (ACCEPTED, REJECTED, UNDECIDED))
        strata = []
        for number, (rank_from, rank_to) in enumerate(cell.ranks):
            population = int(cell.population[number]) or None
            stratum: dict[str, Any] = {"rank_from": rank_from, "rank_to": rank_to, "population": population}
            stratum |= _counts(cell.counts[number : number + 1])
            if (effect := float(cell.design_effects[ACCEPTED][number])) != 1:
                stratum["design_effect"] = effect
            if judge_label := cell.judge_labels[number]:
                stratum["judge_label"] = judge_label
            if stratum["incomplete"]:
                columns = cell.samples[ACCEPTED]._asdict()
                stratum["completed"] = {name: float(column[number]) for name, column in columns.items()}
            strata.append(stratum)
        limits: dict[str, float | None] = {}
        if cell.counts[:, INCOMPLETE].any():
            names = ("accuracy_if_rejected", "accuracy_if_accepted")
            for name, n_hits in zip(names, (cell.accepted_at_least, cell.accepted_at_most), strict=True):
                sample = VerdictSample.of_complete(cell.counts.sum(axis=1), n_hits)
                limits[name] = replace(cell, samples=[sample]).rate_of(ACCEPTED).value
        entries.append({
            **cell.key._asdict(),
            **_counts(cell.counts),
            **_with_intervals(accuracy=accuracy, rejection=rejection),
            "undecided_share": undecided.value,
            "weighting": "stratified" if len(cell.counts) > 1 else "simple",
            "population": int(cell.population.sum()) or None,
            "reason": accuracy.reason,
            **limits,
            "strata": strata,
        })  # fmt: skip
    return entries


def _counts(counts: Codes) -> dict[str, int]:
    numbers = dict(zip(VERDICTS, counts.sum(axis=0).tolist(), strict=True))
    return {"n": sum(numbers.values()) - numbers["incomplete"], **numbers}


def _with_intervals(**rates: Rate) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, rate in rates.items():
        values |= {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
    return values


def total_entries(evidence: Evidence, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return an entry per LM and setting, averaged over its relations.

    docs/report-json.md explains the three averages.
    """
    entries = []
    for number, side in enumerate(evidence.sides):
        side_cells = [cells[cell] for cell in np.flatnonzero(evidence.side_of_cell == number).tolist()]
        accuracies = {
            cell.key.relation: value for cell in side_cells if (value := cell.rate_of(ACCEPTED).value) is not None
        }
        these, rejection_of_these = (
            macro_of_these(side_cells, verdict, evidence.closed_at) for verdict in (ACCEPTED, REJECTED)
        )
        populations = np.concatenate([cell.population for cell in side_cells])
        population = int(populations.sum()) if populations.all() else None
        weighted = joint_rate(side_cells, ACCEPTED) if population else Rate(reason=UNKNOWN_POPULATION)
        if weighted.reason == EMPTY_STRATUM:
            weighted = weighted._replace(reason="A relation has no verdict yet.")
        pooled = []
        for verdict in (ACCEPTED, REJECTED, UNDECIDED):
            n, n_hits = (sum(float(cell.samples[verdict][part].sum()) for cell in side_cells) for part in (0, 1))
            # Several cells do not form a joint sample, so the pooled rate has no interval.
            of_cells = Rate(n_hits / n) if n else Rate(reason=NOTHING_COUNTED)
            pooled.append(side_cells[0].rate_of(verdict) if len(side_cells) == 1 else of_cells)
        accuracy, rejection, undecided = pooled
        entries.append({
            "model": side.model,
            "setting": side.setting,
            **_counts(np.sum([cell.counts.sum(axis=0) for cell in side_cells], axis=0, keepdims=True)),
            **_with_intervals(accuracy=accuracy, rejection=rejection),
            "undecided_share": undecided.value,
            **_with_intervals(macro_accuracy=these, macro_rejection=rejection_of_these),
            "macro_accuracy_these_low": these.low,
            "macro_accuracy_these_high": these.high,
            "similar_relations": _similar_relations(accuracies, evidence.seed),
            "n_relations": len(accuracies),
            **_with_intervals(weighted_accuracy=weighted),
            "population": population,
            "reason": weighted.reason,
        })  # fmt: skip
    return entries


def macro_of_these(cells: Sequence[Cell], verdict: int = ACCEPTED, closed_at: float | None = None) -> Rate:
    """Return the mean share of `verdict` with equal weights of `cells`. Cells with unknown shares are omitted.

    closed_at: half-width of the average at which judging stopped.
    """
    rated_cells = [cell for cell in cells if cell.rate_of(verdict).value is not None]
    if not rated_cells:
        return Rate(reason=NOTHING_COUNTED)
    weights = np.concatenate([cell.part_of_strata / len(rated_cells) for cell in rated_cells])
    return joint_rate(rated_cells, verdict, weights=weights, closed_at=closed_at)


def _similar_relations(accuracies: Mapping[str, float], seed: int) -> dict[str, Any]:
    """Return `similar_relations` of docs/report-json.md. Sorted relations make it independent of the order of cells."""
    values = np.array([accuracies[relation] for relation in sorted(accuracies)])
    low, high, reason = interval_for_similar(values, np.random.default_rng(seed))
    return {"low": low, "high": high, "reason": reason}


INCOMPLETE_MARK, NOISE_MARK = "†", "‡"
NO_COMPARISON = (
    "No comparisons: a comparison requires two settings of an LM, or two LMs in a setting, with verdicts on at least "
    "two shared relations."
)


def rates_of(cell: Mapping[str, Any]) -> Rates:
    mark = INCOMPLETE_MARK * bool(cell.get("incomplete")) + NOISE_MARK * cell.get("is_noise", False)
    return Rates(cell["accuracy"], cell["rejection"], cell["accuracy_low"], cell["accuracy_high"], cell["n"], mark)


def average_rates(total: Mapping[str, Any]) -> Rates:
    """Return the means over relations, with the interval of the accuracy and the number of statements."""
    return Rates(total["macro_accuracy"], total["macro_rejection"], *interval_of_average(total), total.get("n"))


def interval_of_average(total: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the interval of a mean for these relations. Old documents have another one at `macro_accuracy_low`."""
    return total.get("macro_accuracy_these_low"), total.get("macro_accuracy_these_high")


# Table 5: relation x LM x setting


def cells_by_relation(document: Document) -> list[tuple[str, list[Mapping[str, Any] | None]]]:
    """Return each relation with its cells in the order of the totals. A cell that was not sampled is None."""
    sides = _sides(document)
    noise = _noise_texts(document)
    keys = [_key_of(cell) for cell in document["cells"]]
    cells = {key: {**cell, "is_noise": key in noise} for key, cell in zip(keys, document["cells"], strict=True)}
    relations = sorted({cell["relation"] for cell in document["cells"]})
    return [(relation, [cells.get((relation, *side)) for side in sides]) for relation in relations]


def _key_of(cell: Mapping[str, Any]) -> tuple[str | None, ...]:
    return cell["relation"], cell["model"], cell["setting"]


def _noise_texts(document: Document) -> dict[tuple[str | None, ...], str]:
    """Return the warnings of harvests that are probably noise, by cell."""
    warnings = (document.get("conduct") or {}).get("noise_warnings", ())
    return {_key_of(warning): f"Warning: {warning['harvest']}. {warning['text']}" for warning in warnings}


def _sides(document: Document) -> list[tuple[str | None, str | None]]:
    return [(total["model"], total["setting"]) for total in document["totals"]]


def relation_table(document: Document) -> Table:
    """Return the main table: relations as rows, LMs and settings as columns, and averages in the last row."""
    rows = [
        Row((relation, *(cell and rates_of(cell) for cell in cells))) for relation, cells in cells_by_relation(document)
    ]
    average = Row(("average", *map(average_rates, document["totals"])), is_summary=True)
    columns = [
        Column(name_of(setting), Kind.RATES, demonstrator_mark(document, model)) for model, setting in _sides(document)
    ]
    return Table(
        "relations",
        "Accepted / rejected per relation, LM, and setting",
        (Column("relation"), *columns),
        (*rows, average) if rows else (),
        tuple(_notes(document)),
    )


def _notes(document: Document) -> Iterable[str]:
    yield (
        "Accepted / rejected: estimated shares of the population from which the statements were drawn; the remaining "
        "share is undecided. In parentheses: 95 % interval of the accepted share, and n, the number of statements with "
        "a verdict. Averages are over relations."
    )
    if any(cell["incomplete"] for cell in document["cells"]):
        yield (
            f"{INCOMPLETE_MARK} Some statements of this cell are incomplete; they contribute the probability of each "
            "verdict given their labels."
        )
    yield from (f"{NOISE_MARK} {text}" for text in _noise_texts(document).values())
    for reason in sorted({cell["reason"] for cell in document["cells"] if cell.get("reason")}):
        yield f"{DASH} {reason}"
    if not document["comparisons"]:
        yield NO_COMPARISON
    yield (
        f"{document['n_judgments']:,} judgments; {document['n_complete']:,} of {document['n_tasks']:,} "
        "statements are complete."
    )
    yield (
        f"Krippendorff's alpha: {agreement_in_words(document['alpha'])}; "
        f"without Unjudgeable: {agreement_in_words(document['alpha_without_unjudgeable'])}; "
        f"percent agreement: {share(document['percent_agreement'])}."
    )
    for note in document["notes"]:
        yield f"* {note}" if note.startswith("Demonstrator:") else note


def agreement_in_words(alpha: Mapping[str, Any]) -> str:
    """Return alpha with its interval, or the reason if it is undefined."""
    if alpha["value"] is None:
        return f"not defined ({alpha['reason'].rstrip('.')})"
    value = share_with_interval(alpha["value"], alpha["low"], alpha["high"])
    return f"{value} over {counted(alpha['n_units'], 'statement')}"


# Tables 3 and 4: settings of an LM, LMs in a setting

MACRO_COLUMNS = (*of_kind(Kind.SHARE, "Acc", "low", "high", "Rej"), *of_kind(Kind.COUNT, "relations", "statements"))
MACRO_NOTE = "Acc, Rej: means over these relations. low, high: 95 % interval of Acc."


def setting_table(document: Document) -> Table:
    """Return the table of the settings of each LM that has several settings.

    If no LM has several, all LMs are shown.
    """
    totals = _with_peers(document["totals"], "model") or document["totals"]
    return _macro_table("settings", "Settings, on average over relations", document, totals, ("LM", "setting"))


def model_table(document: Document) -> Table:
    """Return the table of LMs by setting. It is empty if no setting has two LMs."""
    totals = sorted(_with_peers(document["totals"], "setting"), key=lambda total: total["setting"] or "")
    return _macro_table("lms", "LMs, on average over relations", document, totals, ("setting", "LM"))


def _macro_table(
    name: str, title: str, document: Document, totals: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> Table:
    rows = []
    for total in totals:
        names = {"LM": demonstrator_mark(document, total["model"]), "setting": name_of(total["setting"])}
        numbers = (total.get(key) for key in ("macro_rejection", "n_relations", "n"))
        values = (
            *(names[column] for column in columns),
            total["macro_accuracy"],
            *interval_of_average(total),
            *numbers,
        )
        rows.append(Row(values, about=about_side(total)))
    notes = (MACRO_NOTE, *_noise_texts(document).values())
    return Table(name, title, (*map(Column, columns), *MACRO_COLUMNS), tuple(rows), notes)


SIMILAR_NOTES = (
    "low, high: 95 % bootstrap-t interval of Acc for similar relations. It assumes that these relations are a random "
    "sample.",
    "The interval is too narrow if a few relations are much worse than the others and the sample contains few of them. "
    "With 20 statements per relation, it covers the true average in .95 to .97 of simulated samples of 8 to 30 "
    "relations if accuracies have a beta distribution (mean .8 or .95), but in .77, .90, and .97 of samples of 8, "
    "14, and 30 relations if 85 % of all relations have an accuracy of .95 and 15 % an accuracy of .3.",
)


def similar_table(document: Document) -> Table:
    """Averages with their interval for similar relations; empty if no LM and setting has enough relations."""
    rows = [
        Row((lm_and_setting(total), total["macro_accuracy"], low, high, total["n_relations"]), about=about_side(total))
        for total in document["totals"]
        for low, high in [interval_for_similar_of(total)]
        if low is not None
    ]
    columns = (
        Column("LM and setting"),
        *of_kind(Kind.SHARE, "Acc", "low", "high"),
        Column("relations", Kind.COUNT),
    )
    return Table("similar", "Averages for similar relations", columns, tuple(rows), SIMILAR_NOTES)


def interval_for_similar_of(total: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the interval of a mean for similar relations. Documents made before it moved here have none."""
    similar = total.get("similar_relations") or {}
    return similar.get("low"), similar.get("high")


def _with_peers(totals: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return the totals that share their value of `key` with another total."""
    values = [total[key] for total in totals]
    return [total for total in totals if values.count(total[key]) > 1]


CELL_KEYS = (
    "n", "accepted", "rejected", "undecided", "incomplete",
    "accuracy", "accuracy_low", "accuracy_high", "rejection", "rejection_low", "rejection_high",
)  # fmt: skip
COUNTS = {"n", "accepted", "rejected", "undecided", "incomplete"}


def cell_table(document: Document) -> Table:
    """Return the table of all cells. It has the column `warning` only if a harvest is probably noise."""
    noise = _noise_texts(document)
    rows = [
        Row((
            document["source"],
            cell["relation"],
            cell["model"],
            cell["setting"],
            *(cell.get(key) for key in CELL_KEYS),
            *([noise.get(_key_of(cell))] if noise else ()),
        ))
        for cell in document["cells"]
    ]  # fmt: skip
    columns = (
        *map(Column, ("source", "relation", "model", "setting")),
        *(Column(key, Kind.COUNT if key in COUNTS else Kind.SHARE) for key in CELL_KEYS),
        *([Column("warning")] if noise else ()),
    )
    return Table("cells", "Every cell", columns, tuple(rows))


# Accuracy by size and score, KG sizes at cuts


TARGET = 0.8  # target precision
# Points per curve; points of LMs and settings are slow to compute, because they cover many strata.
N_SIZES, N_SIZES_OF_SIDES = 20, 10


def curve_entries(
    evidence: Evidence, ranked: RankedStrata, accepted: VerdictSample, judged: JudgedStrata | None = None
) -> list[dict[str, Any]]:
    """Return a curve for each cell with a known population, and for each LM and setting.

    With a judge, points have the key `judge`.
    """
    known_strata = np.flatnonzero((ranked.population > 0) & (ranked.last > 0))
    entries = []
    for number, key in enumerate(evidence.cells):
        strata = known_strata[evidence.cell_of_stratum[known_strata] == number]
        if len(strata):
            entries.append({
                **key._asdict(),
                "population": int(ranked.population[strata].sum()),
                "sizes": list(_sizes(evidence, ranked, strata, judged)),
                **_by_score(evidence, accepted, strata, ranked, judged),
            })  # fmt: skip
    side_of_stratum = evidence.side_of_cell[evidence.cell_of_stratum[known_strata]]
    for number, (model, setting) in enumerate(evidence.sides):
        strata = known_strata[side_of_stratum == number]
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
    """Yield the accuracies of increasingly large top-ranked parts of the harvests, up to whole harvests.

    Parts in which a stratum has no verdict are omitted.
    """
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
    """Return the accuracy in bins of scores, and the largest top-ranked part with precision TARGET, or None.

    accepted: evidence for the verdict ACCEPTED, by draw (D,). With a judge, the result also has the judge-assisted
    part.
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


# Cuts of the paper's Table 2


def sizes_of_cuts(harvests: Sequence[SampledHarvest]) -> dict[str, dict[int, int]]:
    """Return {cut: {job: number of tuples}}. Jobs whose cut exceeds the population are missing."""
    by_base = {
        f"base:{base}": {
            harvest.job: harvest.kept_by_base[base] for harvest in harvests if base in harvest.kept_by_base
        }
        for base in BASES
    }
    return by_base | {
        "share:0.5": {harvest.job: ceil(harvest.population / 2) for harvest in harvests},
        "all": {harvest.job: harvest.population for harvest in harvests},
    }


def cut_entries(evidence: Evidence, ranked: RankedStrata, judged: JudgedStrata | None = None) -> list[dict[str, Any]]:
    """Return `cuts` of docs/report-json.md: an entry per LM, setting, and cut.

    Harvests whose cut exceeds the population are omitted.
    """
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


MOST_PANELS = 12  # maximum number of panels shown by default


def side_curves(document: Document) -> list[Mapping[str, Any]]:
    """Return the curves of LMs and settings over all their relations."""
    return [curve for curve in document.get("curves", []) if curve["relation"] is None and curve["sizes"]]


def scored_cells(document: Document) -> list[Mapping[str, Any]]:
    return [curve for curve in document.get("curves", []) if curve["scores"]]


def scored_relations(document: Document) -> list[str]:
    """Return the relations of all cells with scores, sorted. An abridged document has a separate key for them."""
    names = document.get("scored_relations")
    return sorted({curve["relation"] for curve in scored_cells(document)}) if names is None else names


def calibration_curves(document: Document) -> list[Mapping[str, Any]]:
    """Return the cells that a figure of scores shows: all cells if there is one relation, otherwise the first few."""
    cells = scored_cells(document)
    return cells if len({cell["relation"] for cell in cells}) == 1 else cells[:MOST_PANELS]


def calibration_left_out(document: Document) -> str:
    """Return a text that says how many cells the figure shows. It is empty if the figure shows all cells."""
    n_shown, n_cells = len(calibration_curves(document)), document.get("n_scored_cells", len(scored_cells(document)))
    return "" if n_shown == n_cells else f"{n_shown} of {n_cells:,} cells shown"


def scores_by_relation(document: Document) -> dict[str, Document]:
    """Return a document for each relation that contains only the data for the figure of the relation's scores."""
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for cell in scored_cells(document):
        cells.setdefault(cell["relation"], []).append({**cell, "sizes": []})
    sides = [{key: total[key] for key in ("model", "setting")} for total in document["totals"]]
    return {
        relation: {"totals": sides, "curves": of_relation, "n_scored_cells": len(of_relation)}
        for relation, of_relation in cells.items()
    }


def size_curve_table(document: Document) -> Table:
    """Return the table of accuracy by number of top-ranked tuples, from one sample."""
    keys = ("share", "size", "n", "accuracy", "low", "high")
    columns = (Column("share", Kind.SHARE), *of_kind(Kind.COUNT, "tuples", "judged"))
    return Table("size-curves", "Accuracy by number of top-ranked tuples", *_points(document, "sizes", keys, columns))


def calibration_table(document: Document) -> Table:
    """Return the table of accuracy by score, in bins with equal numbers of judged tuples."""
    keys = ("score_low", "score_high", "n", "accuracy", "low", "high")
    columns = (*of_kind(Kind.NUMBER, "score from", "to"), Column("judged", Kind.COUNT))
    return Table("calibration", "Accuracy by score", *_points(document, "scores", keys, columns))


def _points(
    document: Document, part: str, keys: Iterable[str], columns: Iterable[Column]
) -> tuple[tuple[Column, ...], tuple[Row, ...]]:
    """Return the columns of a table of curves, and a row for each point."""
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
    """Return the table of size, accuracy, and novelty of the KG of each LM and setting at several cuts."""
    compared = document.get("novelty") or {}
    reference = compared.get("reference")
    novelty = {(total["model"], total["setting"]): total for total in compared.get("totals", [])}
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
        "Accuracy of all tuples inside the cut, with equal weights and 95 % intervals. It is estimated from "
        "the judged tuples inside the cut, and is undefined if a part of a harvest inside the cut has no verdict.",
        "base-k contains the tuples that are at least a tenth as probable as the k-th tuple of their relation. "
        "Relations whose cut exceeds the population are excluded.",
        f"Novelty: share of entities of the whole harvest that {reference['name']} does not contain."
        if reference
        else "Novelty requires a reference KG. This report has none.",
    )
    return Table("sizes", "Size and accuracy of the KG", columns, tuple(rows), notes)


# Sample-size planning


PLAN_METHOD_PARTS = {
    "planned_statements": (
        "Sample-size planning: the number of statements that halves an interval takes the finite population of each "
        "stratum into account. For an infinite population, it is four times the current number of statements."
    ),
    "planned_relations": (
        "Sample-size planning for comparisons: the number of relations that distinguishes two sides is calculated for "
        "the paired t test with power .8 and a two-sided level of .05 divided by the number of comparisons. It is at "
        "least the minimum number of relations that the sign-flip test requires."
    ),
}
NO_INTERVAL = "There is no interval yet."
NO_DIFFERENCE = "The sides do not differ in the judged statements, so no number of relations is sufficient."
NO_SPREAD = "The difference is the same in all relations, so its spread is unknown."
TOO_MANY = "More than 10,000 relations would be required."
ALL_JUDGED = "All tuples are judged: the interval for these relations has zero width."
SHRINK = 0.5


def plan_entry(
    evidence: Evidence,
    totals: Sequence[Mapping[str, Any]],
    cells: Sequence[Cell],
    comparisons: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return `planner` of docs/report-json.md."""
    n_complete = np.count_nonzero(evidence.is_complete)
    n_judgments = evidence.counts[evidence.is_complete].sum()
    # The mean number of judgments per statement with a verdict.
    judgments_each = float(n_judgments / n_complete) if n_complete else evidence.judgments_per_task
    families = Counter(comparison.get("planned") for comparison in comparisons)
    return {
        "totals": [_plan_total(total, cells, judgments_each) for total in totals],
        "comparisons": [
            _plan_comparison(comparison, families[comparison.get("planned")]) for comparison in comparisons
        ],
    }


def _plan_total(total: Mapping[str, Any], cells: Sequence[Cell], judgments_each: float) -> dict[str, Any]:
    """Return the sample size that halves the interval for these relations.

    It reduces the variance of each stratum to a quarter.
    """
    side = {"model": total["model"], "setting": total["setting"]}
    low, high = total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
    if low is None or low == high:
        empty = dict.fromkeys(("half_width", "target", "statements", "judgments", "relations"))
        return {**side, **empty, "reason": NO_INTERVAL if low is None else ALL_JUDGED, "sentence": None}
    half_width = (high - low) / 2
    statements = sum(
        statements_to_shrink(ceil(n - 1e-9), int(population), SHRINK)
        for cell in cells
        if (cell.key.model, cell.key.setting) == tuple(side.values())
        for n, population in zip(cell.samples[ACCEPTED].n, cell.population, strict=True)
    )
    judgments = round(statements * judgments_each)
    relations = relations_for_interval(total["n_relations"], SHRINK) if total["n_relations"] > 1 else None
    name = " · ".join(filter(None, side.values())) or "The side"
    more = f"; to halve the interval for similar relations, use {relations} relations" if relations else ""
    return {
        **side,
        "half_width": half_width,
        "target": half_width * SHRINK,
        "statements": statements,
        "judgments": judgments,
        "relations": relations,
        "reason": None,
        "sentence": (
            f"{name}: to halve the interval (now ± {in_points(half_width)}) for these relations, judge about "
            f"{statements:,} statements in total ({judgments:,} judgments, {judgments_each:.3g} per statement){more}."
        ),
    }


def _plan_comparison(comparison: Mapping[str, Any], n_comparisons: int) -> dict[str, Any]:
    common = "model" if comparison["kind"] == "settings" else "setting"
    fewest = fewest_relations(n_comparisons)
    entry = {name: comparison[name] for name in ("kind", common, "a", "b")}
    entry |= {"n_comparisons": n_comparisons, "fewest_relations": fewest}
    spread = float(np.std([relation["difference"] for relation in comparison["relations"]], ddof=1))
    if comparison["difference"] == 0 or spread < 1e-9:
        reason = NO_DIFFERENCE if comparison["difference"] == 0 else NO_SPREAD
        return {**entry, "relations": None, "reason": reason, "sentence": None}
    relations = relations_to_tell_apart(comparison["difference"], spread, n_comparisons)
    if relations is None:
        return {**entry, "relations": None, "reason": TOO_MANY, "sentence": None}
    holm = f" (Holm-adjusted for {n_comparisons} comparisons)" if n_comparisons > 1 else ""
    sentence = (
        f"{comparison['a']} and {comparison['b']}: with {relations} relations, a difference of "
        f"{in_points(comparison['difference'])} with the current spread is detected{holm} in four of five rounds."
    )
    if comparison["n_relations"] < fewest:
        sentence += f" With fewer than {fewest} relations, only a test over statements can detect a difference."
    return {**entry, "relations": relations, "reason": None, "sentence": sentence}


def plan_table(document: Document) -> Table:
    plans = document.get("planner") or {}
    keys = ("half_width", "target", "statements", "judgments", "reason")
    rows = [
        Row((lm_and_setting(total), *(total[key] for key in keys)), about=about_side(total))
        for total in plans.get("totals", [])
    ]
    columns = (
        Column("LM and setting"),
        *of_kind(Kind.SHARE, "current half-width", "target half-width"),
        *of_kind(Kind.COUNT, "statements", "judgments"),
        Column("reason"),
    )
    sentences = [plan["sentence"] for part in ("totals", "comparisons") for plan in plans.get(part, [])]
    return Table("plan", "Sample-size planning", columns, tuple(rows), tuple(filter(None, sentences)))
