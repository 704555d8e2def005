"""Launches of many harvests: planning with estimated durations, starting, progress, canceling, and retrying."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Count, Q
from django.urls import reverse

from kgharvest.access import Action, check_may
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import batched
from kgharvest.chat_models.options import ChatOptions
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.settings import PROMPT_SETTINGS, SETTINGS
from kgharvest.engine.types import EngineError, HarvestParams
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
from kgharvest.pages.number_format import counted, duration

JOBS_FOR_MEDIAN = 50  # number of latest jobs used to estimate the duration
JOBS_FOR_PACE = 20
MAX_SIZE_RATIO = 2  # two harvests have comparable durations if the ratio of their numbers of candidates is at most this
SIZE_PARAMS = ("candidates", "max_tuples", "max_entity_tokens", "pattern_budget", "heads", "order")
SIZE_COLUMNS = tuple(f"payload__spec__params__{name}" for name in SIZE_PARAMS)


class PaceKey(NamedTuple):
    """Key that is the same for harvests with about the same duration.

    lm: LM with device and dtype. n_candidates: total number over all token-count patterns.
    """

    language_model: int
    lm: str
    setting: str
    arity: int
    n_candidates: int


class Skipped(NamedTuple):
    """A cell that is not harvested, because `job` has the same parameters and has succeeded or is unfinished."""

    request: HarvestRequest
    job: HarvestJob


class NothingToLaunch(DomainError):
    """Other requests have launched all harvests of the plan."""


class Estimate(NamedTuple):
    """Rough estimate of the duration of harvests.

    seconds: duration of the `n_estimated` harvests for which there are comparable past harvests. without_past: keys of
    the other harvests.
    """

    seconds: float
    n_estimated: int
    without_past: Sequence[PaceKey]

    @property
    def is_complete(self) -> bool:
        return not self.without_past


@dataclass(frozen=True)
class Plan:
    """Plan of a launch. refusals: one sentence for each relation that cannot be harvested.

    all_requests: the planned cells in their order: those to harvest (`requests`) and the skipped ones. n_parallel:
    number of harvests that the current workers run in parallel.
    """

    project: Project
    all_requests: Sequence[HarvestRequest]
    requests: Sequence[HarvestRequest]
    skipped: Sequence[Skipped]
    refusals: Sequence[str]
    n_parallel: int
    estimate: Estimate

    @property
    def n_cells(self) -> int:
        return len(self.all_requests)

    @property
    def without_past(self) -> list[str]:
        """Return the pairs of LM and setting without comparable past harvests."""
        unknown = [request for request in self.requests if _pace_key(request) in self.estimate.without_past]
        return list(dict.fromkeys(map(_kind_in_words, unknown)))


def named_requests(
    relations: Iterable[Relation],
    models: Iterable[str],
    chat_models: Iterable[str],
    settings: Sequence[str],
    params: HarvestParams,
    chat: ChatOptions,
    **placement: str,
) -> Iterator[HarvestRequest]:
    """Yield the harvests of the named LMs and chat models. Raises NotFound or NoChatModel."""
    language_models = [language_model_for_pages(name) for name in dict.fromkeys(models)]
    chat_lms = [name_language_model(name) for name in dict.fromkeys(chat_models)]
    if chat.scorer:
        chat = replace(chat, scorer=str(language_model_for_pages(chat.scorer)))
    yield from requests_for(relations, language_models, settings, chat_lms, params=params, chat=chat, **placement)


def plan_launch(
    requests: Iterable[HarvestRequest], now: datetime, again: bool = False, by=None, project: Project | None = None
) -> Plan:
    """Plan a launch of `requests`. Skips cells that are unfinished or, unless `again`, were already harvested.

    project: required if `by` may work in several projects. Only harvests of this project count. The number of queries
    is independent of the number of relations. Raises NotAllowed or ProjectNotNamed.
    """
    project = project_for(by, project)
    cells = {unique_key_of(request): request for request in requests}
    statuses = [Job.Status.QUEUED, Job.Status.RUNNING, *([] if again else [Job.Status.SUCCEEDED])]
    jobs = HarvestJob.objects.with_cell().filter(
        kind="harvest",
        project=project,
        status__in=statuses,
        relation__in={request.relation.pk for request in cells.values()},
        language_model__in={request.language_model.pk for request in cells.values()},
        setting__in={request.setting for request in cells.values()},
    )
    succeeded_last = sorted(jobs, key=lambda job: (job.status == Job.Status.SUCCEEDED, job.pk))
    job_of = {job.unique_key: job for job in succeeded_last}
    new_cells = {key: request for key, request in cells.items() if key not in job_of}
    refusals = {}
    for request in new_cells.values():
        try:
            check_harvest(request, by)
        except (DomainError, EngineError) as refusal:
            refusals[str(refusal)] = None
    n_parallel = workers.n_processes(now)
    return Plan(
        project=project,
        all_requests=list(cells.values()),
        requests=list(new_cells.values()),
        skipped=[Skipped(request, job_of[key]) for key, request in cells.items() if key in job_of],
        refusals=list(refusals),
        n_parallel=n_parallel,
        estimate=_estimate(Counter(map(_pace_key, new_cells.values())), n_parallel),
    )


def _pace_key(request: HarvestRequest) -> PaceKey:
    setting, arity = request.setting, request.relation.arity
    n_candidates = _n_candidates(request.params, setting, arity)
    return PaceKey(request.language_model.pk, lm_of(request), setting, arity, n_candidates)


def _n_candidates(params: HarvestParams, setting: str, arity: int) -> int:
    """Return the total number of candidates of a harvest.

    For chat models, there are no token-count patterns to sum over.
    """
    return params.n_candidates_in_all(arity) if setting in PROMPT_SETTINGS else params.n_candidates


def _n_candidates_of_job(sizes: Sequence[Any], setting: str, arity: int) -> int:
    """Return the total number of candidates of a job.

    sizes: values of SIZE_COLUMNS, None for those that the payload lacks.
    """
    params = {name: size for name, size in zip(SIZE_PARAMS, sizes, strict=True) if size is not None}
    return _n_candidates(HarvestParams(**params), setting, arity)


def _kind_in_words(request: HarvestRequest) -> str:
    is_default = (request.device, request.dtype) == (DEFAULT_DEVICE, DEFAULT_DTYPE)
    placement = "" if is_default else f", {request.dtype} on {request.device}"
    return f"{request.language_model.short_name} × {request.setting}{placement}"


def _estimate(n_jobs: Counter[PaceKey], n_parallel: int) -> Estimate:
    """Return the estimated duration. It is the sum of the median durations divided by the number of parallel jobs.

    The estimate is at least the longest median duration.
    """
    medians = {pace_key: seconds for pace_key in n_jobs if (seconds := _median_seconds(pace_key)) is not None}
    shared = sum(n_jobs[pace_key] * seconds for pace_key, seconds in medians.items()) / max(1, n_parallel)
    without_past = [pace_key for pace_key in n_jobs if pace_key not in medians]
    n_estimated = sum(n_jobs[pace_key] for pace_key in medians)
    return Estimate(max(shared, *medians.values(), 0), n_estimated, without_past)


def _median_seconds(pace_key: PaceKey) -> float | None:
    """Return the median duration of the latest harvests of the LM, scaled by their sizes, or None if there are none.

    Harvests with the same setting and arity, and among these harvests of about the same size, are preferred. Settings
    that learn prompts predict only each other.
    """
    past = HarvestJob.objects.succeeded().filter(
        kind="harvest", language_model=pace_key.language_model, lm=pace_key.lm, started_at__isnull=False
    )
    learns = pace_key.setting in SETTINGS and SETTINGS[pace_key.setting].learns
    alike = [name for name in PROMPT_SETTINGS if SETTINGS[name].learns == learns]
    for similar in ({"setting": pace_key.setting, "relation__arity": pace_key.arity}, {"setting__in": alike}):
        latest = past.filter(**similar).order_by("-pk")
        columns = ("started_at", "finished_at", "setting", "relation__arity", *SIZE_COLUMNS)
        timed = [
            ((end - start).total_seconds(), _n_candidates_of_job(sizes, setting, arity) / pace_key.n_candidates)
            for start, end, setting, arity, *sizes in latest.values_list(*columns)[:JOBS_FOR_MEDIAN]
        ]
        near = [(seconds, ratio) for seconds, ratio in timed if 1 / MAX_SIZE_RATIO <= ratio <= MAX_SIZE_RATIO]
        if timed:
            return median(seconds / ratio for seconds, ratio in near or timed)
    return None


def summary_of_plan(plan: Plan) -> str:
    """Return one sentence with the numbers of planned and skipped harvests and the expected duration."""
    n, n_skipped = len(plan.requests), len(plan.skipped)
    estimate = f", {_duration_of(plan)}" if n else ""
    skipped = f"; {n_skipped} skipped as finished or in progress (--again repeats finished harvests)"
    return f"{n} of {plan.n_cells} cells to harvest{estimate}{skipped if n_skipped else ''}."


def _duration_of(plan: Plan) -> str:
    estimate = plan.estimate
    parallel = f"{plan.n_parallel} in parallel" if plan.n_parallel > 1 else "one at a time"
    if estimate.is_complete:
        return f"about {duration(estimate.seconds)}, {parallel}"
    no_past = f"no past harvests of {', '.join(plan.without_past)}"
    if not estimate.n_estimated:
        return f"duration unknown ({no_past})"
    return f"at least {duration(estimate.seconds)} for {estimate.n_estimated} of them, {parallel} ({no_past})"


@transaction.atomic
def start_launch(plan: Plan, by=None) -> tuple[Launch, Plan]:
    """Queue all harvests of the plan, or none if one fails. Return the launch and the plan as executed.

    Cells that another request has launched since the plan was made are skipped. Raises NothingToLaunch,
    RelationNotReady, BadPrompt, or NotAllowed.
    """
    check_may(by, Action.WORK, plan.project)
    # Lock the LMs. Otherwise, concurrent launches that insert the same cells in different orders would deadlock.
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
        raise NothingToLaunch(
            f"Nothing to launch: {counted(plan.n_cells, 'cell')} skipped because of finished or unfinished harvests "
            "with the same parameters. To repeat finished harvests, select Repeat finished harvests or add --again.",
        )
    ledger.enqueue(*jobs)
    return launch, replace(plan, requests=queued, skipped=skipped)


@dataclass(frozen=True)
class LaunchProgress:
    """Progress of a launch.

    counts: number of jobs by status, for every status. n_over: number of jobs that succeeded, failed, or were canceled.
    per_minute: rate at which the latest harvests finished. seconds_left: estimated remaining time in seconds. Rate and
    estimate are None while unknown.
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
        """Return (status, start, width) for each segment of a progress bar of width 1000.

        Canceled jobs come last. The gap before them represents queued jobs.
        """
        width = {status: 1000 * n / max(1, self.n_jobs) for status, n in self.counts.items()}
        parts, start = [], 0.0
        for status in (Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.RUNNING):
            parts.append((status.value, start, width[status]))
            start += width[status]
        cancelled = width[Job.Status.CANCELLED]
        return [*parts, (Job.Status.CANCELLED.value, 1000 - cancelled, cancelled)]


