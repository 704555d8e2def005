"""Negative sampling: false tuples made from known facts, to test scores with (BertNet, section 4.3; Li et al. 2016)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

Entities = tuple[str, ...]
Facts = Mapping[str, Sequence[Entities]]  # by relation

TRIES = 100  # at a false tuple of one kind, before another kind is tried


class Sample(NamedTuple):
    """A tuple claimed of a relation.

    replaced: what makes it false, an entity ("head", "tail", or "slot 1" between them) or the "relation"; None for a
    fact.
    """

    relation: str
    entities: Entities
    replaced: str | None


def with_negatives(
    facts: Facts,
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
            negative = _negative_sample(relation, entities, facts, known, rng)
            if negative is not None:
                known.add(folded(negative.entities))
                samples.append(negative)
    return samples


def folded(entities: Entities) -> Entities:
    return tuple(entity.casefold() for entity in entities)


def _negative_sample(
    relation: str,
    entities: Entities,
    facts: Facts,
    known: set[Entities],
    rng: np.random.Generator,
) -> Sample | None:
    """Return a false tuple with something replaced; what, is drawn first."""
    strangers = [name for name, own in facts.items() if name != relation and own and len(own[0]) == len(entities)]
    slots: list[int | None] = [*range(len(entities)), *([None] if strangers else [])]  # None: the relation
    for index in rng.permutation(len(slots)):
        slot = slots[index]
        for _ in range(TRIES):
            if slot is None:
                other = facts[strangers[int(rng.integers(len(strangers)))]]
                tried = other[int(rng.integers(len(other)))]
            else:
                donor = facts[relation][int(rng.integers(len(facts[relation])))]
                tried = (*entities[:slot], donor[slot], *entities[slot + 1 :])
            if folded(tried) not in known:
                return Sample(relation, tried, _name(slot, len(entities)))
    return None


def _name(slot: int | None, arity: int) -> str:
    if slot is None:
        return "relation"
    return {0: "head", arity - 1: "tail"}.get(slot, f"slot {slot}")
