"""Figures as lists of shapes: scales, axes, and writers for pages, SVG files, and PDF files.

A figure is one function `(document, width, off)` that returns sheets of shapes. Shapes name their colors as site.css
does, such as "ink" or "series-3". On pages, lengths are CSS pixels, and text has 13 px. Files for papers are scaled so
that text has 9 points. matplotlib is loaded when the first PDF is written, and only writes paths and text.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from math import ceil, floor, log10, sqrt
from threading import Lock
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from evaluation.rendering.documents import ORIGINS, Document
from kgharvest.pages.number_format import share_tick

FIGURE_FORMATS = ("svg", "pdf")
LEAST_WIDTH, MOST_WIDTH = 280, 1200  # limits for the width of drawings on pages, in pixels
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 13
LINE = 17  # height of a line of text in pixels
MIDDLE = 0.35 * FONT_SIZE  # distance in pixels from the middle of a line of text down to the baseline
FOOT = 46  # height in pixels of an axis with its title
PAPER_SCALE = 12 / 13  # 9 points are 12 pixels at 96 pixels per inch
DASHES = (None, "6 3", "2 3", "8 3 2 3")
N_HUES = 8

# The eight hues are distinct for color-blind readers and against the background (Okabe and Ito 2008).
# heat: color of accuracy 1 in heat maps. Text in the ink color has a contrast of at least 4.5:1 on it.
COLORS = ("paper", "ink", "ink-soft", "line", "heat", *(f"series-{number}" for number in range(N_HUES)))
Theme = Mapping[str, str]
LIGHT: Theme = dict(zip(COLORS, (
    "#ffffff", "#1b1e24", "#565c68", "#e0ddd6", "#35a07f",
    "#0072b2", "#d55e00", "#007a5a", "#a3427f", "#7a5c00", "#4b5563", "#3b4cc0", "#9b2226",
), strict=True))  # fmt: skip
DARK: Theme = dict(zip(COLORS, (
    "#1a1d22", "#e8e7e3", "#a5abb6", "#2d323a", "#1a6b56",
    "#6cc4f5", "#ff9f5a", "#5fd6ad", "#e79ccb", "#e6c34a", "#b3bac6", "#aab4ff", "#ff9a92",
), strict=True))  # fmt: skip
PAGE: Theme = {name: f"var(--{name})" for name in COLORS}  # colors follow the theme of the page
THEMES = {"light": LIGHT, "dark": DARK}


# Shapes


class Shape(NamedTuple):
    """An SVG element: g, a, path, circle, rect, or text. Attributes that are None are not written."""

    tag: str
    attributes: Mapping[str, Any]
    content: str | Iterable[Shape] = ()


class Sheet(NamedTuple):
    """A part of a drawing, with its own size. kind: CSS class of the SVG element.

    The shapes are computed when the sheet is written.
    """

    width: float
    height: float
    shapes: Iterable[Shape]
    label: str = ""
    kind: str = ""


Drawing = Sequence[Sheet]  # only drawings for pages have several sheets
DrawFigure = Callable[..., Drawing]
Off = Iterable[int]  # numbers of the LMs and settings that a drawing hides
Points = Iterable[tuple[float, float]]

RIGHT: dict[str, Any] = {"text-anchor": "end"}
CENTER: dict[str, Any] = {"text-anchor": "middle"}


def hue(number: int) -> str:
    return f"series-{number % N_HUES}"


def path_of(points: Points) -> str:
    return "M" + "L".join(f"{x:.5g},{y:.5g}" for x, y in points)


def line(points: Points, stroke: str, width: float = 1, dash: str | None = None) -> Shape:
    look = {"fill": "none", "stroke": stroke, "stroke-width": width, "stroke-dasharray": dash}
    return Shape("path", {"d": path_of(points), **look})


def polygon(points: Points, fill: str, opacity: float | None = None, stroke: str | None = None) -> Shape:
    return Shape("path", {"d": f"{path_of(points)}Z", "fill": fill, "fill-opacity": opacity, "stroke": stroke})


def circle(x: float, y: float, r: float, stroke: str, fill: str | None = None) -> Shape:
    return Shape("circle", {"cx": x, "cy": y, "r": r, "fill": fill or stroke, "stroke": stroke, "stroke-width": 1.5})


def rect(x: float, y: float, width: float, height: float, **look: Any) -> Shape:
    return Shape("rect", {"x": x, "y": y, "width": width, "height": height, **look})


def text(x: float, y: float, words: str, **look: Any) -> Shape:
    """Return one line of text with its baseline at y."""
    return Shape("text", {"x": x, "y": y, **look}, words)


def hidden(*shapes: Shape) -> Shape:
    """Return a group that screen readers skip."""
    return Shape("g", {"aria-hidden": "true"}, shapes)


def target(x: float, y: float, width: float, height: float) -> Shape:
    """Return an invisible rectangle that makes a mark react to the pointer on pages."""
    return rect(x, y, width, height, **{"fill": "none", "pointer-events": "all"})


def mark(place: tuple[int, int], name: str, words: str, address: str, *shapes: Shape) -> Shape:
    """Return shapes as a link with a tooltip of two lines. place: row and column, for navigation with arrow keys."""
    attributes = {"class": "mark", "tabindex": -1, "href": address or None, "data-row": place[0]}
    attributes |= {"data-column": place[1], "data-name": len(name), "aria-label": f"{name}: {words}"}
    return Shape("a", attributes, shapes)


# Text widths

# Advance widths of DejaVu Sans for U+0020 to U+007E, as base-36 digits in 1/35 of the font size. Other fonts are
# narrower.
WIDTHS = "begunysaeeiubdbcnnnnnnnnnnccuuujzooprmkrrbbnkuqslspnmqozomoeceuiimnknmdnmaalaymmnnfjemltlljncnu"


@cache
def _width(character: str) -> int:
    if " " <= character <= "~":
        return int(WIDTHS[ord(character) - ord(" ")], 36)
    return 35 if east_asian_width(character) in "WF" or character == "…" else 23


def text_width(words: str) -> float:
    """Return an upper bound on the width in pixels."""
    return FONT_SIZE / 35 * sum(map(_width, words))


def widest(words: Iterable[str]) -> float:
    return max(map(text_width, words), default=0)


def clipped(words: str, width: float) -> str:
    """Return the words, shortened with an ellipsis if they are wider than `width`."""
    if text_width(words) <= width:
        return words
    end = len(words) - 1
    while end > 1 and text_width(words[:end]) + FONT_SIZE > width:
        end -= 1
    return f"{words[:end].rstrip()}…"


# Axes


def ticks(low: float, high: float, n: float) -> list[float]:
    """Return about n multiples of 1, 2, or 5 times a power of ten in [low, high] (like `ticks` of d3-array)."""
    if high <= low:
        return [low]
    power = 10.0 ** floor(log10((high - low) / n))
    error = (high - low) / n / power
    step = power * (10 if error >= sqrt(50) else 5 if error >= sqrt(10) else 2 if error >= sqrt(2) else 1)
    return [round(number * step, 12) for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


class Panel(NamedTuple):
    """A rectangle with linear scales: x from left to right, y upwards."""

    left: float
    top: float
    width: float
    height: float
    x_domain: tuple[float, float] = (0, 1)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        low, high = self.x_domain
        return self.left + (self.width * (value - low) / (high - low) if high > low else self.width / 2)

    def y(self, share: float) -> float:
        return self.bottom - self.height * share

    def x_axis(self, form: Callable[[float], str], title: str = "") -> Iterator[Shape]:
        """Yield grid lines with their values below, and the title under them."""
        values = ticks(*self.x_domain, max(2, round(self.width / 64)))
        if len({form(value) for value in values}) < len(values):  # avoid fractional tuples in counts below 10
            values = [value for value in values if value == round(value)]
        yield hidden(
            *(line([(self.x(value), self.top), (self.x(value), self.bottom)], "line") for value in values),
            *(text(self.x(value), self.bottom + 18, form(value), fill="ink-soft", **CENTER) for value in values),
        )
        if title:
            yield text(self.left, self.bottom + FOOT - 8, title, fill="ink-soft")

    def y_axis(self) -> Shape:
        """Return grid lines of shares with their values."""
        values, left, right = ticks(0, 1, max(2, round(self.height / 60))), self.left, self.left + self.width
        look = {"fill": "ink-soft", **RIGHT}
        return hidden(
            *(line([(left, self.y(value)), (right, self.y(value))], "line") for value in values),
            *(text(left - 8, self.y(value) + MIDDLE, share_tick(value), **look) for value in values),
        )


def grid(n: int, width: float, *, least: float, height: float, n_lines: int = 0) -> tuple[list[Panel], float]:
    """Return n panels and the lower edge of the last panel's axis.

    One line above all panels is reserved for the name of the y-axis. `n_lines` lines are reserved above each panel.
    Each row has as many panels as fit with a width of at least `least`.
    """
    n_columns, head = max(1, min(n, int(width // least))), LINE * n_lines
    step, row, top = width / n_columns, head + height + FOOT, LINE + 6
    panels = [
        Panel(step * (place % n_columns) + 34, top + row * (place // n_columns) + head, step - 54, height)
        for place in range(n)
    ]
    return panels, top + row * ceil(n / n_columns)


Sample = Callable[[float, float], Shape]  # draws from x to x + 24, vertically centered at y


def legend(entries: Iterable[tuple[str, Sample]], width: float, top: float) -> tuple[list[Shape], float]:
    """Return the shapes of a legend (names with samples of their lines or marks, in rows) and its lower edge."""
    shapes: list[Shape] = []
    x, y = 0.0, top + LINE / 2
    for name, sample in entries:
        needed = 30 + text_width(name)
        if x and x + needed > width:
            x, y = 0.0, y + LINE + 3
        shapes += [sample(x, y), text(x + 30, y + MIDDLE, name)]
        x += needed + 16
    return shapes, y + LINE if shapes else top


def sample_line(stroke: str, dash: str | None) -> Sample:
    return lambda x, y: line([(x, y), (x + 24, y)], stroke, 2, dash)


# Writers


def paper_width(inches: float) -> float:
    return inches * 96 / PAPER_SCALE


def paper_box(drawing: Drawing, document: Document) -> tuple[float, float, float]:
    """Return the width, height, and upper edge of a figure file.

    If people did not make the judgments, a line at the top names the source of the judgments.
    """
    [sheet] = drawing
    top = -LINE - 3 if document.get("source") in ORIGINS else 0
    return sheet.width, sheet.height - top, top


def render(drawing: Drawing, document: Document, file_format: str, theme: Theme = LIGHT) -> bytes:
    """Return an "svg" or "pdf" file with a transparent background. SVG text remains text, in the reader's font."""
    [sheet] = drawing
    width, height, top = paper_box(drawing, document)
    origin = text(width - 4, -7, ORIGINS.get(document.get("source", ""), ""), **{"font-style": "italic", **RIGHT})
    shapes = [*sheet.shapes, *([origin] if top else [])]
    if file_format == "pdf":
        return _pdf(shapes, width, height, top, theme)
    root = Shape("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "width": PAPER_SCALE * width, "height": PAPER_SCALE * height,
        "viewBox": f"0 {top:g} {width:.6g} {height:.6g}", "font-family": FONTS, "font-size": FONT_SIZE, "fill": "ink",
    }, shapes)  # fmt: skip
    return _svg(root, theme).encode()


