"""Samples, the harvests that they were drawn from, and the prompts of these: `cells` of the block `conduct`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evaluation.rendering.documents import Document, name_of
from evaluation.reports.sections.rates import demonstrator_mark
from kgharvest.pages.number_format import counted
from kgharvest.tables.table import Column, Kind, Row, Table

MOST_CELLS = 60  # that people read one by one
MOST_PROMPTS = 200

SIZES = ("harvested", "kept", "left_out", "population", "drawn")
SIZE_COLUMNS = (
    Column("harvested", Kind.COUNT),
    Column("within cut", Kind.COUNT),
    Column("hidden", Kind.COUNT),
    Column("drawn from", Kind.COUNT),
    Column("drawn", Kind.COUNT),
)
SIZE_NOTE = (
    "hidden: by curation or, where the round leaves them out, with sensitive words. drawn: a simple random sample "
    "without replacement of each stratum of ranks"
)

Cell = Mapping[str, Any]


def cells_of(document: Document) -> Sequence[Cell]:
    cells: Sequence[Cell] = (document.get("conduct") or {}).get("cells", [])
    return cells


def sampling_table(document: Document) -> Table:
    """Cells as rows, LMs and settings where there are too many cells for people."""
    cells = cells_of(document)
    shown = cells if len(cells) <= MOST_CELLS else [_together(own) for own in _by_side(cells)]
    rows = [
        Row((cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), cell["cut"], *_sizes(cell)))
        for cell in shown
    ]
    columns = (*map(Column, ("relation", "LM", "setting", "cut")), *SIZE_COLUMNS)
    notes = (f"{SIZE_NOTE}, seed {document.get('seed')}.",)
    return Table("sampling", "Samples", columns, tuple(rows), notes)


def _sizes(cell: Cell) -> tuple[int | None, ...]:
    return tuple(cell[key] for key in SIZES)


def _by_side(cells: Sequence[Cell]) -> list[list[Cell]]:
    sides: dict[tuple[str | None, str | None], list[Cell]] = {}
    for cell in cells:
        sides.setdefault((cell["model"], cell["setting"]), []).append(cell)
    return list(sides.values())


def _together(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return all relations of one LM and setting as one row; a number is None if it is not known of one of them."""
    totals = {
        key: None if any(value is None for value in values) else sum(values)
        for key in SIZES
        if (values := [cell[key] for cell in cells])
    }
    relations = counted(len({cell["relation"] for cell in cells}), "relation")
    return {**cells[0], "relation": relations, "cut": _listed(cell["cut"] for cell in cells), **totals}


def _listed(values: Iterable[str | None]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def sampling_cell_table(document: Document) -> Table:
    rows = [
        Row((
            cell["relation"], cell["model"], cell["setting"], cell["cut"], *_sizes(cell),
            cell["n_strata"], cell["hidden"], cell["sensitive"], cell["job"],
        ))
        for cell in cells_of(document)
    ]  # fmt: skip
    columns = (
        *map(Column, ("relation", "LM", "setting", "cut")), *SIZE_COLUMNS, Column("strata", Kind.COUNT),
        Column("hidden now", Kind.COUNT), Column("sensitive now", Kind.COUNT), Column("harvest"),
    )  # fmt: skip
    return Table("sampling-cells", "The sample of every cell", columns, tuple(rows), (f"{SIZE_NOTE}.",))


# -- harvests ----------------------------------------------------------------------------------------------------------

MADE_BY = ("model", "setting", "origin", "revision", "dtype", "device", "code_version")


def harvest_table(document: Document) -> Table:
    """The LMs and how they were asked, a row for what is the same of all relations."""
    alike: dict[tuple[str | None, ...], list[Cell]] = {}
    for cell in cells_of(document):
        if cell["harvested"] is not None:
            alike.setdefault(tuple(cell[key] for key in MADE_BY), []).append(cell)
    rows = [
        Row((
            demonstrator_mark(document, model), setting, revision, dtype, device, len(cells),
            sum(cell["n_prompts"] for cell in cells), _span([cell["harvested_at"] for cell in cells]),
            "imported" if origin == "imported" else code_version,
        ), about={"model": model, "setting": setting})
        for (model, setting, origin, revision, dtype, device, code_version), cells in alike.items()
    ]  # fmt: skip
    columns = (
        *map(Column, ("LM", "setting", "revision", "dtype", "device")),
        Column("harvests", Kind.COUNT), Column("prompts", Kind.COUNT), Column("made"), Column("by code"),
    )  # fmt: skip
    return Table("harvests", "Harvests", columns, tuple(rows), ("A folder or an embedded LM has no revision.",))


def _span(times: Sequence[str | None]) -> str | None:
    days = sorted({at[:10] for at in times if at})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else None


def prompt_table(document: Document) -> Table:
    """The prompts with their weights; none of them where they are too many for people: the JSON has them all."""
    rows = [
        Row((cell["relation"], name_of(cell["model"]), name_of(cell["setting"]), prompt["weight"], prompt["text"]))
        for cell in cells_of(document)
        for prompt in cell["prompts"]
    ]
    columns = (*map(Column, ("relation", "LM", "setting")), Column("weight", Kind.SHARE), Column("prompt"))
    return Table("prompts", "Prompts with their weights", columns, tuple(rows) if len(rows) <= MOST_PROMPTS else ())


# -- pages -------------------------------------------------------------------------------------------------------------


def without_many_prompts(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the block `conduct` without prompts where they are too many for a table."""
    if entry is None:
        return None
    cells = entry["cells"]
    if sum(cell["n_prompts"] for cell in cells) > MOST_PROMPTS:
        cells = [{**cell, "prompts": []} for cell in cells]
    return {**entry, "cells": cells}
