"""The picture of an entity and its neighbours: the entity in the middle, what comes before it on the left, what comes
after it on the right. The same tuples give the same picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgharvest.models import KnowledgeTuple

MOST_NEIGHBOURS = 8  # on each side
LONGEST_LABEL = 20  # characters
WIDTH, ROW_HEIGHT, MARGIN = 680, 44, 18
MIDDLE = WIDTH / 2
COLUMN = 184  # width of the neighbours' labels
HALF_CENTRE = 78  # half the width of the entity's box


@dataclass(frozen=True)
class Neighbour:
    """The other entities of a tuple, and the line to them: from (x1, y1) at the left to (x2, y2) at the right."""

    label: str
    relation: str
    is_after: bool
    y: float
    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def bend(self) -> float:
        """Where the line turns from the height of its start to that of its end."""
        return (self.x1 + self.x2) / 2

    @property
    def x(self) -> float:
        return self.x2 + 8 if self.is_after else self.x1 - 8


@dataclass(frozen=True)
class Graph:
    label: str
    neighbours: tuple[Neighbour, ...]
    height: int
    width: int = WIDTH

    centre: float = MIDDLE
    box_x: float = MIDDLE - HALF_CENTRE
    box_width: float = 2 * HALF_CENTRE

    @property
    def middle(self) -> float:
        return self.height / 2

    @property
    def box_y(self) -> float:
        return self.middle - 18


def draw_graph(entity: str, tuples: Sequence[KnowledgeTuple]) -> Graph:
    """Lay out the first tuples, best first. A tuple whose first slot has the entity is on the right."""
    after = [known for known in tuples if known.entities[0] == entity][:MOST_NEIGHBOURS]
    before = [known for known in tuples if known.entities[0] != entity][:MOST_NEIGHBOURS]
    height = ROW_HEIGHT * max(len(after), len(before), 1) + 2 * MARGIN
    neighbours = (*_column(entity, before, height, False), *_column(entity, after, height, True))
    return Graph(shortened(entity, 18), neighbours, height)


def _column(entity: str, tuples: Sequence[KnowledgeTuple], height: int, is_after: bool) -> list[Neighbour]:
    top = (height - ROW_HEIGHT * len(tuples)) / 2 + ROW_HEIGHT / 2
    return [_neighbour(entity, known, top + ROW_HEIGHT * row, height / 2, is_after) for row, known in enumerate(tuples)]


def _neighbour(entity: str, known: KnowledgeTuple, y: float, middle: float, is_after: bool) -> Neighbour:
    others = [other for other in known.entities if other != entity] or [entity]
    label = shortened(" · ".join(others), LONGEST_LABEL)
    relation = shortened(known.relation.name, LONGEST_LABEL)
    if is_after:
        return Neighbour(label, relation, True, y, MIDDLE + HALF_CENTRE, middle, WIDTH - COLUMN, y)
    return Neighbour(label, relation, False, y, COLUMN, y, MIDDLE - HALF_CENTRE, middle)


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