def to_page(drawing: Drawing, title: str) -> str:
    """Return a drawing for a page: marks are links, and colors are variables of the stylesheet."""
    roots = (
        Shape("svg", {
            "class": sheet.kind or None, "role": "group", "aria-label": sheet.label or title, "fill": "ink",
            "width": sheet.width, "height": sheet.height, "viewBox": f"0 0 {sheet.width:.6g} {sheet.height:.6g}",
        }, sheet.shapes)
        for sheet in drawing
    )  # fmt: skip
    return "".join(_svg(root, PAGE) for root in roots)


PAINT = ("fill", "stroke")


def _svg(root: Shape, theme: Theme) -> str:
    parts: list[str] = []

    def write(shape: Shape) -> None:
        tag, attributes, content = shape
        if theme is not PAGE and tag == "a":
            tag, attributes = "g", {}
        elif theme is not PAGE and "pointer-events" in attributes:
            return
        parts.append(f"<{tag}")
        for name, value in attributes.items():
            if isinstance(value, str):
                parts.append(f' {name}="{theme.get(value, value) if name in PAINT else escape(value)}"')
            elif value is not None:
                parts.append(f' {name}="{value:.6g}"')
        parts.append(">")
        if isinstance(content, str):
            parts.append(escape(content, quote=False))
        else:
            for child in content:
                write(child)
        parts.append(f"</{tag}>")

    write(root)
    return "".join(parts)


