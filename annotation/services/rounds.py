"""Open rounds on samples of harvests; pause, reopen and close them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

import numpy as np
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from annotation.models import Draw, JudgmentTask, Round, Stratum, Study, StudyMember
from annotation.round_specs import BadRoundSpec, CellSpec, RoundSpec, parse_round_spec
from annotation.sampling import draw_ranks, random_order
from annotation.services.events import record_event
from annotation.statements import freeze_statement
from kgharvest.errors import DomainError, NotFound
from kgharvest.models import HarvestedTuple, HarvestJob, Job
from kgharvest.services.cuts import parse_cut
from kgharvest.services.relations import resolve_relation
from kgharvest.services.tuples import kept_size

ROWS_AT_ONCE = 2000


class NameTaken(DomainError):
    """A round of this name exists."""


class NotInStudy(DomainError):
    """Opening a round in a study of other people."""


class NothingToSample(DomainError):
    """A cell without finished harvest or without enough tuples."""


class WrongStatus(DomainError):
    """Pausing, reopening or closing a round that cannot be."""


def open_round(document: dict[str, Any], by=None) -> Round:
    """Create a round from `document` (round_specs.EXAMPLE), draw its samples, freeze its statements and open it.

    Same document and harvests, same sample and order. Each cell is a simple random sample without replacement of what
    its cut keeps; a tuple drawn for several cells becomes one task with several draws. `by` becomes the owner of a
    study that is new; None is the operator of this installation. Raises BadRoundSpec, BadCut, NotFound, NameTaken,
    NotInStudy, NothingToSample; then nothing is stored.
    """
    spec = parse_round_spec(document)
    with transaction.atomic():
        round = _create_round(spec, by)
        strata = [_stratum(round, cell, f"cell {number}") for number, cell in enumerate(spec.cells, start=1)]
        _check_cells_differ(strata)
        Stratum.objects.bulk_create(strata)
        _create_tasks(round, strata)
        record_event(round, "opened", by=by, n_tasks=round.n_tasks)
        return round


def _create_round(spec: RoundSpec, by) -> Round:
    try:
        with transaction.atomic():
            return Round.objects.create(
                study=find_study(spec.study, by),
                name=spec.name,
                status=Round.Status.OPEN,
                source=spec.source,
                instructions=spec.instructions,
                layout=spec.layout,
                consent=spec.consent,
                takes_guests=spec.takes_guests,
                third_only_if_split=spec.third_only_if_split,
                gold_share=spec.gold_share,
                training_size=spec.training_size,
                max_per_annotator=spec.max_per_annotator,
                dominance_cap=spec.dominance_cap,
                closes_when=spec.closes_when,
                judgments_per_task=spec.judgments_per_task,
                batch_size=spec.batch_size,
                seed=spec.seed,
                spec=asdict(spec),
                created_by=by,
                opened_at=timezone.now(),
            )
    except IntegrityError:
        raise NameTaken(f"There is already a round named {spec.name!r}; choose another name.") from None


def find_study(name: str, by) -> Study:
    """Return the study of this name, made if there is none; raise NotInStudy if `by` may not open rounds in it."""
    study, is_new = Study.objects.get_or_create(name=name)
    if by is None or by.is_superuser:
        return study
    if is_new:
        study.members.create(user=by, role=StudyMember.Role.OWNER)
    elif not study.members.filter(user=by, role__in=StudyMember.MANAGING).exists():
        raise NotInStudy(f"You may not open rounds in the study {name!r}; ask its owner, or name another study.")
    return study


def find_round(name: str) -> Round:
    """Return the round of this name. Raises NotFound with the names there are."""
    round = Round.objects.filter(name=name).first()
    if round is None:
        names = ", ".join(Round.objects.values_list("name", flat=True)[:10]) or "none; open one first"
        raise NotFound(f"There is no round named {name!r}; the newest are: {names}.")
    return round


# -- samples -----------------------------------------------------------------------------------------------------------


def _stratum(round: Round, cell: CellSpec, where: str) -> Stratum:
    job = _job(cell, where)
    rank_to = kept_size(job, parse_cut(cell.cut) if cell.cut else None)
    population = _presentable(round, job).filter(rank__lte=rank_to).count()
    if population == 0:
        left = "after the cut " + cell.cut if cell.cut else "in its harvest"
        raise NothingToSample(f"There is no tuple {left} for {where} ({job}, job {job.pk}); choose another cut or job.")
    sample_size = population if cell.n is None else cell.n
    if sample_size > population:
        raise NothingToSample(
            f"{where.capitalize()} ({job}, job {job.pk}) has {population} tuples to draw from but n is {cell.n}; "
            "use a smaller n, or null for all."
        )
    return Stratum(
        round=round,
        relation=job.relation,
        language_model=job.language_model,
        setting=job.setting,
        job=job,
        cut=cell.cut,
        rank_to=rank_to,
        population=population,
        sample_size=sample_size,
    )


def _check_cells_differ(strata: Sequence[Stratum]) -> None:
    """A tuple drawn twice for one cell would count twice in its rate."""
    seen: dict[tuple, int] = {}
    for number, stratum in enumerate(strata, start=1):
        cell = (stratum.relation_id, stratum.language_model_id, stratum.setting)
        if cell in seen:
            raise BadRoundSpec(f"Cells {seen[cell]} and {number} are both {stratum.job}; take each cell once.")
        seen[cell] = number


def _job(cell: CellSpec, where: str) -> HarvestJob:
    jobs = HarvestJob.objects.with_cell()
    job = _newest_of_cell(jobs, cell) if cell.job is None else jobs.filter(pk=cell.job).first()
    if job is None:
        raise NotFound(f"There is no finished harvest for {where} ({_in_words(cell)}); harvest it first.")
    if job.status != Job.Status.SUCCEEDED:
        raise NothingToSample(f"Job {job.pk} of {where} is {job.status}; wait until it has succeeded.")
    return job


def _newest_of_cell(jobs, cell: CellSpec) -> HarvestJob | None:
    named = Q(language_model__name=cell.model) | Q(language_model__name__endswith=f"/{cell.model}")
    relation = resolve_relation(cell.relation)
    return jobs.succeeded().filter(named, relation=relation, setting=cell.setting).order_by("-pk").first()


def _in_words(cell: CellSpec) -> str:
    return f"job {cell.job}" if cell.job else f"{cell.relation} × {cell.model} × {cell.setting}"


def _sample(stratum: Stratum, rng: np.random.Generator) -> Iterator[HarvestedTuple]:
    """Yield the tuples drawn from a stratum, best first."""
    places = draw_ranks(1, stratum.population, stratum.sample_size, rng)
    ranks = {"rank__gte": stratum.rank_from, "rank__lte": stratum.rank_to}
    ranked = _presentable(stratum.round, stratum.job).filter(**ranks).order_by("rank").iterator(ROWS_AT_ONCE)
    return (harvested for place, harvested in enumerate(ranked, start=1) if place in places)


def _presentable(round: Round, job: HarvestJob) -> QuerySet:
    """Return what the round may draw of a job: no hidden tuples, and sensitive ones if its spec says so."""
    return job.tuples.presentable(include_sensitive=round.spec["include_sensitive"])


def _create_tasks(round: Round, strata: Sequence[Stratum]) -> None:
    rng = np.random.default_rng(round.seed)
    samples = [list(_sample(stratum, rng)) for stratum in strata]
    tasks = _tasks(round, strata, samples)
    positions = random_order(len(tasks), rng)
    for task, position in zip(tasks.values(), positions, strict=True):
        task.position = position
    # In the order of their positions, since annotators see ids: made cell by cell, ids would tell cell and rank.
    JudgmentTask.objects.bulk_create(sorted(tasks.values(), key=attrgetter("position")), batch_size=ROWS_AT_ONCE)
    Draw.objects.bulk_create(_draws(strata, samples, tasks), batch_size=ROWS_AT_ONCE)
    round.n_tasks = len(tasks)
    round.save(update_fields=["n_tasks"])


def _tasks(
    round: Round, strata: Sequence[Stratum], samples: Sequence[Sequence[HarvestedTuple]]
) -> dict[int, JudgmentTask]:
    """Return one unsaved task for each knowledge tuple, worded as the first cell that drew it has it."""
    tasks: dict[int, JudgmentTask] = {}
    for stratum, sample in zip(strata, samples, strict=True):
        template = stratum.relation.statement
        for harvested in sample:
            if harvested.knowledge_tuple_id not in tasks:
                tasks[harvested.knowledge_tuple_id] = _task(round, template, harvested)
    return tasks


def _task(round: Round, template: str, harvested: HarvestedTuple) -> JudgmentTask:
    statement = freeze_statement(template, harvested.surface)
    return JudgmentTask(
        round=round,
        knowledge_tuple_id=harvested.knowledge_tuple_id,
        statement=statement.text,
        spans=statement.spans,
        entities=harvested.surface,
        n_wanted=2 if round.third_only_if_split else round.judgments_per_task,
    )


def _draws(
    strata: Sequence[Stratum], samples: Sequence[Sequence[HarvestedTuple]], tasks: dict[int, JudgmentTask]
) -> Iterator[Draw]:
    for stratum, sample in zip(strata, samples, strict=True):
        for harvested in sample:
            yield Draw(
                stratum=stratum,
                task=tasks[harvested.knowledge_tuple_id],
                harvested_tuple=harvested,
                inclusion_probability=stratum.sample_size / stratum.population,
            )


# -- a round's life ----------------------------------------------------------------------------------------------------


@transaction.atomic
def pause_round(round: Round, by=None) -> None:
    """Stop handing out and taking judgments until the round is reopened."""
    _move(round, [Round.Status.OPEN], Round.Status.PAUSED)
    record_event(round, "paused", by=by)


@transaction.atomic
def reopen_round(round: Round, by=None) -> None:
    _move(round, [Round.Status.PAUSED, Round.Status.CLOSED], Round.Status.OPEN, closed_at=None)
    record_event(round, "reopened", by=by)


@transaction.atomic
def close_round(round: Round, by=None) -> None:
    """End judging. Tasks that are still open stay incomplete."""
    _move(round, [Round.Status.OPEN, Round.Status.PAUSED], Round.Status.CLOSED, closed_at=timezone.now())
    record_event(round, "closed", by=by, n_incomplete=round.tasks.filter(verdict="").count())


def _move(round: Round, sources: Sequence[str], target: str, **fields: Any) -> None:
    if not Round.objects.filter(pk=round.pk, status__in=sources).update(status=target, **fields):
        round.refresh_from_db(fields=["status"])
        raise WrongStatus(f"The round {round.name} is {round.status}; it cannot become {target}.")
    round.refresh_from_db(fields=["status", "closed_at"])
