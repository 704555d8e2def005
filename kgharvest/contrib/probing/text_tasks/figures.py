"""Figures of text classification: learning curves and the grid of AutoPrompt (Shin et al. 2020, Figures 2 and 3)."""

from collections.abc import Iterator, Mapping, Sequence
from math import log10
from typing import Any

from evaluation.rendering.figures import drawing
from evaluation.rendering.figures.drawing import CENTER, LINE, MIDDLE, Drawing, Shape, Sheet, hue, text
from evaluation.rendering.figures.heat_map import ROW, heat_color
from kgharvest.pages.number_format import count, share

COLUMN = 72  # width of a column of the heat map in pixels
SHIFT = 5  # horizontal distance of overlapping error bars in pixels


def draw_curves(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw dev accuracy by number of training texts (logarithmic): means as lines, ranges over the subsets as bars.

    rows: see `curve_rows`.
    """
    width = drawing.paper_width(3.4)
    [panel], bottom = drawing.grid(1, width, least=width, height=0.7 * width)
    sizes = sorted({row["train_size"] for row in rows})
    panel = panel._replace(x_domain=(log10(sizes[0]) - 0.2, log10(sizes[-1]) + 0.2))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    samples = ((method, drawing.sample_line(hue(number), None)) for number, method in enumerate(methods))
    key, height = drawing.legend(samples, width, bottom + LINE)

    def shapes() -> Iterator[Shape]:
        yield text(0, LINE - 4, "dev accuracy, mean and range over subsets", fill="ink-soft")
        yield panel.y_axis()
        for size in sizes:
            yield text(panel.x(log10(size)), panel.bottom + 18, count(size), fill="ink-soft", **CENTER)
        yield text(panel.left, bottom - 8, "training texts", fill="ink-soft")
        for number, method in enumerate(methods):
            shift = SHIFT * (number - (len(methods) - 1) / 2)
            of_method = sorted((row for row in rows if row["method"] == method), key=lambda row: row["train_size"])
            places = [(panel.x(log10(row["train_size"])) + shift, row) for row in of_method]
            yield drawing.line([(x, panel.y(row["mean"])) for x, row in places], hue(number), 2)
            for x, row in places:
                yield drawing.line([(x, panel.y(row["low"])), (x, panel.y(row["high"]))], hue(number), 1.2)
                yield drawing.circle(x, panel.y(row["mean"]), 2.5, hue(number))
        yield from key

    return [Sheet(width, height, shapes())]


def draw_grid(cells: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw a heat map of AutoPrompt's dev accuracy: trigger tokens by tokens per label.

    cells: "grid" of a record. Of several numbers of candidates, the best one is drawn.
    """
    best: dict[tuple[int, int], float] = {}
    for cell in cells:
        place = cell["k"], cell["n_triggers"]
        best[place] = max(best.get(place, 0.0), cell["dev_accuracy"])
    ks, triggers = (sorted({place[side] for place in best}) for side in (0, 1))
    left, head = 16 + drawing.widest(["tokens per label"]), 2 * LINE + 8

    def shapes() -> Iterator[Shape]:
        yield text(left, LINE - 2, "trigger tokens", fill="ink-soft")
        yield text(0, 2 * LINE, "tokens per label", fill="ink-soft")
        for column, n_triggers in enumerate(triggers):
            yield text(left + COLUMN * (column + 0.5), 2 * LINE, count(n_triggers), **CENTER)
        for row, k in enumerate(ks):
            y = head + ROW * row
            yield text(0, y + ROW / 2 + MIDDLE, count(k))
            for column, n_triggers in enumerate(triggers):
                x, accuracy = left + COLUMN * column, best.get((k, n_triggers))
                if accuracy is not None:
                    yield drawing.rect(x, y, COLUMN - 2, ROW - 2, **heat_color(accuracy))
                yield text(x + COLUMN / 2 - 1, y + ROW / 2 - 1 + MIDDLE, share(accuracy), **CENTER)

    return [Sheet(left + COLUMN * len(triggers), head + ROW * len(ks), shapes())]
