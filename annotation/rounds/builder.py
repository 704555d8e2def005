"""Draw a round's sample from the harvests of its cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from annotation.gold.services import Gold, choose_gold, gold_task, training_statement
from annotation.models import Draw, JudgmentTask, Round, Stratum, TrainingStatement
from annotation.rounds.instructions import relation_guide
from annotation.rounds.sampling import allocate, draw_ranks, random_order, rank_strata
from annotation.rounds.spec import BadRoundSpec, CellSpec, RoundSpec
from annotation.rounds.statements import freeze_statement
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.cuts import parse_cut
from kgharvest.harvests.language_models import resolve_model_name
from kgharvest.harvests.tuples import kept_size
from kgharvest.models import HarvestedTuple, HarvestJob, Job, LanguageModel, Relation
from kgharvest.names import UnresolvedName
from kgharvest.relations.names import resolve_relation

ROWS_AT_ONCE = 500  # parameters of one query


class NothingToSample(DomainError):
    """A cell without finished harvest or without enough tuples."""


class Sample(NamedTuple):
    """What was drawn from one stratum, best first; nothing of it is stored yet."""

    stratum: Stratum
    tuples: list[HarvestedTuple]

    @property
    def inclusion_probability(self) -> float:
        return self.stratum.sample_size / self.stratum.population


def draw_samples(spec: RoundSpec, rng: np.random.Generator) -> list[Sample]:
    """Return a sample of each stratum of each cell, simple and without replacement within the stratum.

    Populations are what the cell's cut keeps, less what is hidden or, unless the spec includes them, sensitive.
    Raises BadRoundSpec, BadCut, NotFound, NothingToSample.
    """
    numbered = HarvestJob.objects.with_cell().in_bulk([cell.job for cell in spec.cells if cell.job])
    jobs = [_job(cell, f"cells[{place}]", numbered) for place, cell in enumerate(spec.cells)]
    _check_cells_differ(jobs)
    return [
        _draw(stratum, ranks, rng)
        for place, (cell, job) in enumerate(zip(spec.cells, jobs, strict=True))
        for stratum, ranks in _strata(cell, job, f"cells[{place}]", spec.include_sensitive)
    ]


def _job(cell: CellSpec, path: str, numbered: Mapping[int, HarvestJob]) -> HarvestJob:
    job = numbered.get(cell.job) if cell.job else _newest_of_cell(cell, path)
    if job is None:
        raise NotFound(f"There is no finished harvest for {path} ({cell}); harvest it first.")
    if job.status != Job.Status.SUCCEEDED:
        raise NothingToSample(f"Job {job.pk} of {path} is {job.status}; wait until it has succeeded.")
    return job


def _newest_of_cell(cell: CellSpec, path: str) -> HarvestJob | None:
    relation = find_relation(cell.relation, f"{path}.relation")
    jobs = HarvestJob.objects.with_cell().succeeded().filter(relation=relation, setting=cell.setting)
    try:
        model = resolve_model_name(cell.model, among=LanguageModel.objects.filter(jobs__in=jobs))
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


def _check_cells_differ(jobs: Sequence[HarvestJob]) -> None:
    """A tuple drawn twice for one cell would count twice in its rate."""
    seen: dict[tuple, int] = {}
    for place, job in enumerate(jobs):
        cell = (job.relation_id, job.language_model_id, job.setting)
        if cell in seen:
            raise BadRoundSpec(f"cells[{seen[cell]}] and cells[{place}] are both {job}; take each cell once.")
        seen[cell] = place


def _strata(
    cell: CellSpec, job: HarvestJob, path: str, include_sensitive: bool
) -> Iterator[tuple[Stratum, Sequence[int]]]:
    """Yield the cell's strata, unsaved, each with the ranks it is drawn from."""
    ranks = _ranks(cell, job, include_sensitive)
    strata = rank_strata(ranks, cell.strata)
    n = len(ranks) if cell.n is None else cell.n
    _check_size(n, len(ranks), len(strata), f"{path} ({job}, job {job.pk})", cell.cut)
    shares = allocate(n, [len(part) for part in strata], cell.allocation)
    for part, sample_size in zip(strata, shares, strict=True):
        yield _stratum(cell, job, part, sample_size), part


def _ranks(cell: CellSpec, job: HarvestJob, include_sensitive: bool) -> list[int]:
    kept = job.tuples.presentable(include_sensitive=include_sensitive)
    if cell.cut:
        kept = kept.filter(rank__lte=kept_size(job, parse_cut(cell.cut)))
    return list(kept.order_by("rank").values_list("rank", flat=True))


def _check_size(n: int, population: int, n_strata: int, where: str, cut: str) -> None:
    if population == 0:
        left = f"after the cut {cut}" if cut else "in its harvest"
        raise NothingToSample(f"There is no tuple {left} for {where}; choose another cut or job.")
    if n > population:
        raise NothingToSample(
            f"{where} has {population} tuples to draw from but n is {n}; use a smaller n, or null for all."
        )
    if n < n_strata:
        raise NothingToSample(f"{where} has {n_strata} strata but n is {n}; draw at least one tuple from each.")


def _stratum(cell: CellSpec, job: HarvestJob, ranks: Sequence[int], sample_size: int) -> Stratum:
    return Stratum(
        relation=job.relation,
        language_model=job.language_model,
        setting=job.setting,
        job=job,
        cut=cell.cut,
        rank_from=ranks[0],
        rank_to=ranks[-1],
        population=len(ranks),
        sample_size=sample_size,
    )


def _draw(stratum: Stratum, ranks: Sequence[int], rng: np.random.Generator) -> Sample:
    drawn = draw_ranks(ranks, stratum.sample_size, rng)
    tuples = stratum.job.tuples.select_related("knowledge_tuple__relation").order_by("rank")
    parts = (drawn[start : start + ROWS_AT_ONCE] for start in range(0, len(drawn), ROWS_AT_ONCE))
    return Sample(stratum, [harvested for part in parts for harvested in tuples.filter(rank__in=part)])


# -- tasks -------------------------------------------------------------------------------------------------------------


def tasks_of(round: Round, samples: Sequence[Sample]) -> dict[int, JudgmentTask]:
    """Return one unsaved task for each knowledge tuple drawn, worded as the first cell that drew it has it."""
    tasks: dict[int, JudgmentTask] = {}
    for sample in samples:
        template = sample.stratum.relation.statement
        for harvested in sample.tuples:
            if harvested.knowledge_tuple_id not in tasks:
                tasks[harvested.knowledge_tuple_id] = _task(round, template, harvested)
    return tasks


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


def draws_of(samples: Sequence[Sample], tasks: dict[int, JudgmentTask]) -> Iterator[Draw]:
    for sample in samples:
        for harvested in sample.tuples:
            yield Draw(
                stratum=sample.stratum,
                task=tasks[harvested.knowledge_tuple_id],
                harvested_tuple=harvested,
                inclusion_probability=sample.inclusion_probability,
            )


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
