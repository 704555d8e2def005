"""Figures of accuracy by size of the KG and by score, from one sample."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evaluation.rendering.documents import Document, side_name, side_numbers, tuples_query
from evaluation.rendering.figures import drawing
from evaluation.rendering.figures.drawing import DASHES, LINE, Drawing, Off, Panel, Shape, Sheet, hue, text
from evaluation.reports.sections.rates import calibration_curves, calibration_left_out, side_curves
from kgharvest.pages.number_format import count, number, percent, share_tick, share_with_interval

CUTS = {  # the paper's cuts, each with its title and the corners of its mark (x, y in pixels)
    "base:10": ("base-10", [(0, -6), (6, 0), (0, 6), (-6, 0)]),
    "base:100": ("base-100", [(0, -6), (6, 5), (-6, 5)]),
    "share:0.5": ("50 %", [(-5, -5), (5, -5), (5, 5), (-5, 5)]),
}
MOST_BANDS = 4  # maximum number of bands in one panel; if there are more, each curve has its own panel
SCORE_AXIS = "score (nats, higher is better)"

Rate = Mapping[str, Any]  # keys: accuracy, low, high, n


class Point(NamedTuple):
    """An estimate at x. address: URL of the page of its tuples, relative to the report."""

    x: float
    rate: Rate
    name: str
    address: str

    def mark(self, row: int, column: int, *shapes: Shape) -> Shape:
        rate = share_with_interval(*(self.rate[key] for key in ("accuracy", "low", "high")))
        return drawing.mark((row, column), self.name, f"{rate}, n = {count(self.rate['n'])}", self.address, *shapes)


class SizeCurve(NamedTuple):
    """Accuracy of the top-ranked tuples of an LM and setting. cuts: (key of CUTS, point) for each cut."""

    number: int
    name: str
    points: Sequence[Point]
    cuts: Sequence[tuple[str, Point]]


# Accuracy by size


def size_curves(document: Document) -> tuple[list[SizeCurve], bool]:
    """Return the curves, and whether their x-axis is a number of tuples.

    If any population is unknown, the x-axis is a share.
    """
    populations = {(total["model"], total["setting"]): total.get("population") for total in document["totals"]}
    curves, numbers = side_curves(document), side_numbers(document)
    is_counted = all(populations.get(_side(curve)) for curve in curves)
    size_curves = []
    for curve in curves:
        name, scale = side_name(curve), populations[_side(curve)] if is_counted else 1
        points: list[Point] = []
        cuts: list[tuple[str, Point]] = []
        for point in curve["sizes"]:
            if point["accuracy"] is not None:
                x = point["share"] * scale
                kept = f"top {percent(point['share'])}" + (f", {count(round(x))} tuples" if is_counted else "")
                address = f"tuples/?{tuples_query(curve, best=round(point['share'], 6))}"
                points.append(Point(x, point, f"{name}, {kept}", address))
        for cut in document.get("cuts", []) if is_counted else []:
            if cut["cut"] in CUTS and cut["accuracy"] is not None and _side(cut) == _side(curve):
                title = f"{name}, cut {CUTS[cut['cut']][0]}, {count(cut['size'])} tuples"
                address = f"tuples/?{tuples_query(curve, cut=cut['cut'])}"
                cuts.append((cut["cut"], Point(cut["size"], cut, title, address)))
        size_curves.append(SizeCurve(numbers[_side(curve)], name, points, cuts))
    return size_curves, is_counted


def _side(part: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return part["model"], part["setting"]


def draw_size_curves(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    """Draw a line and band per LM and setting, with separately estimated marks for the cuts of the paper.

    If there are many lines, each has its own panel, which shows the other lines in gray.
    """
    every, is_counted = size_curves(document)
    curves = [curve for curve in every if curve.number not in set(off)]
    is_file, width = width is None, width or drawing.paper_width(7.2)
    is_together = len(curves) <= MOST_BANDS
    groups = [curves] if is_together else [[curve] for curve in curves]
    least, height = (width, min(320, 0.6 * width)) if is_together else (240, 150)
    panels, height = drawing.grid(len(groups), width, least=least, height=height, n_lines=0 if is_together else 1)
    samples = [(curve.name, drawing.sample_line(hue(curve.number), _dash(curve))) for curve in curves]
    keys = {key for curve in curves for key, _ in curve.cuts}
    cuts = [
        (title, lambda x, y, corners=corners: _moved(corners, x + 12, y, "ink-soft"))
        for key, (title, corners) in CUTS.items()
        if key in keys
    ]
    key, bottom = drawing.legend([*(samples if is_file and is_together else []), *cuts], width, height)
    x_domain = 0, max((curve.points[-1].x for curve in curves if curve.points), default=1)
    axis = "number of top-ranked tuples" if is_counted else "top-ranked share of each harvest"

    def shapes() -> Iterator[Shape]:
        yield text(0, LINE - 4, "accuracy", fill="ink-soft")
        row = 0
        for panel, group in zip((panel._replace(x_domain=x_domain) for panel in panels), groups, strict=True):
            if not is_together:
                yield text(panel.left, panel.top - 7, drawing.clipped(group[0].name, panel.width + 20))
            yield from panel.x_axis(count_tick if is_counted else share_tick, drawing.clipped(axis, panel.width + 20))
            yield panel.y_axis()
            if not is_together:
                yield from (drawing.line(_points(panel, other), "line") for other in curves)
            for curve in group:
                yield from _drawn(panel, curve, row)
                row += 1
        yield from key

    return [Sheet(width, bottom, shapes())]


def count_tick(size: float) -> str:
    return count(round(size))


def _dash(curve: SizeCurve) -> str | None:
    return DASHES[curve.number % len(DASHES)]


def _points(panel: Panel, curve: SizeCurve, key: str = "accuracy") -> list[tuple[float, float]]:
    return [(panel.x(point.x), panel.y(point.rate[key])) for point in curve.points]


def _moved(corners: Sequence[tuple[float, float]], x: float, y: float, fill: str) -> Shape:
    return drawing.polygon([(x + right, y + down) for right, down in corners], fill, stroke="paper")


def _drawn(panel: Panel, curve: SizeCurve, row: int) -> Iterator[Shape]:
    color = hue(curve.number)
    band = [*_points(panel, curve, "low"), *reversed(_points(panel, curve, "high"))]
    if len(band) > 2:
        yield drawing.polygon(band, color, 0.13)
        yield drawing.line(_points(panel, curve), color, 2, _dash(curve))
    points = [*((None, point) for point in curve.points), *curve.cuts]
    for column, (cut, point) in enumerate(points):
        x, y = panel.x(point.x), panel.y(point.rate["accuracy"])
        shape = drawing.circle(x, y, 3, color) if cut is None else _moved(CUTS[cut][1], x, y, color)
        yield point.mark(row, column, drawing.target(x - 9, y - 9, 18, 18), shape)


# Accuracy by score


def draw_calibration(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    """Draw one panel per cell: accuracies with intervals in bins that contain equal numbers of judged tuples."""
    numbers = side_numbers(document)
    curves = [curve for curve in calibration_curves(document) if numbers[_side(curve)] not in set(off)]
    is_file, width = width is None, width or drawing.paper_width(7.2)
    panels, height = drawing.grid(len(curves), width, least=215, height=110, n_lines=2)
    notes = " · ".join(filter(None, [SCORE_AXIS, calibration_left_out(document) if is_file else ""]))

    def shapes() -> Iterator[Shape]:
        yield text(0, LINE - 4, "accuracy", fill="ink-soft")
        for row, (panel, curve) in enumerate(zip(panels, curves, strict=True)):
            for place, words in enumerate((curve["relation"], side_name(curve))):
                yield text(panel.left, panel.top - 24 + LINE * place, drawing.clipped(words, panel.width + 16))
            yield from _calibration(panel, curve, row, hue(numbers[_side(curve)]))
        yield text(0, height + 4, drawing.clipped(notes, width), fill="ink-soft")

    return [Sheet(width, height + 12, shapes())]


def _calibration(panel: Panel, curve: Mapping[str, Any], row: int, color: str) -> Iterator[Shape]:
    ends = [point[key] for point in curve["scores"] for key in ("score_low", "score_high")]
    margin = (max(ends) - min(ends)) / 20
    panel = panel._replace(x_domain=(min(ends) - margin, max(ends) + margin))
    yield from panel.x_axis(number)
    yield panel.y_axis()
    if cut := curve.get("precision_cut"):
        x = panel.x(cut["score"])
        yield drawing.line([(x, panel.top), (x, panel.bottom)], "ink-soft", 1.2, "5 3")
    for column, point in enumerate(curve["scores"]):
        low, high = point["score_low"], point["score_high"]
        x, y = panel.x((low + high) / 2), panel.y(point["accuracy"])
        name = f"{curve['relation']}, {side_name(curve)}, scores {number(low)} to {number(high)}"
        address = f"tuples/?{tuples_query(curve, score_from=low, score_to=high)}"
        bars = [(x, panel.y(point["low"])), (x, panel.y(point["high"]))], [(panel.x(low), y), (panel.x(high), y)]
        area = drawing.target(x - 8, panel.top, 16, panel.height)
        lines = (drawing.line(bar, color, 1.8) for bar in bars)
        yield Point(x, point, name, address).mark(row, column, area, *lines, drawing.circle(x, y, 4, color))