pdf_lock = Lock()  # threads share the settings and fonts of matplotlib


@cache
def _figure_class() -> type:
    """Load matplotlib without pyplot and its global state."""
    for name in ("matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.WARNING)
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"pdf.fonttype": 42, "font.family": "DejaVu Sans"})
    return Figure


def _pdf(shapes: Iterable[Shape], width: float, height: float, top: float, theme: Theme) -> bytes:
    """Return a PDF file with embedded fonts. The same shapes always result in the same bytes."""
    buffer = io.BytesIO()
    with pdf_lock:
        figure = _figure_class()(figsize=(PAPER_SCALE * width / 96, PAPER_SCALE * height / 96))
        from matplotlib.transforms import Affine2D

        place = Affine2D().translate(0, -top).scale(1 / width, -1 / height).translate(0, 1) + figure.transFigure
        for shape in _flat(shapes):
            figure.add_artist(_artist(shape, theme, place))
        figure.savefig(buffer, format="pdf", transparent=True, metadata={"CreationDate": None})
    return buffer.getvalue()


def _flat(shapes: Iterable[Any]) -> Iterator[Shape]:
    for shape in shapes:
        if shape.tag in ("g", "a"):
            yield from _flat(shape.content)
        elif "pointer-events" not in shape.attributes:
            yield shape


