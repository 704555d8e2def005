"""The paper's tables of accuracy and rejection: by relation (Table 5), by setting (Table 3) and by LM (Table 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.rendering.tables import Column, Document, Kind, Rates, Row, Table, about_side, name_of
from kgharvest.pages.number_format import DASH, counted, share, share_with_interval

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
        "Accepted / rejected: shares of the statements with a verdict; the rest to 1 is undecided. "
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
    Column("Acc", Kind.SHARE),
    Column("low", Kind.SHARE),
    Column("high", Kind.SHARE),
    Column("Rej", Kind.SHARE),
    Column("relations", Kind.COUNT),
    Column("statements", Kind.COUNT),
)
MACRO_NOTE = "Acc, Rej: means over relations."
INTERVAL_NOTE = "low, high: 95 % interval of Acc for relations like these."
NO_INTERVAL_NOTE = "There is no interval for relations like these: that takes two relations with a verdict."


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
