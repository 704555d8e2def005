"""Drawing without a screen: SVG and PDF of the same bytes every time. matplotlib is loaded by the first figure."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluation.rendering.documents import ORIGINS, Document, name_of, tuples_query
from kgharvest.names import short_name
from kgharvest.pages.number_format import share_tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

drawing = Lock()  # matplotlib's settings and fonts are shared by all threads

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: to be read out, searched and set in the reader's own font
    "svg.hashsalt": "kgharvest",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "legend.frameon": False,
}


class Theme(NamedTuple):
    """hues: tell apart without colour vision and against the ground (Okabe and Ito 2008; lighter on dark).

    low, high: ends of the scale of accuracy, on all of which the ink has a contrast of 4.5:1.
    """

    ground: str
    ink: str
    soft: str
    grid: str
    low: str
    high: str
    hues: Sequence[str]


LIGHT = Theme(
    "#ffffff", "#1b1e24", "#565c68", "#e0ddd6", "#f4f1ea", "#35a07f",
    ("#0072b2", "#d55e00", "#007a5a", "#a3427f", "#7a5c00", "#4b5563", "#3b4cc0", "#9b2226"),
)  # fmt: skip
DARK = Theme(
    "#1a1d22", "#e8e7e3", "#a5abb6", "#2d323a", "#23272e", "#1a6b56",
    ("#6cc4f5", "#ff9f5a", "#5fd6ad", "#e79ccb", "#e6c34a", "#b3bac6", "#aab4ff", "#ff9a92"),
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": DARK}
FIGURE_FORMATS = ("svg", "pdf")
DASHES = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1, 1, 1)))

Draw = Callable[["Figure", Any, Theme], None]


@cache
def figure_class() -> type[Figure]:
    """Load matplotlib, without pyplot and its global state."""
    for name in ("matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.WARNING)
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(SETTINGS)
    return Figure


def render(draw: Draw, content: Any, size: tuple[float, float], file_format: str, theme: Theme) -> bytes:
    """Return the figure as "svg" or "pdf"; `size` in inches. Its ground is transparent.

    What rests on no people says so in its corner, so that the figure cannot be taken for more elsewhere.
    """
    buffer = io.BytesIO()
    with drawing:
        figure = figure_class()(figsize=size, layout="constrained")
        if origin := ORIGINS.get(content.get("source")):
            figure.suptitle(origin, x=0.99, ha="right", fontsize=8, style="italic", color=theme.soft)
        draw(figure, content, theme)
        figure.savefig(buffer, format=file_format, transparent=True, metadata=_undated(file_format))
    return buffer.getvalue() if file_format == "pdf" else buffer.getvalue().replace(b"'DejaVu Sans'", FONTS.encode())


def _undated(file_format: str) -> dict[str, None]:
    return {"CreationDate": None} if file_format == "pdf" else {"Date": None, "Creator": None}


def style(axes: Axes, theme: Theme) -> None:
    """Leave of the frame what is read off: the two axes, with a quiet grid behind the numbers."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.soft)
    axes.tick_params(colors=theme.ink, which="both", length=3, color=theme.soft)
    for label in (axes.xaxis.label, axes.yaxis.label, axes.title):
        label.set_color(theme.ink)
    axes.set_axisbelow(True)


def side_name(side: Mapping[str, Any]) -> str:
    """Return an LM and a setting; of a folder or hub id the last part, as wide as a figure has room for."""
    return f"{short_model(side['model'])} · {name_of(side['setting'])}"


def series_of(document: Document) -> list[dict[str, str]]:
    """Return what interactive figures put on and off: LMs and settings in their order, and how to ask for each."""
    return [{"name": side_name(total), "query": tuples_query(total)} for total in document["totals"]]


def short_model(model: str | None) -> str:
    return short_name(name_of(model))


def share_axis(axis: Axis, theme: Theme) -> None:
    """Print shares as the tables do: .5, not 0.5."""
    axis.set_major_formatter(lambda share, _: share_tick(share))
    axis.grid(color=theme.grid, linewidth=0.8)


def legend(axes: Axes, theme: Theme, **options: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(labelcolor=theme.ink, fontsize=8.5, **options)
