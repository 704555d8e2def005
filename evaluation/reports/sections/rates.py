"""Accuracy and rejection per cell, and per LM and setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evaluation.evidence.cells import Cell, joint_rate
from evaluation.evidence.evidence import Evidence
from evaluation.rendering.documents import Document, about_side, name_of
from kgharvest.pages.number_format import DASH, counted, share, share_with_interval
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, REJECTED, UNDECIDED, VERDICTS, Codes
from kgharvest.statistics.rates import (
    EMPTY_STRATUM,
    NOTHING_COUNTED,
    UNKNOWN_POPULATION,
    Rate,
    VerdictSample,
    macro_average,
    macro_interval,
    unknown_rate,
)
from kgharvest.tables.table import Column, Kind, Rates, Row, Table, of_kind

METHOD = (
    "Accuracy and rejection: of the tuples that a cell's statements were drawn from, estimated from those with a "
    "verdict; strata of ranks weigh as many tuples as they hold. 95 % intervals are exact for the finite population: "
    "Blaker's, of the hypergeometric distribution, convolved over strata; what was judged is known, so that a census "
    "has no width. Where nobody knows how many tuples the statements were drawn from: Blaker's binomial interval. "
    "Macro averages: mean over relations; interval for relations like these: Student's t over relations; for these "
    "relations: the exact interval of that mean, each relation weighing the same. All statements together: not "
    "weighted by the sizes of the harvests that they were drawn from, and therefore without an interval; weighted "
    "accuracy: each relation weighs as many tuples as it was drawn from."
)


def cell_entries(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    entries = []
    for cell in cells:
        rates = [cell.rate_of(verdict) for verdict in (ACCEPTED, REJECTED, UNDECIDED)]
        limits: dict[str, float | None] = {}
        if cell.counts[:, INCOMPLETE].any():  # accuracy if all open statements were rejected, or accepted
            names = ("accuracy_if_rejected", "accuracy_if_accepted")
            for name, n_hits in zip(names, (cell.accepted_at_least, cell.accepted_at_most), strict=True):
                sample = VerdictSample.of_complete(cell.counts.sum(axis=1), n_hits)
                limits[name] = replace(cell, samples=[sample]).rate_of(ACCEPTED).value
        entries.append({
            **cell.key._asdict(),
            **_counts(cell.counts),
            **_shares(*rates),
            "weighting": "stratified" if cell.is_stratified else "simple",
            "population": int(cell.population.sum()) or None,
            "reason": rates[0].reason,
            **limits,
            "strata": list(_strata(cell)),
        })  # fmt: skip
    return entries


def _counts(counts: Codes) -> dict[str, int]:
    numbers = dict(zip(VERDICTS, counts.sum(axis=0).tolist(), strict=True))
    return {"n": sum(numbers.values()) - numbers["incomplete"], **numbers}


def _shares(accuracy: Rate, rejection: Rate, undecided: Rate) -> dict[str, float | None]:
    undecided_share = {"undecided_share": undecided.value}
    return _with_interval("accuracy", accuracy) | _with_interval("rejection", rejection) | undecided_share


def _with_interval(name: str, rate: Rate) -> dict[str, float | None]:
    return {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}


def _strata(cell: Cell) -> Iterable[dict[str, Any]]:
    accepted = cell.samples[ACCEPTED]
    for number, (rank_from, rank_to) in enumerate(cell.ranks):
        counts, population = cell.counts[number : number + 1], int(cell.population[number]) or None
        entry: dict[str, Any] = {
            "rank_from": rank_from,
            "rank_to": rank_to,
            "population": population,
            **_counts(counts),
        }
        if judge_label := cell.judge_labels[number]:
            entry["judge_label"] = judge_label
        if entry["incomplete"]:
            entry["completed"] = {
                name: float(column[number]) for name, column in zip(accepted._fields, accepted, strict=True)
            }
        yield entry


def total_entries(evidence: Evidence, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return an entry per LM and setting over its relations.

    Its averages answer three questions (docs/report-json.md).
    """
    entries = []
    for side in evidence.sides:
        own = [cell for cell in cells if cell.key.side == side]
        counts = np.sum([cell.counts.sum(axis=0) for cell in own], axis=0, keepdims=True)
        averages: dict[str, Any] = {}
        for name, verdict in (("accuracy", ACCEPTED), ("rejection", REJECTED)):
            known = [value for cell in own if (value := cell.rate_of(verdict).value) is not None]
            low, high = macro_interval(known)
            averages |= {f"macro_{name}": macro_average(known), f"macro_{name}_low": low, f"macro_{name}_high": high}
            if verdict == ACCEPTED:
                these = macro_of_these(own)
                averages |= {"macro_accuracy_these_low": these.low, "macro_accuracy_these_high": these.high}
                n_relations = len(known)
        weighted = joint_rate(own, ACCEPTED) if _population(own) else unknown_rate(UNKNOWN_POPULATION)
        if weighted.reason == EMPTY_STRATUM:
            weighted = weighted._replace(reason="A relation has no verdict yet.")
        entries.append({
            "model": side.model,
            "setting": side.setting,
            **_counts(counts),
            **_shares(*(_of_all_statements(own, verdict) for verdict in (ACCEPTED, REJECTED, UNDECIDED))),
            **averages,
            "n_relations": n_relations,
            **_with_interval("weighted_accuracy", weighted),
            "population": _population(own),
            "reason": weighted.reason,
        })  # fmt: skip
    return entries


