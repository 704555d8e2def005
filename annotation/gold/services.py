"""Statements with known answers: seed tuples are true; corrupted ones are false once a person has said so."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from math import ceil
from random import Random
from typing import NamedTuple

from django.db.models import Count

from annotation.models import GoldDecision, JudgmentTask, Label, Round, TrainingStatement
from annotation.rounds.instructions import freeze_statement
from kgharvest.errors import DomainError
from kgharvest.models import HarvestedTuple, KnowledgeTuple, Relation, tuple_key

CANDIDATES_AT_ONCE = 400
HARVESTED_AT_ONCE = 50  # tuples of the harvests that lend their entities


class NotEnoughGold(DomainError):
    """A round that wants more statements with known answers than there are."""


# -- what a person decides on ------------------------------------------------------------------------------------------


class GoldCandidate(NamedTuple):
    """A seed tuple with the entity of `slot` replaced by another one of that slot."""

    entities: list[str]
    seed: list[str]
    slot: int

    @property
    def key(self) -> str:
        return tuple_key(self.entities)

    @property
    def code(self) -> str:
        """A name for forms."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


def gold_candidates(relation: Relation) -> list[GoldCandidate]:
    """Return corrupted seeds on which nobody has decided, in an order of their own; at most CANDIDATES_AT_ONCE.

    None is a seed tuple, and none was found by a harvest: an LM may well be right.
    """
    candidates = {candidate.key: candidate for candidate in _corrupted_seeds(relation)}
    keys = sorted(candidates.keys() - {tuple_key(seed) for seed in relation.seed_tuples})
    Random(relation.pk).shuffle(keys)
    keys = keys[: 2 * CANDIDATES_AT_ONCE]
    known = set(relation.knowledge_tuples.found().filter(key__in=keys).values_list("key", flat=True))
    decided = set(relation.gold_decisions.values_list("key", flat=True))
    return [candidates[key] for key in keys if key not in known | decided][:CANDIDATES_AT_ONCE]


def _corrupted_seeds(relation: Relation) -> Iterator[GoldCandidate]:
    for slot, entities in enumerate(_entities_by_slot(relation)):
        for seed in relation.seed_tuples:
            others = {entity.casefold() for entity in seed}
            for entity in entities:
                if entity.casefold() not in others:
                    yield GoldCandidate([*seed[:slot], entity, *seed[slot + 1 :]], seed, slot)


def _entities_by_slot(relation: Relation) -> list[list[str]]:
    best = HarvestedTuple.objects.presentable().filter(job__relation=relation, rank__lte=HARVESTED_AT_ONCE)
    harvested = best.order_by("rank", "pk").values_list("surface", flat=True)[:HARVESTED_AT_ONCE]
    return [list(dict.fromkeys(entities)) for entities in zip(*relation.seed_tuples, *harvested, strict=True)]


def decide_on_gold(relation: Relation, decisions: Mapping[str, bool], by=None) -> int:
    """Store which candidates, by code, are false for certain and which are not; return how many were stored.

    What is no candidate any more, because somebody decided it meanwhile, is passed over.
    """
    candidates = {candidate.code: candidate for candidate in gold_candidates(relation)}
    wanted = [
        GoldDecision(
            relation=relation,
            entities=candidates[code].entities,
            key=candidates[code].key,
            seed=candidates[code].seed,
            slot=candidates[code].slot,
            is_confirmed=is_confirmed,
            decided_by=by,
        )
        for code, is_confirmed in decisions.items()
        if code in candidates
    ]
    GoldDecision.objects.bulk_create(wanted, ignore_conflicts=True)
    return len(wanted)


def confirmed_counts(relations: Iterable[Relation]) -> dict[int, int]:
    """Return how many confirmed false statements there are, by the id of a relation that has some."""
    confirmed = GoldDecision.objects.filter(relation__in=relations, is_confirmed=True).order_by()
    return dict(confirmed.values_list("relation").annotate(n=Count("pk")))


def withdraw_gold(decision: GoldDecision) -> None:
    """Forget a decision; rounds that are open keep their gold."""
    decision.delete()


# -- what a round uses -------------------------------------------------------------------------------------------------


class GoldStatement(NamedTuple):
    """reason: why the label is right, for people in training."""

    relation: Relation
    entities: Sequence[str]
    label: str
    reason: str

    @property
    def key(self) -> tuple[int, str]:
        return self.relation.pk, tuple_key(self.entities)


class Gold(NamedTuple):
    """examples: by a relation's id, the entities of a true and a false statement, None where there is none."""

    mixed_in: list[GoldStatement]
    training: list[GoldStatement]
    examples: dict[int, tuple[Sequence[str] | None, Sequence[str] | None]]


