"""The flow of tuples, people and judgments as a diagram, as CONSORT draws that of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from evaluation.rendering.documents import Document
from evaluation.rendering.figures.canvas import Theme
from evaluation.reports.sections.conduct import Step, flow_steps
from kgharvest.pages.number_format import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (("tuples", "statements"), ("people",), ("judgments",))
WIDTH, HEIGHT = 2.7, 0.95  # inches of a column and of a step, its arrow included
BOX_WIDTH, BOX_HEIGHT = 0.52, 0.56  # shares of these
LINE = 21  # letters of a line in a box, and beside an arrow


def columns_of(document: Document) -> list[list[tuple[Step, list[Step]]]]:
    """Return the columns from left to right: each step with its parts. A step that leaves nothing out is left to the
    table, unless it is the first or the last of its kind."""
    every = flow_steps(document)
    columns: list[list[tuple[Step, list[Step]]]] = []
    for group in COLUMNS:
        steps: list[tuple[Step, list[Step]]] = []
        for step in every:
            if step.of in group and step.is_part and steps:
                steps[-1][1].append(step)
            elif step.of in group and (step.left_out or step in _ends(every, step.of)):
                steps.append((step, []))
        columns.append(steps)
    return columns


def _ends(steps: Sequence[Step], of: str) -> tuple[Step, Step]:
    own = [step for step in steps if step.of == of and not step.is_part]
    return own[0], own[-1]


def size(document: Document) -> tuple[float, float]:
    return WIDTH * len(COLUMNS), HEIGHT * max(len(steps) for steps in columns_of(document))


def draw(figure: Figure, document: Document, theme: Theme) -> None:
    """Boxes downwards, an arrow to the next, and beside it what was left out and why."""
    axes = figure.add_subplot()
    columns = columns_of(document)
    n_rows = max(len(steps) for steps in columns)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(n_rows, 0)
    axes.set_axis_off()
    for left, steps in enumerate(columns):
        for top, (step, parts) in enumerate(steps):
            if top:
                _arrow(axes, left, top, step, theme)
            _box(axes, left, top, step, parts, theme)


def _box(axes: Axes, left: float, top: float, step: Step, parts: Sequence[Step], theme: Theme) -> None:
    from matplotlib.patches import Rectangle

    corner = (left + 0.01, top + (1 - BOX_HEIGHT) / 2)
    axes.add_patch(Rectangle(corner, BOX_WIDTH, BOX_HEIGHT, fill=False, edgecolor=theme.soft, linewidth=0.9))
    lines = [count(step.n), fill(f"{step.of} {step.name}", LINE)]
    centre = (left + 0.01 + BOX_WIDTH / 2, top + 0.5)
    centred: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.3, "color": theme.ink, "fontsize": 8}
    axes.text(*centre, "\n".join(lines), **centred)
    if parts:
        told = "\n".join(fill(f"{count(part.n)} {part.name}", LINE) for part in parts)
        axes.text(left + BOX_WIDTH + 0.04, centre[1], told, **{**centred, "ha": "left", "color": theme.soft})


def _arrow(axes: Axes, left: float, top: float, step: Step, theme: Theme) -> None:
    gap = (1 - BOX_HEIGHT) / 2
    middle = left + 0.01 + BOX_WIDTH / 2
    ends: dict[str, Any] = {"xy": (middle, top + gap), "xytext": (middle, top - gap)}
    axes.annotate("", arrowprops={"arrowstyle": "-|>", "color": theme.soft, "shrinkA": 0, "shrinkB": 0}, **ends)
    if step.left_out:
        told = fill(f"{count(step.left_out)} {step.because}", LINE + 6)
        beside: dict[str, Any] = {"ha": "left", "va": "center", "fontsize": 7.5, "linespacing": 1.2}
        axes.text(middle + 0.04, top, "− " + told, color=theme.soft, **beside)


def in_words(document: Document) -> str:
    """Return the first and the last step of each column."""
    ends = ((steps[0][0], steps[-1][0]) for steps in columns_of(document))
    return "; ".join(
        f"from {count(first.n)} {first.of} {first.name} to {count(last.n)} {last.of} {last.name}"
        for first, last in ends
    )
