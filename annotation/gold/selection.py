"""Selection of the examples, training statements, and gold statements of a round.

Gold statements are written in the casing of the sampled tuples.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, zip_longest
from math import ceil
from random import Random
from typing import NamedTuple

from annotation.models import GoldDecision, Label, Round, TrainingStatement
from annotation.rounds.instructions import freeze_statement
from kgharvest.entities.tables import canonical_entities
from kgharvest.errors import DomainError
from kgharvest.models import KnowledgeTuple, Project, Relation, tuple_key

ROUNDING = 1e-9
NEARLY_ALL = 0.9


class DrawnTuple(NamedTuple):
    """A harvested tuple of a sample. pk: harvested tuple id. surface: entities as written in the harvest.

    references: links and short texts from an imported file, or None.
    """

    pk: int
    knowledge_tuple_id: int
    relation_id: int
    key: str
    surface: list[str]
    references: list[str] | None


class GoldStatement(NamedTuple):
    """A gold statement. reason: explanation of the label, shown in training. canonical: entities in canonical form."""

    relation: Relation
    entities: Sequence[str]
    canonical: Sequence[str]
    label: str
    reason: str

    @property
    def key(self) -> tuple[int, str]:
        return self.relation.pk, tuple_key(self.canonical)


class Gold(NamedTuple):
    """Gold of a round.

    examples: entities of a true and of a false statement, by relation id; None for a missing statement.
    """

    mixed_in: list[GoldStatement]
    training: list[GoldStatement]
    examples: dict[int, tuple[Sequence[str] | None, Sequence[str] | None]]


def choose_gold(round: Round, relations: Iterable[Relation], drawn: Iterable[DrawnTuple], n_tasks: int) -> Gold:
    """Choose examples, training, and gold, without overlap, for a round with `n_tasks` other statements.

    True and false statements are balanced, so always answering True does not pay off. The casing of gold is adapted to
    the drawn tuples. Raises NotEnoughGold.
    """
    relations, drawn = list(relations), list(drawn)
    gold = known_answers(relations, round.project_id)
    examples = {
        pk: (true[0].entities if true else None, false[0].entities if false else None)
        for pk, (true, false) in gold.items()
    }
    if not round.gold_share and not round.training_size:
        return Gold([], [], examples)
    drawn_keys = {(harvested.relation_id, harvested.key) for harvested in drawn}
    rng = Random(round.seed)
    true, false = (_by_turns([answers[side][1:] for answers in gold.values()], drawn_keys, rng) for side in (0, 1))
    n_pairs = min(len(true), len(false))
    # The share refers to all statements: with a share of 0.1, one gold statement is added to 9 tasks.
    n_mixed_in = ceil(n_tasks * round.gold_share / (1 - round.gold_share) - ROUNDING)
    needed = ceil((round.training_size + (2 if round.gold_share else 0)) / 2)
    if n_pairs < needed:
        raise DomainError(
            "NotEnoughGold",
            f"Training and gold require {needed} true and {needed} false gold statements, in addition to one true and "
            f"one false example, but there are {n_pairs} pairs of a true and a false statement. Confirm false gold "
            "statements, or reduce training and gold.",
        )
    in_pairs = list(chain.from_iterable(zip(true[:n_pairs], false[:n_pairs], strict=True)))
    training = in_pairs[: round.training_size]
    rng.shuffle(training)
    return Gold(_with_casing_of(drawn, in_pairs[len(training) :][:n_mixed_in]), training, examples)


def _with_casing_of(drawn: Iterable[DrawnTuple], gold: Iterable[GoldStatement]) -> list[GoldStatement]:
    surfaces = defaultdict(list)
    for harvested in drawn:
        surfaces[harvested.relation_id].append(harvested.surface)
    by_slot = {relation: casings(tuples) for relation, tuples in surfaces.items()}
    return [
        statement._replace(
            entities=[
                casing.write(entity)
                for casing, entity in zip(by_slot[statement.relation.pk], statement.entities, strict=True)
            ]
        )
        for statement in gold
    ]


def known_answers(
    relations: Sequence[Relation], project: Project | int | None
) -> dict[int, tuple[list[GoldStatement], list[GoldStatement]]]:
    """Return the true and the false gold statements for rounds of the project, by relation id.

    Confirmed false statements that have since become seed tuples are excluded.
    """
    confirmed = defaultdict(list)
    decisions = GoldDecision.objects.in_force().of(project).filter(relation__in=relations, is_confirmed=True)
    for decision in decisions.order_by("pk"):
        confirmed[decision.relation_id].append(decision)
    tuples = {
        relation: [*relation.seed_tuples, *(decision.entities for decision in confirmed[relation.pk])]
        for relation in relations
    }
    forms = canonical_entities(tuples)
    gold = {}
    for relation in relations:
        decisions, canonical = confirmed[relation.pk], forms[relation.pk]
        reason = "It is one of the examples that define this relation."
        true = [GoldStatement(relation, seed, canonical(seed), Label.TRUE, reason) for seed in relation.seed_tuples]
        seeds = {statement.key for statement in true}
        false = []
        for decision in decisions:
            fact = freeze_statement(relation.statement, decision.seed).text
            reason = f"The correct statement is: {fact}"
            statement = GoldStatement(relation, decision.entities, canonical(decision.entities), Label.FALSE, reason)
            if statement.key not in seeds:
                false.append(statement)
        gold[relation.pk] = true, false
    return gold


def _by_turns(
    by_relation: Iterable[Sequence[GoldStatement]], excluded_keys: Collection[tuple[int, str]], rng: Random
) -> list[GoldStatement]:
    """Return the statements that are not excluded. Relations alternate; the order within a relation is random."""
    free = [[statement for statement in statements if statement.key not in excluded_keys] for statements in by_relation]
    for statements in free:
        rng.shuffle(statements)
    return [statement for turn in zip_longest(*free) for statement in turn if statement is not None]


def store_gold_tuple(gold: GoldStatement) -> KnowledgeTuple:
    """Return the stored tuple of the gold statement.

    Create it if it is missing, without adding it to the knowledge base.
    """
    return KnowledgeTuple.objects.get_or_create(
        relation=gold.relation, key=tuple_key(gold.canonical), defaults={"entities": list(gold.canonical)}
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


class Casing:
    """Casing of the entities in one slot of a sample."""

    def __init__(self, entities: Iterable[str]):
        entities = list(entities)
        self._written = {entity.casefold(): entity for entity in reversed(entities)}
        n_capitalised = sum(entity != entity.lower() for entity in entities)
        self._share_capitalised = n_capitalised / len(entities) if entities else None

    def write(self, entity: str) -> str:
        """Return `entity` as written in the sample.

        An entity that is not in the sample follows the majority: it is written in lower case if nearly all entities of
        the sample are in lower case, and with initial capitals if nearly all contain capitals. Otherwise, it is
        unchanged.
        """
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
    """Return the casing of each slot, or [] if there are no tuples."""
    return [Casing(entities) for entities in zip(*tuples, strict=True)]
