"""Table 5 as a heat map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import cos, radians, sin
from typing import Any, NamedTuple
from urllib.parse import urlencode

from evaluation.rendering.documents import Document, name_of, short_model, side_name, tuples_query
from evaluation.rendering.figures.drawing import (
    BOLD,
    CENTER,
    FONT_SIZE,
    MIDDLE,
    Drawing,
    Look,
    Off,
    Shape,
    Sheet,
    clipped,
    hidden,
    line,
    mark,
    paper_width,
    rect,
    text,
    widest,
)
from evaluation.reports.sections.rates import cells_by_relation, interval_of_average
from kgharvest.pages.number_format import DASH, counted, share, share_with_interval

MOST_LABELED = 80  # rows in a file; of more there is only their color
ROW, THIN_ROW = 24, 3.2  # pixels
HEAD = 40
NARROWEST, WIDEST, IN_FILES = 52, 180, 90  # pixels of a column
ROWS_OF_BLOCK = 40  # browsers skip blocks that are out of sight: there may be thousands of rows
ANGLE = 30  # degrees of column names in files that are wider than their columns


class Rates(NamedTuple):
    """A cell: accuracy, and the words of its tooltip."""

    accuracy: float
    words: str


Rows = Sequence[tuple[str, Sequence[Rates | None]]]


def rows_of(document: Document) -> Rows:
    """Return the relations with a cell per LM and setting, None without a rate; their average is last."""
    rows = [(relation, [_cell(cell) for cell in cells]) for relation, cells in cells_by_relation(document)]
    return [*rows, ("average", [_average(total) for total in document["totals"]])]


def _cell(cell: Mapping[str, Any] | None) -> Rates | None:
    if cell is None or cell["accuracy"] is None:
        return None
    counts = [(cell[name], name) for name in ("accepted", "rejected", "undecided", "incomplete")]
    basis = f"n = {cell['n']:,}: {', '.join(f'{n:,} {name}' for n, name in counts if n)}"
    rate = cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"]
    return Rates(rate[0], f"{share_with_interval(*rate)}, {basis}")


def _average(total: Mapping[str, Any]) -> Rates | None:
    if total["macro_accuracy"] is None:
        return None
    rate = share_with_interval(total["macro_accuracy"], *interval_of_average(total))
    return Rates(total["macro_accuracy"], f"{rate}, {counted(total['n_relations'], 'relation')}")


def draw(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    """Draw accuracy by color and in numbers. On pages, blocks of rows follow a sheet with the heads of the columns."""
    numbers = [number for number in range(len(document["totals"])) if number not in set(off)]
    heads = [
        (short_model(total["model"]), name_of(total["setting"]))
        for total in (document["totals"][number] for number in numbers)
    ]
    if width is None:
        return [_file(document, numbers, heads)]
    rows = rows_of(document)
    names = min(0.35 * width, 16 + widest(name for name, _ in rows))
    step = min(WIDEST, max(NARROWEST, (width - names) / (len(document["totals"]) or 1)))
    width = names + step * len(numbers)
    titles = (
        text(names + step * (column + 0.5), 15 + 16 * row, clipped(words, step - 4), **CENTER)
        for column, lines in enumerate(heads)
        for row, words in enumerate(lines)
    )
    table = _Table(document, rows, numbers, names, step)
    blocks = [
        Sheet(
            width,
            ROW * len(rows[first : first + ROWS_OF_BLOCK]),
            table.shapes(first, first + ROWS_OF_BLOCK),
            f"Relations {first + 1} to {min(first + ROWS_OF_BLOCK, len(rows))}",
            "plot-block",
        )
        for first in range(0, len(rows), ROWS_OF_BLOCK)
    ]
    return [Sheet(width, HEAD, [hidden(*titles)], "LMs and settings", "plot-head"), *blocks]


class _Table(NamedTuple):
    """Rows with names and cells. numbers: the columns shown. names, step: widths of names and of a column."""

    document: Document
    rows: Rows
    numbers: Sequence[int]
    names: float
    step: float

    def shapes(self, first: int, end: int, top: float = 0) -> Iterator[Shape]:
        """Yield the rows from `first` to before `end`."""
        sides = [(side_name(total), tuples_query(total)) for total in self.document["totals"]]
        for row, (name, cells) in enumerate(self.rows[first:end], start=first):
            y = top + ROW * (row - first)
            is_average = row == len(self.rows) - 1
            query = "" if is_average else f"{urlencode({'relation': name})}&"
            look = CENTER | (BOLD if is_average else {})
            if is_average:
                yield line([(0, y - 1), (self.names + self.step * len(self.numbers), y - 1)], "ink")
            yield text(0, y + ROW / 2 + MIDDLE, clipped(name, self.names - 8), **BOLD if is_average else {})
            for column, number in enumerate(self.numbers):
                x, cell = self.names + self.step * column, cells[number]
                if cell is None:
                    yield text(x + self.step / 2, y + ROW / 2 - 1 + MIDDLE, DASH, fill="soft", **CENTER)
                    continue
                yield mark(
                    (row, column),
                    f"{name}, {sides[number][0]}",
                    cell.words,
                    f"tuples/?{query}{sides[number][1]}",
                    rect(x, y, self.step - 2, ROW - 2, **_color(cell.accuracy)),
                    text(x + self.step / 2 - 1, y + ROW / 2 - 1 + MIDDLE, share(cell.accuracy), **look),
                )


def _color(accuracy: float) -> dict[str, Any]:
    return {"fill": "heat", "fill-opacity": round(0.06 + 0.94 * accuracy, 2)}


def _file(document: Document, numbers: Sequence[int], heads: Sequence[tuple[str, str]]) -> Sheet:
    """Return all rows on one sheet; of more than can be labeled only the colors."""
    longest = widest(words for lines in heads for words in lines)
    is_turned = longest > IN_FILES
    head = HEAD + longest * sin(radians(ANGLE)) if is_turned else HEAD
    n_rows = len(cells_by_relation(document)) + 1
    is_labeled = n_rows <= MOST_LABELED
    names = paper_width(2.2) if is_labeled else ROW
    if is_labeled:
        names = min(names, 16 + widest(("average", *(cell["relation"] for cell in document["cells"]))))
    width = names + IN_FILES * len(numbers)

    def shapes() -> Iterator[Shape]:
        for column, lines in enumerate(heads):
            x, y = names + IN_FILES * (column + 0.5), head - 25
            turned: Look = {"transform": f"rotate(-{ANGLE} {x:g} {y + 16:g})"} if is_turned else CENTER
            for row, words in enumerate(lines):
                yield text(x, y + 16 * row, words, **turned)
        rows = rows_of(document)
        if is_labeled:
            yield from _Table(document, rows, numbers, names, IN_FILES).shapes(0, len(rows), head)
            return
        x, y = FONT_SIZE, head + THIN_ROW * n_rows / 2
        said = f"{n_rows - 1:,} relations and their average"
        yield text(x, y, said, **CENTER, transform=f"rotate(-90 {x:g} {y:g})")
        for row, (_, cells) in enumerate(rows):
            for column, number in enumerate(numbers):
                if (cell := cells[number]) is not None:
                    corner = names + IN_FILES * column, head + THIN_ROW * row
                    yield rect(*corner, IN_FILES - 2, THIN_ROW, **_color(cell.accuracy))

    height = head + (ROW if is_labeled else THIN_ROW) * n_rows
    return Sheet(width + (longest * cos(radians(ANGLE)) - IN_FILES / 2 if is_turned else 0), height, shapes())