def choose_gold(round: Round, relations: Iterable[Relation], drawn: Iterable[HarvestedTuple], n_tasks: int) -> Gold:
    """Choose examples, training and gold for a round of `n_tasks` other statements; none serves twice.

    As many true as false ones, so that saying True to everything is no success. What is mixed in is written with the
    capitals of the tuples drawn. Raises NotEnoughGold.
    """
    relations, drawn = list(relations), list(drawn)
    known = {relation.pk: _known_answers(relation, decisions) for relation, decisions in _decided(relations)}
    examples = {pk: (_entities_of_first(true), _entities_of_first(false)) for pk, (true, false) in known.items()}
    taken = {(harvested.knowledge_tuple.relation_id, harvested.knowledge_tuple.key) for harvested in drawn}
    rng = Random(round.seed)
    true, false = (_pool([answers[side][1:] for answers in known.values()], taken, rng) for side in (0, 1))
    n_pairs = min(len(true), len(false))
    n_mixed_in = _n_mixed_in(round.gold_share, n_tasks)
    _check_enough(round, n_pairs)
    by_turns = list(chain.from_iterable(zip(true[:n_pairs], false[:n_pairs], strict=True)))
    training = by_turns[: round.training_size]
    rng.shuffle(training)
    return Gold(_written_as(drawn, by_turns[len(training) :][:n_mixed_in]), training, examples)


def _written_as(drawn: Iterable[HarvestedTuple], gold: Iterable[GoldStatement]) -> list[GoldStatement]:
    surfaces = defaultdict(list)
    for harvested in drawn:
        surfaces[harvested.knowledge_tuple.relation_id].append(harvested.surface)
    by_slot = {relation: casings(tuples) for relation, tuples in surfaces.items()}
    return [
        one._replace(
            entities=[
                casing.write(entity) for casing, entity in zip(by_slot[one.relation.pk], one.entities, strict=True)
            ]
        )
        for one in gold
    ]


def _n_mixed_in(gold_share: float, n_tasks: int) -> int:
    return ceil(round(n_tasks * gold_share / (1 - gold_share), 9))  # 0.1 of 10 is 1


def _decided(relations: Sequence[Relation]) -> Iterator[tuple[Relation, list[GoldDecision]]]:
    confirmed = defaultdict(list)
    for decision in GoldDecision.objects.filter(relation__in=relations, is_confirmed=True).order_by("pk"):
        confirmed[decision.relation_id].append(decision)
    return ((relation, confirmed[relation.pk]) for relation in relations)


def _known_answers(
    relation: Relation, decisions: Iterable[GoldDecision]
) -> tuple[list[GoldStatement], list[GoldStatement]]:
    """Return the true and the false statements of a relation. What has become a seed since is not false."""
    true = [
        GoldStatement(relation, seed, Label.TRUE, "It is one of the examples that say what is meant here.")
        for seed in relation.seed_tuples
    ]
    seeds = {tuple_key(seed) for seed in relation.seed_tuples}
    false = [
        GoldStatement(relation, decision.entities, Label.FALSE, f"What holds is: {_in_words(relation, decision.seed)}")
        for decision in decisions
        if decision.key not in seeds
    ]
    return true, false


def _in_words(relation: Relation, entities: Sequence[str]) -> str:
    return freeze_statement(relation.statement, entities).text


def _entities_of_first(statements: Sequence[GoldStatement]) -> Sequence[str] | None:
    return statements[0].entities if statements else None


def _pool(
    by_relation: Iterable[Sequence[GoldStatement]], taken: Collection[tuple[int, str]], rng: Random
) -> list[GoldStatement]:
    """Return what is not taken, the relations by turns, each in random order."""
    left = [[one for one in statements if one.key not in taken] for statements in by_relation]
    for statements in left:
        rng.shuffle(statements)
    return [one for turn in zip_longest(*left) for one in turn if one is not None]


def _check_enough(round: Round, n_pairs: int) -> None:
    needed = ceil((round.training_size + (2 if round.gold_share else 0)) / 2)
    if n_pairs < needed:
        raise NotEnoughGold(
            f"Training and gold need {needed} true and {needed} false statements with known answers, besides one of "
            f"each as an example, but there are {n_pairs} of both; confirm false ones on the page of known answers, "
            "or ask for less."
        )


def gold_task(round: Round, gold: GoldStatement) -> JudgmentTask:
    """Return an unsaved task on an unsaved tuple (remember_gold). It looks like any other."""
    statement = freeze_statement(gold.relation.statement, gold.entities)
    return JudgmentTask(
        round=round,
        knowledge_tuple=KnowledgeTuple(
            relation=gold.relation, entities=[entity.casefold() for entity in gold.entities], key=gold.key[1]
        ),
        statement=statement.text,
        spans=statement.spans,
        entities=list(gold.entities),
        is_gold=True,
        gold_label=gold.label,
        n_wanted=0,
    )


def remember_gold(claim: KnowledgeTuple) -> KnowledgeTuple:
    """Return the stored tuple that is the same claim; what no harvest found stays out of the knowledge base."""
    return KnowledgeTuple.objects.get_or_create(
        relation=claim.relation, key=claim.key, defaults={"entities": claim.entities}
    )[0]


def training_statement(round: Round, position: int, gold: GoldStatement) -> TrainingStatement:
    statement = freeze_statement(gold.relation.statement, gold.entities)
    return TrainingStatement(
        round=round,
        position=position,
        statement=statement.text,
        spans=statement.spans,
        label=gold.label,
        reason=gold.reason,
    )


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
