"""The tables behind the curves."""

from __future__ import annotations

from evaluation.rendering.tables import Column, Document, Kind, Row, Table, name_of

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
