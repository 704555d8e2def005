"""Figures as lists of shapes: scales, axes and panels to draw with, and writers for pages, SVG files and PDF.

A figure is one function `(document, width, off)` that returns sheets. Its shapes name colors of a theme, such as "ink"
or "hue-3", which each writer replaces. Lengths are CSS pixels on pages, with text of 13 px; files for papers are scaled
to text of 9 points. matplotlib is loaded by the first PDF and only writes paths and text.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from html import escape
from math import ceil, floor, log10, sqrt
from threading import Lock
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from evaluation.rendering.documents import ORIGINS, Document
from kgharvest.pages.number_format import share_tick

FIGURE_FORMATS = ("svg", "pdf")
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 13
PAPER_SCALE = 12 / 13  # 9 points at 96 pixels per inch
DASHES = (None, "6 3", "2 3", "8 3 2 3")
N_HUES = 8
LEAST_WIDTH, MOST_WIDTH = 280, 1200  # pixels of drawings for pages
LINE = 17  # pixels of a line of text
FOOT = 46  # pixels of an axis with its title

pdf_lock = Lock()  # matplotlib's settings and fonts are shared by all threads


class Theme(NamedTuple):
    """Colors. hues: distinct without color vision and against the ground (Okabe and Ito 2008; lighter on dark).

    heat: accuracy 1 in heat maps; the ink has a contrast of at least 4.5:1 on it.
    """

    ground: str
    ink: str
    soft: str
    grid: str
    heat: str
    hues: Sequence[str]

    @property
    def colors(self) -> dict[str, str]:
        return self._asdict() | {f"hue-{number}": hue for number, hue in enumerate(self.hues)}


LIGHT = Theme(
    "#ffffff", "#1b1e24", "#565c68", "#e0ddd6", "#35a07f",
    ("#0072b2", "#d55e00", "#007a5a", "#a3427f", "#7a5c00", "#4b5563", "#3b4cc0", "#9b2226"),
)  # fmt: skip
DARK = Theme(
    "#1a1d22", "#e8e7e3", "#a5abb6", "#2d323a", "#1a6b56",
    ("#6cc4f5", "#ff9f5a", "#5fd6ad", "#e79ccb", "#e6c34a", "#b3bac6", "#aab4ff", "#ff9a92"),
)  # fmt: skip
PAGE = Theme(
    "var(--paper)", "var(--ink)", "var(--ink-soft)", "var(--line)", "var(--heat)",
    [f"var(--series-{number})" for number in range(N_HUES)],
)  # fmt: skip  # variables of site.css, so that a drawing follows the page's theme
THEMES = {"light": LIGHT, "dark": DARK}


# Shapes


class Shape(NamedTuple):
    """An SVG element: g, a, path, circle, rect or text. Attributes that are None are not written."""

    tag: str
    attributes: dict[str, Any]
    content: str | Iterable[Shape] = ()


class Sheet(NamedTuple):
    """A part of a drawing with a size; its shapes are computed when it is written. kind: class of the element."""

    width: float
    height: float
    shapes: Iterable[Shape]
    label: str = ""
    kind: str = ""


Drawing = Sequence[Sheet]  # several sheets on pages only
DrawFigure = Callable[..., Drawing]
Off = Iterable[int]  # numbers of the LMs and settings that are not shown


def hue(number: int) -> str:
    return f"hue-{number % N_HUES}"


def line(points: Iterable[tuple[float, float]], stroke: str, width: float = 1, dash: str | None = None) -> Shape:
    attributes = {"d": path_of(points), "fill": "none", "stroke": stroke, "stroke-width": width}
    return Shape("path", attributes | {"stroke-dasharray": dash})


def polygon(points: Iterable[tuple[float, float]], fill: str, opacity: float | None = None, **more: Any) -> Shape:
    return Shape("path", {"d": f"{path_of(points)}Z", "fill": fill, "fill-opacity": opacity, **more})


def path_of(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.5g},{y:.5g}" for x, y in points)


def circle(x: float, y: float, r: float, stroke: str, fill: str | None = None) -> Shape:
    return Shape("circle", {"cx": x, "cy": y, "r": r, "fill": fill or stroke, "stroke": stroke, "stroke-width": 1.5})


def rect(x: float, y: float, width: float, height: float, **attributes: Any) -> Shape:
    return Shape("rect", {"x": x, "y": y, "width": width, "height": height, **attributes})


def target(x: float, y: float, width: float, height: float) -> Shape:
    """Return the area of a mark that reacts to the pointer on pages."""
    return rect(x, y, width, height, **{"fill": "none", "pointer-events": "all"})


def text(x: float, y: float, words: str, **attributes: Any) -> Shape:
    """Return one line of text with its baseline at y."""
    return Shape("text", {"x": x, "y": y, **attributes}, words)


Look = dict[str, Any]
RIGHT: Look = {"text-anchor": "end"}
CENTER: Look = {"text-anchor": "middle"}
BOLD: Look = {"font-weight": "bold"}
MIDDLE = 0.35 * FONT_SIZE  # from the middle of a line of text down to its baseline


def hidden(*shapes: Shape) -> Shape:
    """Return a group that screen readers skip."""
    return Shape("g", {"aria-hidden": "true"}, shapes)


def mark(place: tuple[int, int], name: str, words: str, address: str, *shapes: Shape) -> Shape:
    """Return shapes as a link with a name and a tooltip. place: row and column for arrow keys."""
    attributes = {"class": "mark", "tabindex": -1, "href": address or None, "data-row": place[0]}
    attributes |= {"data-column": place[1], "data-name": name, "aria-label": f"{name}: {words}"}
    return Shape("a", attributes, shapes)


# Text widths

# Advance widths of DejaVu Sans for U+0020 to U+007E: base-36 digits, 35 to the font size. Other fonts are narrower.
WIDTHS = "begunysaeeiubdbcnnnnnnnnnnccuuujzooprmkrrbbnkuqslspnmqozomoeceuiimnknmdnmaalaymmnnfjemltlljncnu"


def text_width(words: str) -> float:
    """Return an upper estimate in pixels."""
    return FONT_SIZE / 35 * sum(map(_width, words))


@cache
def _width(character: str) -> int:
    if " " <= character <= "~":
        return int(WIDTHS[ord(character) - ord(" ")], 36)
    return 35 if east_asian_width(character) in "WF" or character == "…" else 23


def clipped(words: str, width: float) -> str:
    """Return the words, shortened with an ellipsis if they are wider than `width`."""
    if text_width(words) <= width:
        return words
    end = len(words) - 1
    while end > 1 and text_width(words[:end]) + FONT_SIZE > width:
        end -= 1
    return f"{words[:end].rstrip()}…"


def widest(words: Iterable[str]) -> float:
    return max(map(text_width, words), default=0)


# Scales


def ticks(low: float, high: float, n: float) -> list[float]:
    """Return about n multiples of 1, 2 or 5 times a power of ten in [low, high] (as d3-array's `ticks`)."""
    if high <= low:
        return [low]
    step = (high - low) / max(1, n)
    power = 10.0 ** floor(log10(step))
    error = step / power
    step = power * (10 if error >= sqrt(50) else 5 if error >= sqrt(10) else 2 if error >= sqrt(2) else 1)
    return [round(number * step, 12) for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


class Panel(NamedTuple):
    """A rectangle with linear scales: x from left to right, y upwards."""

    left: float
    top: float
    width: float
    height: float
    x_domain: tuple[float, float] = (0, 1)
    y_domain: tuple[float, float] = (0, 1)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    def x(self, value: float) -> float:
        low, high = self.x_domain
        return self.left + (self.width * (value - low) / (high - low) if high > low else self.width / 2)

    def y(self, value: float) -> float:
        low, high = self.y_domain
        return self.bottom - self.height * (value - low) / (high - low)

    def x_axis(self, form: Callable[[float], str], title: str = "") -> Iterator[Shape]:
        """Yield grid lines with their values below, and the title under them."""
        values = ticks(*self.x_domain, round(self.width / 80))
        if len({form(value) for value in values}) < len(values):  # counts below 10 have no halves
            values = [value for value in values if value == round(value)]
        yield hidden(
            *(line([(self.x(value), self.top), (self.x(value), self.bottom)], "grid") for value in values),
            *(text(self.x(value), self.bottom + 18, form(value), fill="soft", **CENTER) for value in values),
        )
        if title:
            yield text(self.left, self.bottom + 38, title, fill="soft")

    def y_axis(self, form: Callable[[float], str] = share_tick) -> Shape:
        values = ticks(*self.y_domain, max(2, round(self.height / 60)))
        return hidden(
            *(line([(self.left, self.y(value)), (self.right, self.y(value))], "grid") for value in values),
            *(text(self.left - 8, self.y(value) + MIDDLE, form(value), fill="soft", **RIGHT) for value in values),
        )


def grid(
    n: int, width: float, *, least: float, height: float, n_lines: int = 0, top: float = 8
) -> tuple[list[Panel], float]:
    """Return n panels in rows, as many side by side as are `least` wide, and their height with `n_lines` above each."""
    n_columns = max(1, min(n, int(width // least)))
    step, row = width / n_columns, LINE * n_lines + height + FOOT
    panels = [
        Panel(step * (place % n_columns) + 34, top + row * (place // n_columns) + LINE * n_lines, step - 54, height)
        for place in range(n)
    ]
    return panels, top + row * ceil(n / n_columns)


def legend(
    entries: Iterable[tuple[str, Callable[[float, float], Shape]]], width: float, top: float
) -> tuple[list[Shape], float]:
    """Return names with their samples, from left to right in lines, and their height.

    A sample is drawn from x to x + 24 with its middle at y.
    """
    shapes: list[Shape] = []
    x, y = 0.0, top + LINE / 2
    for name, sample in entries:
        needed = 30 + text_width(name)
        if x and x + needed > width:
            x, y = 0.0, y + LINE + 3
        shapes += [sample(x, y), text(x + 30, y + MIDDLE, name)]
        x += needed + 16
    return shapes, y + LINE - top if shapes else 0


def sample_line(stroke: str, dash: str | None) -> Callable[[float, float], Shape]:
    return lambda x, y: line([(x, y), (x + 24, y)], stroke, 2, dash)


def paper_width(inches: float) -> float:
    return inches * 96 / PAPER_SCALE


# Writers


def render(drawing: Drawing, document: Document, file_format: str, theme: Theme = LIGHT) -> bytes:
    """Return the file as "svg" or "pdf", with a transparent ground. Names the origin of judgments not by people."""
    shapes, box = list(drawing[0].shapes), paper_box(drawing, document)
    if origin := ORIGINS.get(document.get("source", "")):
        shapes.append(text(box[0] - 4, -7, origin, **{"fill": "soft", "font-style": "italic", **RIGHT}))
    return (to_pdf if file_format == "pdf" else to_svg)(shapes, box, theme)


Box = tuple[float, float, float]  # width, height, y of the upper edge


def paper_box(drawing: Drawing, document: Document) -> Box:
    """Return the extent of a drawing for files, with a line on top for the origin of the judgments."""
    [sheet] = drawing
    top = -LINE - 3 if document.get("source") in ORIGINS else 0
    return sheet.width, sheet.height - top, top


def to_svg(shapes: Iterable[Shape], box: Box, theme: Theme) -> bytes:
    """Return a file with text as text in the reader's own font."""
    width, height, top = box
    root = Shape("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "width": PAPER_SCALE * width, "height": PAPER_SCALE * height,
        "viewBox": f"0 {top:g} {width:.6g} {height:.6g}", "font-family": FONTS, "font-size": FONT_SIZE, "fill": "ink",
    }, shapes)  # fmt: skip
    return "".join(_written(root, theme.colors, is_page=False)).encode()


def to_page(drawing: Drawing, title: str) -> str:
    """Return a drawing for a page: marks are links, and colors are variables of the stylesheet."""
    roots = (
        Shape("svg", {
            "class": sheet.kind or None, "role": "group", "aria-label": sheet.label or title, "fill": "ink",
            "width": sheet.width, "height": sheet.height, "viewBox": f"0 0 {sheet.width:.6g} {sheet.height:.6g}",
        }, sheet.shapes)
        for sheet in drawing
    )  # fmt: skip
    colors = PAGE.colors
    return "".join(part for root in roots for part in _written(root, colors, is_page=True))


def _written(shape: Shape, colors: dict[str, str], *, is_page: bool) -> Iterator[str]:
    tag, attributes, content = shape
    if not is_page and "pointer-events" in attributes:
        return
    if not is_page and tag == "a":
        tag, attributes = "g", {}
    yield f"<{tag}"
    for name, value in attributes.items():
        if value is not None:
            printed = f"{value:.6g}" if isinstance(value, float) else str(value)
            if name in ("fill", "stroke"):
                printed = colors.get(printed, printed)
            yield f' {name}="{escape(printed)}"'
    if not content:
        yield "/>"
        return
    yield ">"
    if isinstance(content, str):
        yield escape(content, quote=False)
    else:
        for child in content:
            yield from _written(child, colors, is_page=is_page)
    yield f"</{tag}>"


@cache
def _figure_class() -> type:
    """Load matplotlib without pyplot and its global state."""
    for name in ("matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.WARNING)
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"pdf.fonttype": 42, "font.family": "DejaVu Sans", "axes.unicode_minus": True})
    return Figure


def to_pdf(shapes: Iterable[Shape], box: Box, theme: Theme) -> bytes:
    """Return a file with embedded fonts, the same bytes every time."""
    width, height, top = box
    buffer = io.BytesIO()
    with pdf_lock:
        figure = _figure_class()(figsize=(PAPER_SCALE * width / 96, PAPER_SCALE * height / 96))
        from matplotlib.transforms import Affine2D

        place = Affine2D().translate(0, -top).scale(1 / width, -1 / height).translate(0, 1) + figure.transFigure
        for shape in _flat(shapes):
            figure.add_artist(_artist(shape, theme.colors, place))
        figure.savefig(buffer, format="pdf", transparent=True, metadata={"CreationDate": None})
    return buffer.getvalue()


def _flat(shapes: Iterable[Shape]) -> Iterator[Shape]:
    for shape in shapes:
        if shape.tag in ("g", "a"):
            yield from _flat(shape.content)  # type: ignore[arg-type]
        elif "pointer-events" not in shape.attributes:
            yield shape


ALIGNMENTS: dict[str | None, Any] = {None: "left", "middle": "center", "end": "right"}


def _artist(shape: Shape, colors: dict[str, str], place: Any) -> Any:
    from matplotlib.patches import Circle, PathPatch, Rectangle
    from matplotlib.path import Path
    from matplotlib.text import Text

    points = PAPER_SCALE * 72 / 96
    given = shape.attributes
    fill, stroke = (colors.get(given.get(name) or "none", "none") for name in ("fill", "stroke"))
    if shape.tag == "text":
        rotation = re.match(r"rotate\((\S+)", given.get("transform", ""))
        return Text(
            given["x"], given["y"], shape.content, transform=place, color=colors[given.get("fill", "ink")],
            fontsize=points * given.get("font-size", FONT_SIZE), fontweight=given.get("font-weight", "normal"),
            fontstyle=given.get("font-style", "normal"), verticalalignment="baseline", parse_math=False,
            horizontalalignment=ALIGNMENTS[given.get("text-anchor")],
            rotation=-float(rotation[1]) if rotation else 0, rotation_mode="anchor",
        )  # fmt: skip
    width = given.get("stroke-width", 1)
    dash = given.get("stroke-dasharray")
    style = {
        "facecolor": fill, "edgecolor": stroke, "linewidth": points * width if stroke != "none" else 0,
        "linestyle": (0, [float(length) / width for length in dash.split()]) if dash else "-",
        "alpha": given.get("fill-opacity"), "transform": place, "capstyle": "butt", "joinstyle": "round",
    }  # fmt: skip
    if shape.tag == "circle":
        return Circle((given["cx"], given["cy"]), given["r"], **style)
    if shape.tag == "rect":
        return Rectangle((given["x"], given["y"]), given["width"], given["height"], **style)
    steps = re.findall(r"([ML])([^,]+),([^MLZ]+)(Z?)", given["d"])
    codes = [Path.MOVETO if letter == "M" else Path.LINETO for letter, *_ in steps]
    vertices = [(float(x), float(y)) for _, x, y, _ in steps]
    return PathPatch(Path(vertices, codes), **style)
