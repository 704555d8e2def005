"""Known facts and false tuples made from them, to test scores with (BertNet, section 4.3; Li et al. 2016)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

Entities = tuple[str, ...]

TRIES = 100  # at a false tuple of one kind, before another kind is tried


class Sample(NamedTuple):
    """A tuple claimed of a relation. corruption: what was replaced: an entity ("head", "tail", or "slot 1" between
    them) or the "relation"; None for a fact."""

    relation: str
    entities: Entities
    corruption: str | None


def with_corruptions(
    facts: Mapping[str, Sequence[Entities]],
    rng: np.random.Generator,
    also_true: Mapping[str, Iterable[Entities]] = MappingProxyType({}),
) -> list[Sample]:
    """Return each relation's facts and as many false tuples claimed of it, or fewer where no more can be made.

    A false tuple is a fact with an entity replaced by another that stands in the same slot of the relation's facts, or
    a fact of another relation of the same arity. It is never a known fact of its relation, or one of `also_true`, in
    any casing, nor made twice.
    """
    samples = []
    for relation, own in facts.items():
        known = {folded(entities) for entities in (*own, *also_true.get(relation, ()))}
        samples += [Sample(relation, entities, None) for entities in own]
        for entities in own:
            false = _corrupted(relation, entities, facts, known, rng)
            if false is not None:
                known.add(folded(false.entities))
                samples.append(false)
    return samples


def folded(entities: Entities) -> Entities:
    return tuple(entity.casefold() for entity in entities)


def _corrupted(
    relation: str, entities: Entities, facts: Mapping[str, Sequence[Entities]], known: set, rng: np.random.Generator
) -> Sample | None:
    """Return a false tuple with something replaced; what, is drawn first."""
    strangers = [name for name, own in facts.items() if name != relation and own and len(own[0]) == len(entities)]
    places = [*range(len(entities)), *(["relation"] if strangers else [])]
    for place in rng.permutation(np.array(places, dtype=object)):
        for _ in range(TRIES):
            if place == "relation":
                other = facts[strangers[rng.integers(len(strangers))]]
                tried = other[rng.integers(len(other))]
            else:
                donor = facts[relation][rng.integers(len(facts[relation]))]
                tried = (*entities[:place], donor[place], *entities[place + 1 :])
            if folded(tried) not in known:
                return Sample(relation, tried, _name(place, len(entities)))
    return None


def _name(place: int | str, arity: int) -> str:
    if place == "relation":
        return "relation"
    return {0: "head", arity - 1: "tail"}.get(place, f"slot {place}")