ALIGNMENTS: Mapping[str | None, Any] = {None: "left", "middle": "center", "end": "right"}


def _artist(shape: Shape, theme: Theme, place: Any) -> Any:
    from matplotlib.patches import Circle, PathPatch, Rectangle
    from matplotlib.path import Path
    from matplotlib.text import Text

    points, look = PAPER_SCALE * 72 / 96, shape.attributes
    if shape.tag == "text":
        return Text(
            look["x"], look["y"], shape.content, color=theme[look.get("fill", "ink")], transform=place,
            fontsize=points * look.get("font-size", FONT_SIZE), fontweight=look.get("font-weight", "normal"),
            fontstyle=look.get("font-style", "normal"), horizontalalignment=ALIGNMENTS[look.get("text-anchor")],
            alpha=look.get("fill-opacity"), parse_math=False,
        )  # fmt: skip
    width, dash, stroke = look.get("stroke-width", 1), look.get("stroke-dasharray"), theme.get(look.get("stroke") or "")
    style: dict[str, Any] = {
        "facecolor": theme.get(look["fill"], "none"), "alpha": look.get("fill-opacity"), "edgecolor": stroke or "none",
        "linewidth": points * width if stroke else 0, "capstyle": "butt", "joinstyle": "round", "transform": place,
        "linestyle": (0, [float(length) / width for length in dash.split()]) if dash else "-",
    }  # fmt: skip
    if shape.tag == "circle":
        return Circle((look["cx"], look["cy"]), look["r"], **style)
    if shape.tag == "rect":
        return Rectangle((look["x"], look["y"]), look["width"], look["height"], **style)
    steps = re.findall(r"([ML])([^,]+),([^MLZ]+)", look["d"])
    codes = [Path.MOVETO if letter == "M" else Path.LINETO for letter, *_ in steps]
    return PathPatch(Path([(float(x), float(y)) for _, x, y in steps], codes), **style)
