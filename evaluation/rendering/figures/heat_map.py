"""Heat map of accuracy by relation, LM, and setting (Table 5 of the paper)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from evaluation.rendering.documents import Document, name_of, short_model, side_name, tuples_query
from evaluation.rendering.figures import drawing
from evaluation.rendering.figures.drawing import CENTER, LINE, MIDDLE, Drawing, Off, Shape, Sheet, text
from evaluation.reports.sections.rates import cells_by_relation, interval_of_average
from kgharvest.pages.number_format import counted, share, share_with_interval

MOST_LABELED = 80  # maximum number of labeled rows in a file; more rows are shown by color only
ROW, THIN_ROW = 24, 3.2  # row heights in pixels
HEAD = 40
NARROWEST, WIDEST, LEAST_IN_FILES = 52, 180, 90  # width of a column in pixels
ROWS_OF_BLOCK = 40  # there can be thousands of rows; browsers do not draw blocks outside the viewport


class Rates(NamedTuple):
    """A cell: accuracy and the text of its tooltip."""

    accuracy: float
    words: str


Rows = Sequence[tuple[str, Sequence[Rates | None]]]


def rows_of(document: Document) -> Rows:
    """Return one row per relation with one cell per LM and setting (None if the cell has no rate).

    The last row contains the averages.
    """
    rows = [(name_of(relation), [_cell(cell) for cell in cells]) for relation, cells in cells_by_relation(document)]
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
    """Draw each accuracy as a color and a number. On pages, a sheet with column headers precedes blocks of rows."""
    numbers = [number for number in range(len(document["totals"])) if number not in set(off)]
    heads = [(short_model(total["model"]), name_of(total["setting"])) for total in document["totals"]]
    relations = {name_of(cell["relation"]) for cell in document["cells"]}
    names, n_rows = 16 + drawing.widest({*relations, "average"}), len(relations) + 1
    if width is None:
        step = max(LEAST_IN_FILES, 10 + drawing.widest(words for lines in heads for words in lines))
    else:
        names = min(0.35 * width, names)
        step = min(WIDEST, max(NARROWEST, (width - names) / len(heads)))
    width_of_all = names + step * len(numbers)

    def titles() -> Iterator[Shape]:
        for column, number in enumerate(numbers):
            for place, words in enumerate(heads[number]):
                x = names + step * (column + 0.5)
                yield text(x, 15 + 16 * place, drawing.clipped(words, step - 4), **CENTER)

    def file() -> Iterator[Shape]:
        yield from titles()
        table = _Table(document, rows_of(document), numbers, names, step)
        yield from table.shapes(0, n_rows, HEAD) if n_rows <= MOST_LABELED else table.colors(HEAD)

    if width is None:
        height = HEAD + (ROW * n_rows if n_rows <= MOST_LABELED else THIN_ROW * n_rows + LINE)
        return [Sheet(width_of_all, height, file())]
    table = _Table(document, rows_of(document), numbers, names, step)
    blocks = [
        Sheet(
            width_of_all,
            ROW * min(ROWS_OF_BLOCK, n_rows - first),
            table.shapes(first, first + ROWS_OF_BLOCK),
            f"Relations {first + 1} to {min(first + ROWS_OF_BLOCK, n_rows)}",
            "plot-block",
        )
        for first in range(0, n_rows, ROWS_OF_BLOCK)
    ]
    head = Sheet(width_of_all, HEAD, [drawing.hidden(*titles())], "LMs and settings", "plot-head")
    return [head, *blocks]


class _Table(NamedTuple):
    """Rows with names and cells. numbers: visible columns. names, step: widths of the names and of a column."""

    document: Document
    rows: Rows
    numbers: Sequence[int]
    names: float
    step: float

    def shapes(self, first: int, end: int, top: float = 0) -> Iterator[Shape]:
        """Yield the rows from `first` up to `end`, exclusive."""
        sides = [(side_name(total), tuples_query(total)) for total in self.document["totals"]]
        for row, (name, cells) in enumerate(self.rows[first:end], start=first):
            is_average = row == len(self.rows) - 1
            y, look = top + ROW * (row - first), {"font-weight": "bold"} if is_average else {}
            query = "" if is_average else f"{urlencode({'relation': name})}&"
            if is_average:
                yield drawing.line([(0, y - 1), (self.names + self.step * len(self.numbers), y - 1)], "ink")
            yield text(0, y + ROW / 2 + MIDDLE, drawing.clipped(name, self.names - 8), **look)
            for column, number in enumerate(self.numbers):
                x, cell = self.names + self.step * column, cells[number]
                printed = text(
                    x + self.step / 2 - 1, y + ROW / 2 - 1 + MIDDLE, share(cell and cell.accuracy), **CENTER, **look
                )
                if cell is None:
                    yield printed
                    continue
                color = drawing.rect(x, y, self.step - 2, ROW - 2, **heat_color(cell.accuracy))
                address = f"tuples/?{query}{sides[number][1]}"
                yield drawing.mark((row, column), f"{name}, {sides[number][0]}", cell.words, address, color, printed)

    def colors(self, top: float) -> Iterator[Shape]:
        """Yield all rows without names and numbers, with one shape per color."""
        said = f"{len(self.rows) - 1:,} relations and their average"
        yield text(self.names, top + THIN_ROW * len(self.rows) + LINE - 4, said)
        paths: dict[float, list[str]] = {}
        for row, (_, cells) in enumerate(self.rows):
            y = top + THIN_ROW * row
            for column, number in enumerate(self.numbers):
                left, right = self.names + self.step * column, self.names + self.step * (column + 1) - 2
                if cell := cells[number]:
                    corners = [(left, y), (right, y), (right, y + THIN_ROW), (left, y + THIN_ROW)]
                    paths.setdefault(round(cell.accuracy, 2), []).append(drawing.path_of(corners))
        for accuracy, cells_of_color in paths.items():
            yield Shape("path", {"d": "".join(cells_of_color), **heat_color(accuracy)})


def heat_color(accuracy: float) -> dict[str, Any]:
    return {"fill": "heat", "fill-opacity": round(0.06 + 0.94 * accuracy, 2)}
