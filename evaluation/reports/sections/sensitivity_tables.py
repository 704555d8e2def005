"""Tables of what changes under other rules, and without one annotator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.rendering.tables import Column, Document, Kind, Marked, Row, Table, name_of
from evaluation.reports.sections.quality_tables import common_about, common_of, side_of

WITHOUT_ONE = "without one annotator"
PLACES = "In brackets: the place among these rows, where it is another one."
CLAIMS = "± the sign is another one. ! p after Holm is on the other side of .05."


def _part(document: Document, name: str) -> list[Mapping[str, Any]]:
    return (document.get("sensitivity") or {}).get(name, [])


NOBODY = {
    **dict.fromkeys(("macro_accuracy", "rank", "difference", "p_holm"), ()),
    **dict.fromkeys(("changes", "sign_changes", "significance_changes"), ()),
    **dict.fromkeys(("low", "high", "n_changes")),
}


def _left_out(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an entry says of annotators left out; nothing in documents that list them among the rules."""
    return entry.get("left_out", NOBODY)


def _rule_columns(document: Document, kind: Kind) -> list[Column]:
    return [Column(rule["title"], kind) for rule in _part(document, "rules")]


# -- verdicts ----------------------------------------------------------------------------------------------------------


def rule_table(document: Document) -> Table:
    rows = [
        Row((rule["title"], *(rule[key] for key in ("n", "accepted", "rejected", "undecided", "reason"))))
        for rule in _part(document, "rules")
    ]
    counts = (Column(name, Kind.COUNT) for name in ("with a verdict", "accepted", "rejected", "undecided"))
    columns = (Column("rule"), *counts, Column("why not"))
    return Table("rules", "Verdicts under other rules", columns, tuple(rows), tuple(_adjudicated(document)))


def _adjudicated(document: Document) -> Iterable[str]:
    if n := document.get("n_adjudicated"):
        yield f"Adjudicated: the verdict is an expert's on {n:,} of {document['n_complete']:,} statements."


# -- accuracy ----------------------------------------------------------------------------------------------------------


def sensitivity_table(document: Document) -> Table:
    """The averages of each LM and setting under every rule; the place where it differs from the report's own."""
    rows = [
        Row(
            (side_of(total), *_marked(total), *_range(_left_out(total)["macro_accuracy"]), _n_moves(total)),
            about=_about(total),
        )
        for total in _part(document, "totals")
    ]
    columns = (
        Column("LM and setting"),
        *_rule_columns(document, Kind.SHARE),
        Column("lowest", Kind.SHARE, WITHOUT_ONE),
        Column("highest", Kind.SHARE, WITHOUT_ONE),
        Column("other place", Kind.COUNT, WITHOUT_ONE),
    )
    notes = (f"Accuracy, mean over relations. {PLACES}", *_adjudicated(document), *_left_out_in_words(document))
    return Table("sensitivity", "Accuracy under other rules", columns, tuple(rows), notes)