def progress_of(launch: Launch, now: datetime) -> LaunchProgress:
    n_jobs = dict(launch.jobs.order_by().values_list("status").annotate(Count("pk")))
    counts = {status.value: n_jobs.get(status, 0) for status in Job.Status}
    if not counts[Job.Status.QUEUED] + counts[Job.Status.RUNNING]:
        return LaunchProgress(counts, None, None)
    latest = launch.jobs.succeeded().filter(started_at__isnull=False).order_by("-finished_at")
    starts = list(latest.values_list("started_at", flat=True)[:JOBS_FOR_PACE])
    elapsed_s = (now - min(starts)).total_seconds() if starts else 0
    per_minute = 60 * len(starts) / elapsed_s if elapsed_s > 0 else None
    # If all harvests are alike, the remaining time is based on the current pace. Otherwise, it is based on past
    # harvests.
    kinds = ("language_model", "lm", "setting", "relation__arity")
    unfinished = launch.jobs.unfinished().values_list(*kinds, *SIZE_COLUMNS)
    n_left = Counter(
        PaceKey(lm_id, lm, setting, arity, _n_candidates_of_job(sizes, setting, arity))
        for lm_id, lm, setting, arity, *sizes in unfinished
    )
    at_pace = n_left.total() / per_minute * 60 if per_minute else None
    if at_pace is not None and launch.jobs.order_by().values(*kinds).distinct().count() == 1:
        return LaunchProgress(counts, per_minute, at_pace)
    estimate = _estimate(n_left, workers.n_processes(now))
    return LaunchProgress(counts, per_minute, estimate.seconds if estimate.is_complete else at_pace)


