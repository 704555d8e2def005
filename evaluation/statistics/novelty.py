"""How much of a harvest is not in a reference KG: the last column of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Entities = Sequence[str]


class Novelty(NamedTuple):
    n_entities: int
    n_new_entities: int
    n_tuples: int
    n_new_tuples: int


def comparable(entity: str) -> str:
    """Return an entity as it is compared: case-folded, underscores and runs of spaces as one space."""
    return " ".join(entity.casefold().replace("_", " ").split())


@dataclass
class Wanted:
    """The entities and tuples that are looked for, and which of them a reference has shown so far.

    Only what was harvested is held in memory, so that the reference may be as large as it likes.
    """

    entities: set[str] = field(default_factory=set)
    ends: set[tuple[str, str]] = field(default_factory=set)
    found_entities: set[str] = field(default_factory=set)
    found_ends: set[tuple[str, str]] = field(default_factory=set)

    def want(self, entities: Entities) -> None:
        names = [comparable(entity) for entity in entities]
        self.entities.update(names)
        self.ends.add((names[0], names[-1]))

    def look_through(self, triples: Iterable[tuple[str, str]]) -> int:
        """Note what the (head, tail) pairs of a reference hold; return how many there were."""
        n_triples = 0
        for head, tail in triples:
            n_triples += 1
            ends = comparable(head), comparable(tail)
            self.found_entities.update(self.entities.intersection(ends))
            if ends in self.ends:
                self.found_ends.add(ends)
        return n_triples

    def novelty(self, tuples: Iterable[Entities]) -> Novelty:
        """Return how many distinct entities and tuples of `tuples`, all wanted before, the reference has not shown."""
        named = {tuple(map(comparable, entities)) for entities in tuples}
        entities = {entity for names in named for entity in names}
        n_new_tuples = sum((names[0], names[-1]) not in self.found_ends for names in named)
        return Novelty(len(entities), len(entities - self.found_entities), len(named), n_new_tuples)
