"""What a round consists of once its samples are drawn: statements in their order, training, words on each relation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from annotation.gold.services import Gold, choose_gold, gold_task, training_statement
from annotation.models import Draw, JudgmentTask, Round, TrainingStatement
from annotation.rounds.builder import Sample, draw_samples, draws_of, find_relation, tasks_of
from annotation.rounds.instructions import relation_guide
from annotation.rounds.sampling import random_order
from annotation.rounds.spec import RoundSpec
from kgharvest.models import Relation


class Frozen(NamedTuple):
    """Nothing of it is stored yet. statements: gold included, by position. guides: Markdown by a relation's id."""

    samples: list[Sample]
    statements: list[JudgmentTask]
    training: list[TrainingStatement]
    guides: dict[str, str]

    def draws(self) -> Iterator[Draw]:
        return draws_of(self.samples, {task.knowledge_tuple_id: task for task in self.statements})


def freeze(round: Round, spec: RoundSpec) -> Frozen:
    """Return what opening the draft stores; the same for the same spec, harvests and gold.

    Raises what draw_samples and choose_gold raise.
    """
    rng = np.random.default_rng(round.seed)
    samples = draw_samples(spec, rng)
    relations = {sample.stratum.relation_id: sample.stratum.relation for sample in samples}
    tasks = tasks_of(round, samples)
    gold = choose_gold(round, relations.values(), [one for sample in samples for one in sample.tuples], len(tasks))
    statements = [*tasks.values(), *(gold_task(round, statement) for statement in gold.mixed_in)]
    for task, position in zip(statements, random_order(len(statements), rng), strict=True):
        task.position = position
    return Frozen(
        samples,
        sorted(statements, key=lambda task: task.position),
        [training_statement(round, place, statement) for place, statement in enumerate(gold.training)],
        _guides(spec, relations.values(), gold),
    )


def _guides(spec: RoundSpec, relations: Iterable[Relation], gold: Gold) -> dict[str, str]:
    written = {
        find_relation(name, "relation_instructions").pk: text for name, text in spec.relation_instructions.items()
    }
    return {str(one.pk): written.get(one.pk) or relation_guide(one, *gold.examples[one.pk]) for one in relations}
