"""Launches, many harvests at once: plan with estimated duration, start, progress, cancel and retry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Count
from django.urls import reverse

from kgharvest.access import Action, check_may
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import batched
from kgharvest.chat_models.options import ChatOptions
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.settings import PROMPT_SETTINGS
from kgharvest.engine.types import MIN_CANDIDATES, EngineError, HarvestParams
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.harvests.language_models import language_model_for_pages, name_language_model
from kgharvest.harvests.runner import (
    CellUnderWay,
    HarvestRequest,
    check_harvest,
    create_harvest_job,
    lm_of,
    requests_for,
    unique_key_of,
)
from kgharvest.jobs import ledger, workers
from kgharvest.models import HarvestJob, Job, LanguageModel, Launch, Project, Relation
from kgharvest.pages.number_format import counted

JOBS_FOR_A_MEDIAN = 50  # the latest ones
JOBS_FOR_A_PACE = 20

LIKE_MANY = 2  # times as many candidates, at most, or as few, of a harvest that tells how long another one takes
SIZE_PARAMS = ("candidates", "max_tuples", "max_entity_tokens", "pattern_budget")
SIZE_COLUMNS = tuple(f"payload__spec__params__{name}" for name in SIZE_PARAMS)


class PaceKey(NamedTuple):
    """What harvests that take about the same time share.

    lm: with its device and dtype. n_candidates: of all token-count patterns together.
    """

    language_model: int
    lm: str
    setting: str
    arity: int
    n_candidates: int


class Skipped(NamedTuple):
    """A cell that needs no harvest, because `job` has the same parameters and has succeeded or is under way."""

    request: HarvestRequest
    job: HarvestJob


class Estimate(NamedTuple):
    """How long harvests take, roughly. seconds: of the `n_known` whose LM, setting and arity were harvested before.

    without_past: those of the others.
    """

    seconds: float
    n_known: int
    without_past: Sequence[PaceKey]

    @property
    def is_complete(self) -> bool:
        return not self.without_past


@dataclass(frozen=True)
class Plan:
    """What a launch would do. refusals: one sentence for each relation that cannot be harvested as it is.

    n_at_once: harvests that the workers of now do at the same time.
    """

    project: Project
    requests: Sequence[HarvestRequest]
    skipped: Sequence[Skipped]
    refusals: Sequence[str]
    n_at_once: int
    estimate: Estimate

    @property
    def n_cells(self) -> int:
        return len(self.requests) + len(self.skipped)

    @property
    def without_past(self) -> list[str]:
        """Return each LM x setting of which no past harvest tells how long it takes, with what is unusual about it."""
        unknown = [request for request in self.requests if _pace_key(request) in self.estimate.without_past]
        return list(dict.fromkeys(map(_kind_in_words, unknown)))


# -- planning ----------------------------------------------------------------------------------------------------------


def named_requests(
    relations: Iterable[Relation],
    models: Iterable[str],
    chat_models: Iterable[str],
    settings: Sequence[str],
    params: HarvestParams,
    chat: ChatOptions,
    **placement: str,
) -> Iterator[HarvestRequest]:
    """Yield the harvests of LMs and chat models that a client names. Raises NotFound, NoChatModel."""
    language_models = [language_model_for_pages(name) for name in dict.fromkeys(models)]
    chat_lms = [name_language_model(name) for name in dict.fromkeys(chat_models)]
    if chat.scorer:
        chat = replace(chat, scorer=str(language_model_for_pages(chat.scorer)))
    yield from requests_for(relations, language_models, settings, chat_lms, params=params, chat=chat, **placement)


def plan_launch(
    requests: Iterable[HarvestRequest], now: datetime, again: bool = False, by=None, project: Project | None = None
) -> Plan:
    """Return what launching `requests` would do. Cells under way, and unless `again` those harvested, are skipped.

    project: where `by` launches them, if there are several; what other projects harvest does not matter. The number of
    queries does not depend on the number of relations. Raises NotAllowed, ProjectNotNamed.
    """
    project = project_for(by, project)
    cells = {unique_key_of(request): request for request in requests}
    statuses = [Job.Status.QUEUED, Job.Status.RUNNING, *([] if again else [Job.Status.SUCCEEDED])]
    known = _jobs_by_key(project, cells.values(), statuses)
    todo = {key: request for key, request in cells.items() if key not in known}
    refusals = {}
    for request in todo.values():
        try:
            check_harvest(request, by)
        except (DomainError, EngineError) as refusal:
            refusals[str(refusal)] = None
    n_at_once = workers.n_processes(now)
    return Plan(
        project=project,
        requests=list(todo.values()),
        skipped=[Skipped(request, known[key]) for key, request in cells.items() if key in known],
        refusals=list(refusals),
        n_at_once=n_at_once,
        estimate=_estimate(Counter(map(_pace_key, todo.values())), n_at_once),
    )


def _jobs_by_key(
    project: Project, requests: Iterable[HarvestRequest], statuses: Sequence[str]
) -> dict[str, HarvestJob]:
    """Return the harvests of these cells by what they were asked; of several the newest that has succeeded."""
    requests = list(requests)
    jobs = HarvestJob.objects.with_cell().filter(
        kind="harvest",
        project=project,
        status__in=statuses,
        relation__in={request.relation.pk for request in requests},
        language_model__in={request.language_model.pk for request in requests},
        setting__in={request.setting for request in requests},
    )
    finished_last = sorted(jobs, key=lambda job: (job.status == Job.Status.SUCCEEDED, job.pk))
    return {job.unique_key: job for job in finished_last}


# -- how long ----------------------------------------------------------------------------------------------------------


def _pace_key(request: HarvestRequest) -> PaceKey:
    setting, arity = request.setting, request.relation.arity
    n_candidates = _n_candidates(request.params, setting, arity)
    return PaceKey(request.language_model.pk, lm_of(request), setting, arity, n_candidates)


def _n_candidates(params: HarvestParams, setting: str, arity: int) -> int:
    """Return how many candidates a harvest has in all; what a chat model lists has no token-count patterns."""
    return params.n_candidates_in_all(arity) if setting in PROMPT_SETTINGS else params.n_candidates


def _n_asked(sizes: Sequence[Any], setting: str, arity: int) -> int:
    """Return the same of a job. sizes: of SIZE_COLUMNS, None where its payload has none."""
    asked = {name: size for name, size in zip(SIZE_PARAMS, sizes, strict=True) if size is not None}
    return _n_candidates(HarvestParams(**asked), setting, arity)


def _kind_in_words(request: HarvestRequest) -> str:
    arity, params = request.relation.arity, request.params
    unusual = [f"arity {arity}"] if arity > 2 else []
    is_shared = params.pattern_budget == "shared"
    if params.n_candidates != MIN_CANDIDATES or is_shared:
        unusual.append(counted(params.n_candidates, "candidate") + (" in all" if is_shared else ""))
    if params.max_entity_tokens != HarvestParams.max_entity_tokens:
        unusual.append(f"entities of up to {counted(params.max_entity_tokens, 'token')}")
    if (request.device, request.dtype) != (DEFAULT_DEVICE, DEFAULT_DTYPE):
        unusual.append(f"{request.dtype} on {request.device}")
    return ", ".join([f"{request.language_model.short_name} × {request.setting}", *unusual])


def _estimate(n_jobs: Counter[PaceKey], n_at_once: int) -> Estimate:
    """Add up the median durations of jobs of which `n_at_once` go on together; none of them takes less than its own."""
    medians = {pace_key: _median_seconds(pace_key) for pace_key in n_jobs}
    known = {pace_key: n for pace_key, n in n_jobs.items() if medians[pace_key] is not None}
    shared = sum(n * medians[pace_key] for pace_key, n in known.items()) / max(1, n_at_once)
    longest = max((medians[pace_key] for pace_key in known), default=0)
    without_past = [pace_key for pace_key in n_jobs if pace_key not in known]
    return Estimate(max(shared, longest), sum(known.values()), without_past)


def _median_seconds(pace_key: PaceKey) -> float | None:
    """Return how long those of the latest harvests of the kind took that had about as many candidates; None if none."""
    past = HarvestJob.objects.succeeded().filter(
        kind="harvest",
        language_model=pace_key.language_model,
        lm=pace_key.lm,
        setting=pace_key.setting,
        relation__arity=pace_key.arity,
        started_at__isnull=False,
    )
    latest = past.order_by("-pk").values_list("started_at", "finished_at", *SIZE_COLUMNS)[:JOBS_FOR_A_MEDIAN]
    durations = [
        (end - start).total_seconds()
        for start, end, *sizes in latest
        if 1 / LIKE_MANY <= _n_asked(sizes, pace_key.setting, pace_key.arity) / pace_key.n_candidates <= LIKE_MANY
    ]
    return median(durations) if durations else None


# -- starting ----------------------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """A launch, and the plan as it was carried out."""

    launch: Launch
    plan: Plan


@transaction.atomic
def start_launch(plan: Plan, by=None) -> Started:
    """Queue all that the plan asks for, or nothing. Raises NothingToLaunch, RelationNotReady, BadPrompt or NotAllowed.

    Cells that somebody else has launched since the plan was made are skipped.
    """
    check_may(by, Action.WORK, plan.project)
    # Launches of the same LMs wait for each other: two that insert the same cells in other orders would deadlock.
    lms = {request.language_model.pk for request in plan.requests}
    list(LanguageModel.objects.filter(pk__in=lms).order_by("pk").select_for_update(no_key=True))
    launch = Launch.objects.create(project=plan.project, created_by=by)
    jobs, queued, skipped = [], [], list(plan.skipped)
    for request in plan.requests:
        try:
            jobs.append(create_harvest_job(request, by, launch))
            queued.append(request)
        except CellUnderWay as refusal:
            skipped.append(Skipped(request, refusal.job))
    if not queued:
        raise DomainError(
            "NothingToLaunch",
            f"All of this (cells: {plan.n_cells}) was harvested before with the same parameters, or is about to be; "
            "tick Harvest again, or give --again, to harvest anew what has ended.",
        )
    ledger.enqueue(*jobs)
    return Started(launch, replace(plan, requests=queued, skipped=skipped))


# -- watching ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchProgress:
    """How far a launch is. counts: jobs by status, every status named; n_over counts those that have ended, however.

    per_minute: harvests that end in a minute at the pace of the latest; seconds_left: rough; None while unknown.
    """

    counts: dict[str, int]
    per_minute: float | None
    seconds_left: float | None

    @property
    def n_jobs(self) -> int:
        return sum(self.counts.values())

    @property
    def n_unfinished(self) -> int:
        return self.counts[Job.Status.QUEUED] + self.counts[Job.Status.RUNNING]

    @property
    def n_over(self) -> int:
        return self.n_jobs - self.n_unfinished

    def bar(self) -> list[tuple[str, float, float]]:
        """Return status, begin and width of each part of a bar of width 1000: what is done first, cancelled ones last.

        What waits is the gap between them.
        """
        width = {status: 1000 * n / max(1, self.n_jobs) for status, n in self.counts.items()}
        parts, begin = [], 0.0
        for status in (Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.RUNNING):
            parts.append((status.value, begin, width[status]))
            begin += width[status]
        cancelled = width[Job.Status.CANCELLED]
        return [*parts, (Job.Status.CANCELLED.value, 1000 - cancelled, cancelled)]


def progress_of(launch: Launch, now: datetime) -> LaunchProgress:
    counted = dict(launch.jobs.order_by().values_list("status").annotate(Count("pk")))
    counts = {status.value: counted.get(status, 0) for status in Job.Status}
    n_unfinished = counts[Job.Status.QUEUED] + counts[Job.Status.RUNNING]
    if not n_unfinished:
        return LaunchProgress(counts, None, None)
    latest = launch.jobs.succeeded().filter(started_at__isnull=False).order_by("-finished_at")
    starts = list(latest.values_list("started_at", flat=True)[:JOBS_FOR_A_PACE])
    elapsed_s = (now - min(starts)).total_seconds() if starts else 0
    per_minute = 60 * len(starts) / elapsed_s if elapsed_s > 0 else None
    return LaunchProgress(counts, per_minute, _seconds_left(launch, per_minute, now))


def _seconds_left(launch: Launch, per_minute: float | None, now: datetime) -> float | None:
    """Return what is left at this pace where all harvests of the launch are alike, else by the past of each kind."""
    kinds = ("language_model", "lm", "setting", "relation__arity")
    unfinished = launch.jobs.unfinished().values_list(*kinds, *SIZE_COLUMNS)
    waiting: Counter[PaceKey] = Counter()
    for lm_id, lm, setting, arity, *sizes in unfinished:
        waiting[PaceKey(lm_id, lm, setting, arity, _n_asked(sizes, setting, arity))] += 1
    at_pace = waiting.total() / per_minute * 60 if per_minute else None
    if at_pace is not None and launch.jobs.order_by().values(*kinds).distinct().count() == 1:
        return at_pace
    estimate = _estimate(waiting, workers.n_processes(now))
    return estimate.seconds if estimate.is_complete else at_pace


# -- changing ----------------------------------------------------------------------------------------------------------


def cancel_launch(launch: Launch, by=None) -> int:
    """Cancel every unfinished harvest of the launch; return how many. Raises NotAllowed."""
    check_may(by, Action.WORK, launch.project)
    return ledger.cancel_all(Job.objects.filter(harvestjob__launch=launch))


def retry_failed(launch: Launch, by=None) -> int:
    """Queue the failed harvests of the launch again; return how many. Raises NotAllowed."""
    check_may(by, Action.WORK, launch.project)
    return ledger.retry_all(Job.objects.filter(harvestjob__launch=launch, status=Job.Status.FAILED))


def retry_cancelled(launch: Launch, by=None) -> int:
    """Queue the cancelled harvests of the launch again; return how many. Raises NotAllowed."""
    check_may(by, Action.WORK, launch.project)
    return ledger.retry_all(Job.objects.filter(harvestjob__launch=launch, status=Job.Status.CANCELLED))


# -- events ------------------------------------------------------------------------------------------------------------


def record_ended_jobs(job_ids: Sequence[int]) -> None:
    """Record which of these jobs of projects have succeeded or failed, and which launches end with them.

    Within the transaction that ends the jobs. Launches are locked, so that exactly one of the jobs that end at the same
    moment is the last one of its launch.
    """
    ended = Job.objects.whole().exclude(project=None).filter(status__in=[Job.Status.SUCCEEDED, Job.Status.FAILED])
    launch_ids: set[int] = set()
    for some in batched(job_ids, ledger.JOBS_AT_ONCE):
        for job in ended.filter(pk__in=some).select_related("harvestjob").order_by("pk"):
            facts = {"job": job.pk, "kind": job.kind, "status": job.status}
            harvest = getattr(job, "harvestjob", None)
            path, texts = "" if harvest else reverse("home"), {"error": job.error}
            record("job.finished", harvest or job, None, job.project_id, texts=texts, path=path, **facts)
        launched = HarvestJob.objects.filter(pk__in=some, launch__isnull=False).order_by()
        launch_ids.update(launched.values_list("launch", flat=True).distinct())
    launches = Launch.objects.filter(pk__in=launch_ids)
    for launch in launches.order_by("pk").select_for_update(of=("self",), no_key=True):
        counts = Counter(launch.jobs.order_by().values_list("status", flat=True))
        if counts[Job.Status.QUEUED] + counts[Job.Status.RUNNING]:
            continue
        statuses = (Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED)
        facts = {"launch": launch.pk, **{f"n_{status.value}": counts[status] for status in statuses}}
        record("launch.finished", launch, None, launch.project_id, **facts)
