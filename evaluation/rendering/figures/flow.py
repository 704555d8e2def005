"""Flow diagram of tuples, people, and judgments in the style of CONSORT."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from evaluation.rendering.documents import Document
from evaluation.rendering.figures import drawing
from evaluation.rendering.figures.drawing import CENTER, Drawing, Off, Shape, Sheet, text
from evaluation.reports.sections.conduct import Step, flow_steps
from kgharvest.pages.number_format import count

COLUMNS = (("tuples", "statements"), ("people",), ("judgments",))
WIDTH, HEIGHT = (
    drawing.paper_width(2.7),
    drawing.paper_width(0.95),
)  # width of a column and height of a step with its arrow
BOX_WIDTH, BOX_HEIGHT = 148, 58
LETTERS = 21  # characters per line in a box, and next to an arrow
SMALL, SMALL_LINE = 11.5, 14.5  # pixels: font size and line height


def columns_of(document: Document) -> list[list[tuple[Step, list[Step]]]]:
    """Return the columns of the diagram from left to right. Each column is a list of steps with their parts.

    The diagram omits steps without exclusions, except the first and the last step of a population. The table contains
    all steps.
    """
    all_steps = flow_steps(document)
    columns: list[list[tuple[Step, list[Step]]]] = []
    for group in COLUMNS:
        steps: list[tuple[Step, list[Step]]] = []
        for step in all_steps:
            if step.of in group and step.is_part and steps:
                steps[-1][1].append(step)
            elif step.of in group:
                successors = [other for other in all_steps if other.of == step.of and not other.is_part]
                if step.n_excluded or step in (successors[0], successors[-1]):
                    steps.append((step, []))
        columns.append(steps)
    return columns


def draw(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    """Draw boxes from top to bottom, connected by arrows that show how many were excluded and why."""
    columns = columns_of(document)

    def shapes() -> Iterator[Shape]:
        for place, steps in enumerate(columns):
            for row, (step, parts) in enumerate(steps):
                yield from _step(WIDTH * place + 2, HEIGHT * row, step, parts, is_first=not row)

    return [Sheet(WIDTH * len(columns), HEIGHT * max(map(len, columns)), shapes())]


def _step(left: float, top: float, step: Step, parts: Sequence[Step], *, is_first: bool) -> Iterator[Shape]:
    gap = (HEIGHT - BOX_HEIGHT) / 2
    x, y = left + BOX_WIDTH / 2, top + HEIGHT / 2
    if not is_first:
        tip = top + gap
        yield drawing.line([(x, top - gap), (x, tip - 6)], "ink-soft", 1.2)
        yield drawing.polygon([(x, tip), (x - 4, tip - 8), (x + 4, tip - 8)], "ink-soft")
        if step.n_excluded:
            lines = wrap(f"− {count(step.n_excluded)} {step.reason}", LETTERS + 6)
            yield from _lines(x + 12, top, lines, fill="ink-soft")
    yield drawing.rect(left, top + gap, BOX_WIDTH, BOX_HEIGHT, fill="none", stroke="ink-soft")
    yield from _lines(x, y, [count(step.n), *wrap(f"{step.of} {step.name}", LETTERS)], **CENTER)
    part_lines = [words for part in parts for words in wrap(f"{count(part.n)} {part.name}", LETTERS)]
    yield from _lines(left + BOX_WIDTH + 10, y, part_lines, fill="ink-soft")


def _lines(x: float, y: float, lines: Sequence[str], **look: Any) -> Iterator[Shape]:
    """Yield lines of small text, vertically centered at y."""
    for row, words in enumerate(lines):
        baseline = y + SMALL_LINE * (row - (len(lines) - 1) / 2) + 0.35 * SMALL
        yield text(x, baseline, words, **{"font-size": SMALL}, **look)


def in_words(document: Document) -> str:
    """Return a text that names the first and the last step of each column."""
    ends = ((steps[0][0], steps[-1][0]) for steps in columns_of(document))
    return "; ".join(
        f"from {count(first.n)} {first.of} {first.name} to {count(last.n)} {last.of} {last.name}"
        for first, last in ends
    )
