"""Accuracies from people's verdicts and a judge's labels together: of cells, averages, best parts and cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.arrays import Evidence
from evaluation.evidence.judged_population import JudgedStrata
from evaluation.rendering.documents import Document, about_side, name_of
from kgharvest.pages.number_format import counted, share
from kgharvest.statistics.arrays import ACCEPTED, Codes, Floats
from kgharvest.statistics.judge_assisted import (
    CALLED_TRUE,
    GROUPS,
    POST_STRATIFIED,
    AssistedRate,
    prediction_powered_mean,
)
from kgharvest.statistics.sides import Side
from kgharvest.tables.table import Column, Kind, Row, Table

METHOD = (
    "With a judge: people's verdicts post-stratified by what an LM says of every tuple that they were drawn from; they "
    "alone tell what is true, so the estimate holds whatever the LM is worth. Interval of a simple sample: the "
    "shortest that holds 95 % of the beta-binomial posterior of what was not drawn (Jeffreys's prior in each group), "
    "convolved over groups; of several strata, and of averages: the exact one over all groups. People's verdicts stand "
    "alone where a group should have fewer than three draws, and for an LM and setting of several strata whose "
    "verdicts do not differ between the judge's labels (F test). PPI++ (Angelopoulos, Duchi and Zrnic 2023), for "
    "comparison: normal interval, weight from the gradients."
)
METHOD_NAMES = {POST_STRATIFIED: "with the judge"}
KEYS = ("accuracy", "accuracy_low", "accuracy_high")


# -- entries of the document -------------------------------------------------------------------------------------------


def with_assisted_rates(
    entries: Sequence[dict[str, Any]], evidence: Evidence, judged: JudgedStrata | None
) -> list[dict[str, Any]]:
    """Return the entries of cells, in their order, with `judge`; as they are where there is no judge."""
    if judged is None:
        return list(entries)
    return [
        {**entry, "judge": _cell_entry(strata, evidence, judged)}
        for entry, strata in zip(entries, _strata_of_cells(evidence), strict=True)
    ]


def _strata_of_cells(evidence: Evidence) -> list[Codes]:
    return [np.flatnonzero(evidence.cell_of_stratum == number) for number in range(len(evidence.cells))]


def _cell_entry(strata: Codes, evidence: Evidence, judged: JudgedStrata) -> dict[str, Any]:
    last = judged.ranked.last[strata]
    sample = judged.sample(strata, last)
    hits = sample.accepted.n_hits.sum(axis=0)
    population = sample.population.sum(axis=0)
    return {
        **_judge(judged, strata),
        **_rate(judged.rate(strata, last)),
        "judge_alone": _judge_alone(strata, judged),
        "prediction_powered": _prediction_powered(strata, population, evidence, judged),
        "groups": [
            {"label": label, "population": int(size), "drawn": int(drawn), "accepted": float(n_hits)}
            for label, size, drawn, n_hits in zip(GROUPS, population, sample.drawn.sum(axis=0), hits, strict=True)
        ],
    }


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
    """Return the share that the judge calls true: what it would be if people were not asked.

    None where it was not asked about every tuple.
    """
    population = judged.sample(strata, judged.ranked.last[strata]).population.sum(axis=0)
    size = int(population.sum())
    return int(population[CALLED_TRUE]) / size if size and judged.is_labelled(strata) else None


def _prediction_powered(
    strata: Codes, population: Codes, evidence: Evidence, judged: JudgedStrata
) -> dict[str, float | None] | None:
    """Return PPI++ of a simple sample; None of several strata, and where nobody decided anything or labels lack."""
    drawn = np.flatnonzero(np.isin(evidence.draws.stratum, strata) & evidence.is_complete[evidence.draws.task])
    if len(strata) > 1 or not len(drawn) or not population.any() or not judged.is_labelled(strata):
        return None
    is_accepted = evidence.verdict[evidence.draws.task[drawn]] == ACCEPTED
    is_called_true = judged.tuples.group_of_draw[drawn] == CALLED_TRUE
    of_all = np.repeat([1.0, 0.0], [population[CALLED_TRUE], population.sum() - population[CALLED_TRUE]])
    rate = prediction_powered_mean(is_accepted, is_called_true, of_all)
    return {"value": rate.value, "low": rate.low, "high": rate.high}


def with_assisted_averages(
    totals: Sequence[dict[str, Any]], evidence: Evidence, judged: JudgedStrata | None
) -> list[dict[str, Any]]:
    """Return the entries of LMs and settings with `judge`: the mean over relations, and of all tuples alike."""
    if judged is None:
        return list(totals)
    strata = _strata_of_cells(evidence)
    return [
        {
            **total,
            "judge": _average_entry(
                [
                    own
                    for key, own in zip(evidence.cells, strata, strict=True)
                    if key.side == Side(total["model"], total["setting"])
                ],
                evidence,
                judged,
            ),
        }
        for total in totals
    ]


def _average_entry(cells: Sequence[Codes], evidence: Evidence, judged: JudgedStrata) -> dict[str, Any]:
    last, every = judged.ranked.last, np.concatenate(cells)
    known = [strata for strata in cells if judged.rate(strata, last[strata]).rate.value is not None]
    weighted = judged.rate(every, last[every])
    alone = [_judge_alone(strata, judged) for strata in known]
    return {
        **_judge(judged, every),
        **_rate(macro_rate(known, evidence, judged)),
        "n_relations": len(known),
        "judge_alone": None if None in alone or not alone else float(np.mean(np.array(alone, dtype=np.float64))),
        **{f"weighted_{key}": value for key, value in zip(KEYS, weighted.rate[:3], strict=True)},
    }


def macro_rate(cells: Sequence[Codes], evidence: Evidence, judged: JudgedStrata) -> AssistedRate:
    """Return the mean accuracy of cells, given by their strata, each weighing the same."""
    strata = np.concatenate([*cells, np.zeros(0, dtype=np.int64)])
    return judged.rate(strata, judged.ranked.last[strata], macro_weights(cells, evidence))


def macro_weights(cells: Sequence[Codes], evidence: Evidence) -> Floats:
    """Return the weights of the strata of cells that weigh the same."""
    sizes = [evidence.population_of_stratum[strata] for strata in cells]
    return np.concatenate([*(size / size.sum() / len(cells) for size in sizes), np.zeros(0)])


def assisted_point(judged: JudgedStrata | None, strata: Codes, last_rank: Codes) -> dict[str, Any]:
    """Return `judge` of a cut or of a point of a curve; nothing where there is no judge."""
    return {} if judged is None else {"judge": _rate(judged.rate(strata, last_rank))}


# -- tables ------------------------------------------------------------------------------------------------------------

AVERAGE = "average"
PEOPLE, WITH_JUDGE, PPI = "people alone", "with the judge", "PPI++"
INTERVAL = ("Acc", "low", "high")
NOTE = (
    "With the judge: people's verdicts, weighed by how many tuples of the harvest the LM puts into each group; an LM "
    "that knows nothing changes nothing. As many as: statements that people alone would have needed for such an "
    "interval. Judge alone: the share that the LM calls true, which no interval makes right."
)
NOTE_ON_ALONE = (
    "People alone stand where a group of the judge's labels should have fewer than three draws, where the judge has "
    "not answered about every tuple, and where verdicts on an LM and setting do not differ between its labels."
)


def assisted_table(document: Document) -> Table:
    """Each cell and average by people alone, with the judge, by the judge alone, and by PPI++."""
    of_cells = [
        _row(cell, cell["relation"], KEYS, cell["judge"].get("prediction_powered"))
        for cell in document["cells"]
        if cell.get("judge")
    ]
    keys = ("macro_accuracy", "macro_accuracy_these_low", "macro_accuracy_these_high")
    averages = [
        _row(total, AVERAGE, keys)._replace(is_summary=True) for total in document["totals"] if total.get("judge")
    ]
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        Column("statements", Kind.COUNT),
        Column("as many as", Kind.COUNT),
        *(Column(title, Kind.SHARE, PEOPLE) for title in INTERVAL),
        *(Column(title, Kind.SHARE, WITH_JUDGE) for title in INTERVAL),
        Column("method"),
        Column("judge alone", Kind.SHARE),
        *(Column(title, Kind.SHARE, PPI) for title in INTERVAL),
    )
    notes = tuple(_notes(document)) if of_cells else ()
    return Table("assisted", "Accuracy with a judge", columns, (*of_cells, *averages), notes)


def _row(entry: Mapping[str, Any], relation: str, keys: Sequence[str], powered: Mapping[str, Any] | None = None) -> Row:
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
            *((powered or {}).get(key) for key in ("value", "low", "high")),
        ),
        about=about_side(entry) | {"relation": entry.get("relation")},
    )


def _notes(document: Document) -> list[str]:
    judge = document["judge"]
    tuples = counted(judge["n_labelled"], "tuple")
    notes = [f"Judge: {judge['model']} (run {judge['run']}), {tuples} labelled. {NOTE}"]
    averages = [total["judge"] for total in document["totals"]]
    if any(cell["judge"]["method"] != POST_STRATIFIED for cell in document["cells"]):
        notes.append(NOTE_ON_ALONE)
    saved = sum((average["effective_labels"] or 0) for average in averages)
    asked = sum(total["n"] for total in document["totals"])
    if saved > asked:
        notes.append(f"For the averages, {asked:,} statements tell as much as {saved:,} would by people alone.")
    return notes


def assisted_cut_table(document: Document) -> Table:
    """Accuracy of cuts and of the best parts of each harvest, by people alone and with the judge."""
    of_cuts = [
        _part_row("all", cut, cut["cut"], cut["size"], cut) for cut in document.get("cuts", []) if cut.get("judge")
    ]
    of_curves = [
        _part_row(curve["relation"] or "all", curve, f"best {share(point['share'])}", point["size"], point)
        for curve in document.get("curves", [])
        for point in curve["sizes"]
        if point.get("judge")
    ]
    columns = (
        *map(Column, ("relation", "LM", "setting", "part")),
        Column("tuples", Kind.COUNT),
        Column("judged", Kind.COUNT),
        *(Column(title, Kind.SHARE, PEOPLE) for title in INTERVAL),
        *(Column(title, Kind.SHARE, WITH_JUDGE) for title in INTERVAL),
        Column("as many as", Kind.COUNT),
    )
    return Table("assisted-cuts", "Accuracy of cuts with a judge", columns, (*of_cuts, *of_curves))


def _part_row(relation: str, part: Mapping[str, Any], name: str, size: int | None, of: Mapping[str, Any]) -> Row:
    judge = of["judge"]
    return Row((
        relation, name_of(part["model"]), name_of(part["setting"]), name, size, of["n"],
        *(of[key] for key in ("accuracy", "low", "high")), *(judge[key] for key in KEYS), judge["effective_labels"],
    ))  # fmt: skip
