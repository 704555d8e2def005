"""Tables in the shape of the paper's Tables 2 to 5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.rendering.tables import DASH, Column, Document, Kind, Rates, Row, Table, interval, name_of, short

INCOMPLETE = "†"
NO_COMPARISON = (
    "Nothing is compared: that takes two settings of an LM, or two LMs in a setting, with verdicts on the same two "
    "relations or more."
)

CELL_KEYS = (
    "n", "accepted", "rejected", "undecided", "incomplete",
    "accuracy", "accuracy_low", "accuracy_high", "rejection", "rejection_low", "rejection_high",
)  # fmt: skip
COUNTS = {"n", "accepted", "rejected", "undecided", "incomplete"}


def rates_of(cell: Mapping[str, Any]) -> Rates:
    mark = INCOMPLETE if cell.get("incomplete") else ""
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
        yield f"{INCOMPLETE} Some statements of this cell are incomplete and left out of its shares."
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
        f"percent agreement: {short(document['percent_agreement'])}."
    )
    for note in document["notes"]:
        yield f"* {note}" if note.startswith("Demonstrator:") else note


def agreement_in_words(alpha: Mapping[str, Any]) -> str:
    """Return alpha with its interval, or why there is none."""
    if alpha["value"] is None:
        return f"not defined ({alpha['reason'].rstrip('.')})"
    ends = interval(alpha["low"], alpha["high"])
    statements = "statement" if alpha["n_units"] == 1 else "statements"
    return f"{short(alpha['value'])}{f' ({ends})' if ends else ''} over {alpha['n_units']:,} {statements}"


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
            about=_side(total),
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
            about=_side(total),
        )
        for total in totals
    ]
    columns = (Column("setting"), Column("LM"), *MACRO_COLUMNS)
    return Table("lms", "LMs, on average over relations", columns, tuple(rows), _macro_notes(document))


def _side(part: Mapping[str, Any]) -> dict[str, str | None]:
    return {"model": part["model"], "setting": part["setting"]}


def _macro_notes(document: Document) -> tuple[str, ...]:
    has_interval = any(total.get("macro_accuracy_low") is not None for total in document["totals"])
    return (f"{MACRO_NOTE} {INTERVAL_NOTE}" if has_interval else f"{MACRO_NOTE} {NO_INTERVAL_NOTE}",)


def _with_peers(totals: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return the totals whose value of `key` another one has too."""
    values = [total[key] for total in totals]
    return [total for total in totals if values.count(total[key]) > 1]


# -- Table 2: size of the KG -------------------------------------------------------------------------------------------


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
        ), about=_side(cut))
        for cut in document.get("cuts", [])
    ]  # fmt: skip
    columns = (
        Column("LM"),
        Column("setting"),
        Column("cut"),
        Column("tuples", Kind.COUNT),
        Column("relations", Kind.COUNT),
        Column("accuracy", Kind.SHARE),
        Column("low", Kind.SHARE),
        Column("high", Kind.SHARE),
        Column("judged", Kind.COUNT),
        Column("novelty", Kind.SHARE),
    )
    notes = (
        "Accuracy of all tuples that the cut keeps, each weighing the same, estimated from the judged ones among them; "
        "95 % interval.",
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


# -- every cell as a row -----------------------------------------------------------------------------------------------


def cell_list(document: Document) -> Table:
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
