"""Graph of an entity and its neighbors in two shapes: wide, and tall for narrow screens.

Arrows lead from the first entity of a tuple to the others. The layout is deterministic.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple
from unicodedata import east_asian_width

from kgharvest.models import KnowledgeTuple

MOST_NEIGHBOURS = 8  # maximum number of tuples on each side of the entity
LONGEST_LABEL = 20  # maximum number of text columns of a label; see `shortened`
ROW_HEIGHT, MARGIN = 44, 18
BOX_WIDTH, BOX_HEIGHT = 156, 36
COLUMN = 184  # width of the labels of neighbors
GAP = 78  # gap between a column of labels and the entity's box in the wide shape
INDENT = 28  # indentation of the labels in the tall shape
TO_LABEL = 8


class Neighbour(NamedTuple):
    """A label at (x, y) that contains the other entities of a tuple, and an arrow.

    tip: x, y, and angle in degrees of the arrow's tip.
    """

    label: str
    relation: str
    anchor: str
    x: float
    y: float
    line: str
    tip: tuple[float, float, int]


class Graph(NamedTuple):
    label: str
    width: float
    height: float
    box: tuple[float, float]  # upper left corner of the entity's box
    neighbours: Sequence[Neighbour]

    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT

    @property
    def centre(self) -> tuple[float, float]:
        return self.box[0] + BOX_WIDTH / 2, self.box[1] + BOX_HEIGHT / 2


def draw_wide(entity: str, tuples: Sequence[KnowledgeTuple]) -> Graph:
    """Place the first tuples to the left and right of the entity. A side without tuples takes no space."""
    before, after = _before_and_after(entity, tuples)
    height = ROW_HEIGHT * max(len(before), len(after), 1) + 2 * MARGIN
    middle = height / 2
    left = COLUMN + GAP if before else MARGIN
    right = left + BOX_WIDTH
    x = right + GAP
    neighbours = [
        Neighbour(label, relation, "end", COLUMN - TO_LABEL, y, _curve(COLUMN, y, left, middle), (left, middle, 0))
        for label, relation, y in _rows(entity, before, middle)
    ] + [
        Neighbour(label, relation, "start", x + TO_LABEL, y, _curve(right, middle, x, y), (x, y, 0))
        for label, relation, y in _rows(entity, after, middle)
    ]
    width = right + (GAP + COLUMN if after else MARGIN)
    return Graph(shortened(entity, 18), width, height, (left, middle - BOX_HEIGHT / 2), neighbours)


def draw_tall(entity: str, tuples: Sequence[KnowledgeTuple]) -> Graph:
    """Place the first tuples above and below the entity."""
    before, after = _before_and_after(entity, tuples)
    top = ROW_HEIGHT * len(before) + MARGIN
    bottom = top + BOX_HEIGHT
    height = bottom + ROW_HEIGHT * len(after) + MARGIN
    turn, start = MARGIN, MARGIN + INDENT
    x = start + TO_LABEL
    neighbours = [
        Neighbour(label, relation, "start", x, y, f"M {start} {y} H {turn} V {top}", (turn, top, 90))
        for label, relation, y in _rows(entity, before, top / 2)
    ] + [
        Neighbour(label, relation, "start", x, y, f"M {turn} {bottom} V {y} H {start}", (start, y, 0))
        for label, relation, y in _rows(entity, after, (bottom + height) / 2)
    ]
    width = start + COLUMN + MARGIN
    return Graph(shortened(entity, 18), width, height, (MARGIN / 2, top), neighbours)


SHAPES = {"wide": draw_wide, "tall": draw_tall}


def _before_and_after(
    entity: str, tuples: Sequence[KnowledgeTuple]
) -> tuple[list[KnowledgeTuple], list[KnowledgeTuple]]:
    """Split the tuples into those that start with another entity and those that start with this entity."""
    before = [knowledge_tuple for knowledge_tuple in tuples if knowledge_tuple.entities[0] != entity]
    after = [knowledge_tuple for knowledge_tuple in tuples if knowledge_tuple.entities[0] == entity]
    return before[:MOST_NEIGHBOURS], after[:MOST_NEIGHBOURS]


def _rows(entity: str, tuples: Sequence[KnowledgeTuple], middle: float) -> Iterator[tuple[str, str, float]]:
    """Yield the label, relation name, and y position for each tuple. The positions are centered around `middle`."""
    top = middle - ROW_HEIGHT * (len(tuples) - 1) / 2
    for row, knowledge_tuple in enumerate(tuples):
        others = [other for other in knowledge_tuple.entities if other != entity] or [entity]
        label = shortened(" · ".join(others), LONGEST_LABEL)
        yield label, shortened(knowledge_tuple.relation.name, LONGEST_LABEL), top + ROW_HEIGHT * row


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = (x1 + x2) / 2
    return f"M {x1} {y1} C {bend} {y1} {bend} {y2} {x2} {y2}"


def shortened(text: str, longest: int) -> str:
    """Truncate `text` to `longest` columns. East Asian wide characters take two columns."""
    ends = list(accumulate(2 if east_asian_width(character) in "WF" else 1 for character in text))
    return text if not ends or ends[-1] <= longest else text[: bisect_left(ends, longest)].rstrip() + "…"