def _of_all_statements(cells: Sequence[Cell], verdict: int) -> Rate:
    """Return a verdict's share of all statements alike: several cells, unequally sampled, are no sample of anything."""
    if len(cells) == 1:
        return cells[0].rate_of(verdict)
    n, n_hits = (sum(float(cell.samples[verdict][part].sum()) for cell in cells) for part in (0, 1))
    return Rate(n_hits / n, None, None) if n else unknown_rate(NOTHING_COUNTED)


def _population(cells: Sequence[Cell]) -> int | None:
    populations = np.concatenate([cell.population for cell in cells])
    return int(populations.sum()) if populations.all() else None


def macro_of_these(cells: Sequence[Cell]) -> Rate:
    """Return the mean accuracy of these very cells, each weighing the same; those without one do not take part."""
    known = [cell for cell in cells if cell.rate_of(ACCEPTED).value is not None]
    if not known:
        return unknown_rate(NOTHING_COUNTED)
    weights = np.concatenate([cell.part_of_strata / len(known) for cell in known])
    return joint_rate(known, ACCEPTED, weights=weights)


# -- tables -----------------------------------------------------------------------------------------------------------


INCOMPLETE_MARK = "†"
NO_COMPARISON = (
    "Nothing is compared: that takes two settings of an LM, or two LMs in a setting, with verdicts on the same two "
    "relations or more."
)


def rates_of(cell: Mapping[str, Any]) -> Rates:
    mark = INCOMPLETE_MARK if cell.get("incomplete") else ""
    return Rates(cell["accuracy"], cell["rejection"], cell["accuracy_low"], cell["accuracy_high"], cell["n"], mark)


def macro_rates_of(total: Mapping[str, Any]) -> Rates:
    low, high = total.get("macro_accuracy_low"), total.get("macro_accuracy_high")
    return Rates(total["macro_accuracy"], total["macro_rejection"], low, high, total["n"])


