"""Results that others have published, as printed, to be laid beside one's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from evaluation.evidence.arrays import CellKey, Side


@dataclass(frozen=True)
class PublishedTable:
    """Shares in [0, 1] of accepted and of rejected tuples, per cell and, on average over relations, per side."""

    title: str
    source: str
    note: str
    cells: dict[CellKey, tuple[float, float]]
    averages: dict[Side, tuple[float, float]]


def load_table5() -> PublishedTable:
    """Return Table 5 of the paper: 14 relations, RoBERTa-large in four settings and five LMs in setting multi."""
    table = json.loads((Path(__file__).parent / "table5.json").read_text(encoding="utf-8"))
    sides = [Side(column["model"], column["setting"]) for column in table["columns"]]
    cells = {
        CellKey(row["relation"], *side): tuple(shares)
        for row in table["rows"]
        for side, shares in zip(sides, row["cells"], strict=True)
    }
    averages = {side: tuple(shares) for side, shares in zip(sides, table["averages"], strict=True)}
    return PublishedTable(table["title"], table["source"], table["note"], cells, averages)
