"""Negative sampling: false tuples from known facts, to evaluate scores (BertNet, section 4.3; Li et al. 2016)."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

Entities = tuple[str, ...]
Facts = Mapping[str, Sequence[Entities]]  # by relation

TRIES = 100  # attempts per kind of replacement


class Sample(NamedTuple):
    """A fact or false tuple of a relation.

    replaced: "head", "tail", "slot 1" (an entity between them), or "relation" for a false tuple; None for a fact.
    """

    relation: str
    entities: Entities
    replaced: str | None


def with_negatives(
    facts: Facts, rng: np.random.Generator, also_true: Mapping[str, Iterable[Entities]] = MappingProxyType({})
) -> list[Sample]:
    """Return each relation's facts and an equal number of false tuples, or fewer if not enough can be created.

    A false tuple is a fact with one entity replaced by an entity from the same slot of the relation's facts, or a fact
    of another relation with the same arity. A false tuple never equals a fact of its relation, a tuple in `also_true`,
    or another false tuple. Case is ignored.
    """
    samples = []
    for relation, tuples in facts.items():
        excluded = {folded(entities) for entities in (*tuples, *also_true.get(relation, ()))}
        samples += [Sample(relation, entities, None) for entities in tuples]
        for entities in tuples:
            negative = _negative_sample(relation, entities, facts, excluded, rng)
            if negative is not None:
                excluded.add(folded(negative.entities))
                samples.append(negative)
    return samples


def folded(entities: Entities) -> Entities:
    return tuple(entity.casefold() for entity in entities)


def _negative_sample(
    relation: str, entities: Entities, facts: Facts, excluded: set[Entities], rng: np.random.Generator
) -> Sample | None:
    """Return a false tuple, or None. The kind of replacement is drawn first."""
    other_relations = [
        name for name, tuples in facts.items() if name != relation and tuples and len(tuples[0]) == len(entities)
    ]
    slots: list[int | None] = [*range(len(entities)), *([None] if other_relations else [])]  # None: the relation
    for index in rng.permutation(len(slots)):
        slot = slots[index]
        for _ in range(TRIES):
            if slot is None:
                tuples = facts[other_relations[int(rng.integers(len(other_relations)))]]
                candidate = tuples[int(rng.integers(len(tuples)))]
            else:
                donor = facts[relation][int(rng.integers(len(facts[relation])))]
                candidate = (*entities[:slot], donor[slot], *entities[slot + 1 :])
            if folded(candidate) not in excluded:
                names = {None: "relation", 0: "head", len(entities) - 1: "tail"}
                return Sample(relation, candidate, names.get(slot, f"slot {slot}"))
    return None