def cancel_launch(launch: Launch, by=None) -> int:
    """Cancel the unfinished harvests of the launch. Return their number. Raises NotAllowed."""
    check_may(by, Action.WORK, launch.project)
    return ledger.cancel_all(Job.objects.filter(harvestjob__launch=launch))


def retry_failed(launch: Launch, by=None) -> int:
    """Requeue the failed harvests of the launch. Return their number. Raises NotAllowed."""
    check_may(by, Action.WORK, launch.project)
    return ledger.retry_all(Job.objects.filter(harvestjob__launch=launch, status=Job.Status.FAILED))


def retry_cancelled(launch: Launch, by=None) -> int:
    """Requeue the canceled harvests of the launch. Return their number. Raises NotAllowed."""
    check_may(by, Action.WORK, launch.project)
    return ledger.retry_all(Job.objects.filter(harvestjob__launch=launch, status=Job.Status.CANCELLED))


def record_ended_jobs(job_ids: Sequence[int]) -> None:
    """Record an event for each job of a project that succeeded or failed, or was canceled after its start.

    Also record an event for each launch that these jobs complete.

    Call it in the transaction that ends the jobs. The launches are locked. If several jobs of a launch end at the same
    time, exactly one of them therefore counts as the last.
    """
    is_finished = Q(status__in=[Job.Status.SUCCEEDED, Job.Status.FAILED])
    is_cancelled = Q(status=Job.Status.CANCELLED, started_at__isnull=False)  # its results, such as answers, remain
    ended = Job.objects.whole().exclude(project=None).filter(is_finished | is_cancelled)
    launch_ids: set[int] = set()
    for batch in batched(job_ids, ledger.JOBS_AT_ONCE):
        for job in ended.filter(pk__in=batch).select_related("harvestjob").order_by("pk"):
            facts = {"job": job.pk, "kind": job.kind, "status": job.status}
            harvest = getattr(job, "harvestjob", None)
            if job.status == Job.Status.CANCELLED:
                record("job.cancelled", harvest or job, None, job.project_id, job=job.pk, kind=job.kind)
                continue
            path, texts = "" if harvest else reverse("home"), {"error": job.error}
            record("job.finished", harvest or job, None, job.project_id, texts=texts, path=path, **facts)
        launched = HarvestJob.objects.filter(pk__in=batch, launch__isnull=False).order_by()
        launch_ids.update(launched.values_list("launch", flat=True).distinct())
    launches = Launch.objects.filter(pk__in=launch_ids)
    for launch in launches.order_by("pk").select_for_update(of=("self",), no_key=True):
        counts = Counter(launch.jobs.order_by().values_list("status", flat=True))
        if counts[Job.Status.QUEUED] + counts[Job.Status.RUNNING]:
            continue
        statuses = (Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED)
        facts = {"launch": launch.pk, **{f"n_{status.value}": counts[status] for status in statuses}}
        record("launch.finished", launch, None, launch.project_id, **facts)