def interval_of_average(total: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the interval of a mean for relations like these; of the one relation itself where there is no other."""
    if total["n_relations"] == 1:
        return total.get("macro_accuracy_these_low"), total.get("macro_accuracy_these_high")
    return total.get("macro_accuracy_low"), total.get("macro_accuracy_high")


def demonstrator_mark(document: Document, model: str | None) -> str:
    """Return the name of an LM as tables show it: a demonstrator's with an asterisk."""
    return name_of(model) + ("*" if model in document.get("demonstrators", []) else "")


# -- Table 5: relation x LM x setting ----------------------------------------------------------------------------------


def cells_by_relation(document: Document) -> list[tuple[str, list[Mapping[str, Any] | None]]]:
    """Return each relation with its cells in the order of the totals, None where it was not sampled."""
    sides = _sides(document)
    cells = {(cell["relation"], cell["model"], cell["setting"]): cell for cell in document["cells"]}
    relations = sorted({cell["relation"] for cell in document["cells"]})
    return [(relation, [cells.get((relation, *side)) for side in sides]) for relation in relations]


def _sides(document: Document) -> list[tuple[str | None, str | None]]:
    return [(total["model"], total["setting"]) for total in document["totals"]]


def relation_table(document: Document) -> Table:
    """Relations as rows, LM and setting as columns, averages over relations last."""
    rows = [Row((relation, *map(_rates, cells))) for relation, cells in cells_by_relation(document)]
    average = Row(("average", *map(macro_rates_of, document["totals"])), is_summary=True)
    columns = [
        Column(name_of(setting), Kind.RATES, demonstrator_mark(document, model)) for model, setting in _sides(document)
    ]
    return Table(
        "relations",
        "Accepted / rejected per relation, LM and setting",
        (Column("relation"), *columns),
        (*rows, average) if rows else (),
        tuple(_notes(document)),
    )


def _rates(cell: Mapping[str, Any] | None) -> Rates | None:
    return None if cell is None else rates_of(cell)


def _notes(document: Document) -> Iterable[str]:
    yield (
        "Accepted / rejected: estimated shares of the tuples that the statements were drawn from; the rest to 1 is "
        "undecided. "
        "Averages are over relations."
    )
    if any(cell["incomplete"] for cell in document["cells"]):
        yield (
            f"{INCOMPLETE_MARK} Some statements of this cell are incomplete; they count with the verdicts that their "
            "labels make likely."
        )
    for reason in sorted({cell["reason"] for cell in document["cells"] if cell.get("reason")}):
        yield f"{DASH} {reason}"
    if not document["comparisons"]:
        yield NO_COMPARISON
    yield (
        f"{document['n_judgments']:,} judgments, {document['n_complete']:,} of {document['n_tasks']:,} "
        "statements complete."
    )
    yield (
        f"Krippendorff's alpha: {agreement_in_words(document['alpha'])}; "
        f"without Unjudgeable: {agreement_in_words(document['alpha_without_unjudgeable'])}; "
        f"percent agreement: {share(document['percent_agreement'])}."
    )
    for note in document["notes"]:
        yield f"* {note}" if note.startswith("Demonstrator:") else note


def agreement_in_words(alpha: Mapping[str, Any]) -> str:
    """Return alpha with its interval, or why there is none."""
    if alpha["value"] is None:
        return f"not defined ({alpha['reason'].rstrip('.')})"
    value = share_with_interval(alpha["value"], alpha["low"], alpha["high"])
    return f"{value} over {counted(alpha['n_units'], 'statement')}"


# -- Tables 3 and 4: settings of an LM, LMs in a setting ---------------------------------------------------------------

MACRO_COLUMNS = (
    *of_kind(Kind.SHARE, "Acc", "low", "high", "Rej"),
    *of_kind(Kind.COUNT, "relations", "statements"),
)
MACRO_NOTE = "Acc, Rej: means over relations."
INTERVAL_NOTE = "low, high: 95 % interval of Acc for relations like these."
NO_INTERVAL_NOTE = "There is no interval for relations like these: that takes two relations of different accuracy."


def _macro_values(total: Mapping[str, Any]) -> tuple[Any, ...]:
    rates = macro_rates_of(total)
    return rates.accepted, rates.low, rates.high, rates.rejected, total["n_relations"], total["n"]


def setting_table(document: Document) -> Table:
    """The settings of each LM that was harvested in several; of every LM if none was."""
    totals = document["totals"]
    rows = [
        Row(
            (demonstrator_mark(document, total["model"]), name_of(total["setting"]), *_macro_values(total)),
            about=about_side(total),
        )
        for total in _with_peers(totals, "model") or totals
    ]
    columns = (Column("LM"), Column("setting"), *MACRO_COLUMNS)
    return Table("settings", "Settings, on average over relations", columns, tuple(rows), _macro_notes(document))


def model_table(document: Document) -> Table:
    """The LMs that were harvested in the same setting; empty if there is one LM."""
    totals = sorted(_with_peers(document["totals"], "setting"), key=lambda total: total["setting"] or "")
    rows = [
        Row(
            (name_of(total["setting"]), demonstrator_mark(document, total["model"]), *_macro_values(total)),
            about=about_side(total),
        )
        for total in totals
    ]
    columns = (Column("setting"), Column("LM"), *MACRO_COLUMNS)
    return Table("lms", "LMs, on average over relations", columns, tuple(rows), _macro_notes(document))


def _macro_notes(document: Document) -> tuple[str, ...]:
    has_interval = any(total.get("macro_accuracy_low") is not None for total in document["totals"])
    return (f"{MACRO_NOTE} {INTERVAL_NOTE}" if has_interval else f"{MACRO_NOTE} {NO_INTERVAL_NOTE}",)


def _with_peers(totals: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return the totals whose value of `key` another one has too."""
    values = [total[key] for total in totals]
    return [total for total in totals if values.count(total[key]) > 1]


# -- every cell as a row -----------------------------------------------------------------------------------------------


CELL_KEYS = (
    "n", "accepted", "rejected", "undecided", "incomplete",
    "accuracy", "accuracy_low", "accuracy_high", "rejection", "rejection_low", "rejection_high",
)  # fmt: skip
COUNTS = {"n", "accepted", "rejected", "undecided", "incomplete"}


def cell_table(document: Document) -> Table:
    rows = [
        Row((
            document["source"],
            cell["relation"],
            cell["model"],
            cell["setting"],
            *(cell.get(key) for key in CELL_KEYS),
        ))
        for cell in document["cells"]
    ]  # fmt: skip
    columns = (
        *map(Column, ("source", "relation", "model", "setting")),
        *(Column(key, Kind.COUNT if key in COUNTS else Kind.SHARE) for key in CELL_KEYS),
    )
    return Table("cells", "Every cell", columns, tuple(rows))
