"""Write known answers with the capitals that harvested entities have, so that gold cannot be told by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NEARLY_ALL = 0.9


class Casing:
    """How entities of one slot are written among those that were found."""

    def __init__(self, found: Iterable[str]):
        found = list(found)
        self._written = {entity.casefold(): entity for entity in reversed(found)}
        n_capitalised = sum(entity != entity.lower() for entity in found)
        self._share_capitalised = n_capitalised / len(found) if found else None

    def write(self, entity: str) -> str:
        """Return `entity` as it was found; else in lower case or with capitals where nearly all are; else as it is."""
        if entity.casefold() in self._written:
            return self._written[entity.casefold()]
        if self._share_capitalised is None:
            return entity
        if self._share_capitalised <= 1 - NEARLY_ALL:
            return entity.lower()
        if self._share_capitalised >= NEARLY_ALL:
            return " ".join(word[:1].upper() + word[1:] for word in entity.split(" "))
        return entity


def casings(tuples: Iterable[Sequence[str]]) -> list[Casing]:
    """Return how `tuples` write their entities, by slot; empty if there are none."""
    return [Casing(entities) for entities in zip(*tuples, strict=True)]
