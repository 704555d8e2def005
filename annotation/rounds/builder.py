"""Build a round from its description: draw a sample of each cell's harvest, word the statements, choose gold."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import numpy as np
from django.db.models import QuerySet

from annotation.gold.selection import choose_gold, gold_task, training_statement
from annotation.models import Draw, JudgmentTask, Round, TrainingStatement
from annotation.rounds.instructions import freeze_statement, relation_guide
from annotation.rounds.sampling import NothingToSample, Sample, draw_cell
from annotation.rounds.serializers import BadRoundSpec, Cell, cells_of
from kgharvest.errors import NotFound
from kgharvest.models import HarvestedTuple, HarvestJob, Job, LanguageModel, Relation
from kgharvest.names import UnresolvedName, resolve_name
from kgharvest.relations.names import resolve_relation


class FrozenRound(NamedTuple):
    """What opening a draft stores. tasks: gold included, by position. relation_instructions: by a relation's id."""

    relations: list[Relation]
    samples: list[Sample]
    tasks: list[JudgmentTask]
    training: list[TrainingStatement]
    relation_instructions: dict[str, str]

    def draws(self) -> list[Draw]:
        """Return that each stratum's sample contains its tasks, with their inclusion probability."""
        tasks = {task.knowledge_tuple_id: task for task in self.tasks}
        return [
            Draw(
                stratum=stratum,
                task=tasks[harvested.knowledge_tuple_id],
                harvested_tuple=harvested,
                inclusion_probability=stratum.sample_size / stratum.population,
            )
            for stratum, tuples in self.samples
            for harvested in tuples
        ]


def freeze_round(round: Round) -> FrozenRound:
    """Return what opening the draft stores; the same for the same description, harvests and gold.

    Raises BadRoundSpec, BadCut, NotFound, NothingToSample, NotEnoughGold.
    """
    rng = np.random.default_rng(round.seed)
    cells = _cells_with_jobs(round)
    written = instructions_by_relation(round)
    samples = [sample for cell, job, path in cells for sample in draw_cell(round, cell, job, path, rng)]
    # A tuple that several cells drew is one task, worded as the first of them has it.
    tasks: dict[int, JudgmentTask] = {}
    for stratum, tuples in samples:
        for harvested in tuples:
            if harvested.knowledge_tuple_id not in tasks:
                tasks[harvested.knowledge_tuple_id] = _task(round, stratum.relation.statement, harvested)
    relations = list({job.relation_id: job.relation for _, job, _ in cells}.values())
    gold = choose_gold(round, relations, [drawn for sample in samples for drawn in sample.tuples], len(tasks))
    statements = [*tasks.values(), *(gold_task(round, statement) for statement in gold.mixed_in)]
    for task, position in zip(statements, rng.permutation(len(statements)).tolist(), strict=True):
        task.position = position
    return FrozenRound(
        relations=relations,
        samples=samples,
        tasks=sorted(statements, key=attrgetter("position")),
        training=[training_statement(round, position, statement) for position, statement in enumerate(gold.training)],
        relation_instructions={
            str(relation.pk): written.get(relation.pk) or relation_guide(relation, *gold.examples[relation.pk])
            for relation in relations
        },
    )


def _task(round: Round, template: str, harvested: HarvestedTuple) -> JudgmentTask:
    statement = freeze_statement(template, harvested.surface)
    return JudgmentTask(
        round=round,
        knowledge_tuple=harvested.knowledge_tuple,
        statement=statement.text,
        spans=statement.spans,
        entities=harvested.surface,
        n_wanted=2 if round.third_only_if_split else round.judgments_per_task,
    )


# -- names in the description ------------------------------------------------------------------------------------------


def _cells_with_jobs(round: Round) -> list[tuple[Cell, HarvestJob, str]]:
    """Return the round's cells, each with its finished harvest and its path in the description."""
    cells = cells_of(round)
    jobs = HarvestJob.objects.with_cell()
    finished = jobs.succeeded()
    numbered = jobs.in_bulk([cell.job for cell in cells if cell.job])
    first: dict[tuple, str] = {}
    with_jobs = []
    for position, cell in enumerate(cells):
        path = f"cells[{position}]"
        job = numbered.get(cell.job) if cell.job else _newest_harvest(cell, finished, path)
        if job is None:
            raise NotFound(f"There is no finished harvest for {path} ({cell}); harvest it first.")
        if job.status != Job.Status.SUCCEEDED:
            raise NothingToSample(f"Job {job.pk} of {path} is {job.status}; wait until it has succeeded.")
        # A tuple drawn twice for one cell would count twice in its rate.
        other = first.setdefault((job.relation_id, job.language_model_id, job.setting), path)
        if other != path:
            raise BadRoundSpec(f"{other} and {path} are both {job}; take each cell once.")
        with_jobs.append((cell, job, path))
    return with_jobs


def _newest_harvest(cell: Cell, finished: QuerySet[HarvestJob], path: str) -> HarvestJob | None:
    relation = find_relation(cell.relation, f"{path}.relation")
    jobs = finished.filter(relation=relation, setting=cell.setting)
    model = cell.model
    if not LanguageModel.objects.filter(name=model).exists():  # else any LM's full name is its own
        try:
            model = resolve_name(model, jobs.values_list("language_model__name", flat=True), "LM")
        except UnresolvedName as refusal:
            if refusal.is_ambiguous:
                raise BadRoundSpec(f"{path}.model: {refusal}") from None
            return None
    return jobs.filter(language_model__name=model).order_by("-pk").first()


def find_relation(name: str, path: str) -> Relation:
    """Return the relation that `name` at `path` of a description means. Raises UnresolvedName, or BadRoundSpec."""
    try:
        return resolve_relation(name)
    except UnresolvedName as refusal:
        if refusal.is_ambiguous:
            raise BadRoundSpec(f"{path}: {refusal}") from None
        raise


def instructions_by_relation(round: Round) -> dict[int, str]:
    """Return what researchers wrote about relations, by a relation's id. Raises NotFound if one is gone."""
    written = round.spec.get("relation_instructions", {})
    return {find_relation(name, "relation_instructions").pk: text for name, text in written.items() if text}