def _range(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else (None, None)


def _n_moves(total: Mapping[str, Any]) -> int | None:
    """Return how many annotators move the place; None where nobody was left out."""
    left_out = _left_out(total)
    return len(left_out["changes"]) if left_out["rank"] else None


def _left_out_in_words(document: Document) -> Iterable[str]:
    if n := len(_part(document, "left_out")):
        yield (
            f"Without one annotator: each of the {n:,} left out in turn; the lowest and the highest accuracy, and how "
            "many of them change the place."
        )
        yield (
            "A statement then has one judgment less, which alone moves accuracies: of three judgments two must say "
            "True, of two both. Places and signs are what to compare."
        )
    elif len(document["annotators"]) == 1:
        yield "A single annotator cannot be left out: nothing would be judged."


def _marked(total: Mapping[str, Any]) -> Iterable[float | Marked | None]:
    moved = set(total["changes"])
    for position, (value, rank) in enumerate(zip(total["macro_accuracy"], total["rank"], strict=True)):
        yield Marked(value, f"({rank})") if position in moved else value


def _about(part: Mapping[str, Any]) -> dict[str, str | None]:
    return {key: part.get(key) for key in ("relation", "model", "setting")}


def left_out_table(document: Document) -> Table:
    """Annotators as rows: what each of them decides."""
    totals = [{**total, **_left_out(total)} for total in _part(document, "totals")]
    accuracies = zip(*(_marked(total) for total in totals), strict=True)
    rows = [
        Row((each["annotator"], each["n_changed"], each["n"], *values), about={"annotator": each["annotator"]})
        for each, values in zip(_part(document, "left_out"), accuracies, strict=False)
    ]
    columns = (
        Column("left out"),
        Column("other verdicts", Kind.COUNT),
        Column("with a verdict", Kind.COUNT),
        *(Column(name_of(total["setting"]), Kind.SHARE, name_of(total["model"])) for total in totals),
    )
    notes = (
        "other verdicts: statements whose verdict is another, or gone, without this annotator. Accuracy, mean over "
        "relations; in brackets: the place among LMs and settings, where it is another one.",
    )
    return Table("left-out", "Accuracy without each annotator", columns, tuple(rows), notes)


def sensitive_cell_table(document: Document) -> Table:
    rows = [
        Row((
            cell["relation"], name_of(cell["model"]), name_of(cell["setting"]),
            *cell["accuracy"], *_left_out_of_cell(cell),
            len(cell["changes"]),
        ), about=_about(cell))
        for cell in _part(document, "cells")
    ]  # fmt: skip
    columns = (
        *map(Column, ("relation", "LM", "setting")),
        *_rule_columns(document, Kind.SHARE),
        Column("lowest", Kind.SHARE, WITHOUT_ONE),
        Column("highest", Kind.SHARE, WITHOUT_ONE),
        Column("other place", Kind.COUNT, WITHOUT_ONE),
        Column("rules with another place", Kind.COUNT),
    )
    return Table("sensitivity-cells", "Every cell under other rules", columns, tuple(rows))


def _left_out_of_cell(cell: Mapping[str, Any]) -> tuple[float | None, float | None, int | None]:
    low, high, n_changes = (_left_out(cell)[key] for key in ("low", "high", "n_changes"))
    return low, high, None if low is None else n_changes


# -- claims ------------------------------------------------------------------------------------------------------------


def sensitive_comparison_table(document: Document) -> Table:
    rows = [
        Row(
            (
                _contrast(each),
                *_differences(each),
                *_range(_left_out(each)["difference"]),
                *_n_turns(_left_out(each)),
            ),
            about=common_about(each),
        )
        for each in _part(document, "comparisons")
    ]
    columns = (
        Column("comparison"),
        *_rule_columns(document, Kind.POINTS),
        Column("lowest", Kind.POINTS, WITHOUT_ONE),
        Column("highest", Kind.POINTS, WITHOUT_ONE),
        Column("±", Kind.COUNT, WITHOUT_ONE),
        Column("!", Kind.COUNT, WITHOUT_ONE),
    )
    notes = [f"Difference in percentage points, first minus second. {CLAIMS}"]
    if _part(document, "left_out"):
        notes.append(
            "Without one annotator: the lowest and the highest difference, and how many annotators change its sign or "
            "significance."
        )
    return Table("sensitivity-comparisons", "Comparisons under other rules", columns, tuple(rows), tuple(notes))


def left_out_claim_table(document: Document) -> Table:
    """The annotators on whom a comparison hangs; no row where none does."""
    codes = [each["annotator"] for each in _part(document, "left_out")]
    rows = [
        Row((_contrast(comparison), codes[position], differences[position], _left_out(comparison)["p_holm"][position]),
            about={"annotator": codes[position]})
        for comparison in _part(document, "comparisons")
        if (differences := list(_differences(_left_out(comparison))))
        for position in _turning(_left_out(comparison))
    ]  # fmt: skip
    columns = (Column("comparison"), Column("without"), Column("difference", Kind.POINTS), Column("p (Holm)", Kind.P))
    return Table("left-out-comparisons", "Comparisons that turn without one annotator", columns, tuple(rows), (CLAIMS,))


def _turning(claims: Mapping[str, Any]) -> list[int]:
    return sorted({*claims["sign_changes"], *claims["significance_changes"]})


def _n_turns(claims: Mapping[str, Any]) -> tuple[int | None, int | None]:
    if not claims["difference"]:
        return None, None
    return len(claims["sign_changes"]), len(claims["significance_changes"])


def _contrast(comparison: Mapping[str, Any]) -> str:
    return f"{common_of(comparison)}: {comparison['a']} − {comparison['b']}"


def _differences(claims: Mapping[str, Any]) -> Iterable[float | Marked | None]:
    for position, difference in enumerate(claims["difference"]):
        turned = {"±": claims["sign_changes"], "!": claims["significance_changes"]}
        mark = " ".join(mark for mark, positions in turned.items() if position in positions)
        yield Marked(difference, mark) if mark else difference
