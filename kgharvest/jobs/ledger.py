"""The job ledger: enqueue, schedule, claim, heartbeat, finish, cancel, retry, and recovery of lost jobs.

The broker only wakes workers; the database is the source of truth. A message names no job: the worker that receives it
asks `next_job` for a job of the message's queue. A message can arrive twice, late or never, and a worker can die at any
line. Every change of state is one conditional UPDATE whose row count is checked, so the second of two racing processes
changes nothing.

Waiting jobs are never forgotten. A worker that has ended a job sends a message for the next one (`wake_next`), and a
worker with an idle process looks at the ledger every few seconds (`wake_idle`).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import monotonic, sleep
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Least
from django.utils import timezone
from django.utils.module_loading import import_string

from kgharvest.access import Action, check_may
from kgharvest.audit.tables import batched
from kgharvest.engine.types import Cancelled, EngineError, OnProgress, Progress, ignore
from kgharvest.errors import DomainError, is_connection_lost
from kgharvest.jobs import messages, workers
from kgharvest.jobs.queues import GPU, HARVEST, QUEUES, queue_of
from kgharvest.models import Job, Worker
from kgharvest.operations.clock import shared_now
from kgharvest.operations.logs import request_id
from kgharvest.registries import hook

logger = logging.getLogger(__name__)

REPORT_EVERY_S = 0.4  # between two reports of one stage; a cancelled job notices with the next
DATABASE_IS_AWAY = (OperationalError, InterfaceError)  # or was for a moment; InterfaceError: a connection that was cut
RECONNECT_EVERY_S = 1
ENDED_LAST = timedelta(days=1)  # housekeeping jobs
OVERTAKEN_AT_MOST = timedelta(minutes=10)  # many loads of an LM, few harvests that people wait for
JOBS_AT_ONCE = 1000  # named in one statement: PostgreSQL takes 65,535 parameters
MOST_ATTEMPTS = 20  # of a job, those that a cut connection ended among them
GAVE_UP = (
    "The worker died or the database failed during this job as often as it was tried, perhaps for lack of memory; "
    "ask for fewer candidates or a smaller LM, then retry."
)
UNEXPECTED = "An unexpected error stopped this job; the worker's log has the details under job {}."

Store = Callable[[], None]  # writes what a runner found; called inside the transaction that ends the job


# -- enqueueing --------------------------------------------------------------------------------------------------------


def enqueue(*jobs: Job) -> None:
    """Wake workers for new jobs once the transaction is committed."""
    wake_for({job.pk: queue_of(job.kind, job.payload) for job in jobs})


def wake_for(queues: Mapping[int, str]) -> None:
    """Wake workers for queued jobs, given as {job id: queue}, once the transaction is committed.

    Sends each queue one message, or one for each idle process if there are as many jobs. A broker that is down or hangs
    costs the caller a second at most, and never a job (kgharvest.jobs.messages).
    """
    n_jobs = Counter(queues.values())
    idle = workers.idle_processes(shared_now()) if len(queues) > 1 else {}
    woken = [queue for queue, n in n_jobs.items() for _ in range(min(n, max(1, idle.get(queue, 0))))]
    transaction.on_commit(lambda: [messages.wake(queue, request_id.get()) for queue in woken])


def enqueue_once(kind: str) -> None:
    """Queue a housekeeping job of this kind for the whole installation, unless one is unfinished."""
    if Job.objects.unfinished().filter(kind=kind, project=None, finished_at=None).exists():
        return
    try:
        with transaction.atomic():
            enqueue(Job.objects.create(kind=kind, unique_key=kind))
    except IntegrityError:
        logger.debug("Another process has queued the job %s.", kind)


def delete_ended(kind: str) -> None:
    """Delete housekeeping jobs of this kind that ended more than ENDED_LAST ago."""
    long_ago = timezone.now() - ENDED_LAST
    ended = Job.objects.filter(kind=kind, project=None, finished_at__lt=long_ago).order_by("finished_at")
    while some := list(ended.values_list("pk", flat=True)[:JOBS_AT_ONCE]):
        Job.objects.filter(pk__in=some).delete()


# -- scheduling --------------------------------------------------------------------------------------------------------


def next_job(queue: str, now: datetime, in_memory: Collection[str]) -> int | None:
    """Return the job of the queue that this process should claim, or None. in_memory: the LMs that it holds.

    The oldest job is next, except in the queues of jobs that load LMs: there the oldest job that needs an LM in memory
    comes first, so that LMs are loaded seldom. Once a younger job of the queue was started more than OVERTAKEN_AT_MOST
    ago, the oldest is next whatever it needs. Another process can claim the returned job first.
    """
    waiting = Job.objects.claimable(now).filter(queue=queue).order_by("pk")
    oldest = waiting.values_list("pk", flat=True).first()
    if oldest is None or queue not in (HARVEST, GPU):
        return oldest
    chosen = min(filter(None, (_oldest_with(lm, waiting) for lm in in_memory)), default=oldest)
    return oldest if chosen != oldest and is_overdue(oldest, queue, now) else chosen


def _oldest_with(lm: str, waiting: QuerySet) -> int | None:
    # The range of one LM, sorted by it, matches the index job_unfinished_of_lm. With an equality PostgreSQL may assume
    # that an LM of most past jobs is as common among waiting jobs, and read all of these for one that needs it.
    wanting = waiting.filter(lm__gte=lm, lm__lte=lm).order_by("lm", "pk")
    return wanting.values_list("pk", flat=True).first()


def is_overdue(job_id: int, queue: str, now: datetime) -> bool:
    """Return whether a younger job of the queue was started so long ago that this one must not be overtaken again."""
    younger = Job.objects.filter(queue=queue, pk__gt=job_id, started_at__lt=now - OVERTAKEN_AT_MOST)
    # Often no row matches. ORDER BY lets PostgreSQL use the index; without it the planner may scan the table.
    return younger.order_by("pk").values_list("pk", flat=True).first() is not None


def wake_next(queue: str, now: datetime) -> None:
    """Replace the message of `queue` that led to a job by one for the next queue of this worker with a waiting job.

    The queues take turns, so that none starves while the worker is busy, even if the broker has lost its messages.
    """
    taken = Worker.objects.filter(token=workers.TOKEN).values_list("queues", flat=True).first() or [queue]
    position = QUEUES.index(queue) + 1
    waiting = Job.objects.claimable(now)
    for candidate in (*QUEUES[position:], *QUEUES[:position]):
        if candidate in taken and waiting.filter(queue=candidate).exists():
            messages.wake(candidate)
            return


# -- a job's life ------------------------------------------------------------------------------------------------------


def claim(job_id: int, now: datetime, under: UUID | None = None) -> UUID | None:
    """Take the job for this process; return the token of the claim, or None if it cannot be claimed.

    A job of a kind that only a newer version knows waits for a worker of that version. The process of a worker that is
    being drained claims nothing but parts of the job it has in hand, `under` the claim of that one.
    """
    token = under or uuid4()
    worker = Worker.objects.filter(token=workers.TOKEN)  # none in a command's process
    claimable = Job.objects.claimable(now).filter(pk=job_id)
    claimed = (claimable if under else claimable.filter(~Exists(worker.filter(is_draining=True)))).update(
        status=Job.Status.RUNNING,
        owner_token=token,
        worker=Subquery(worker.values("pk")),
        lease_expires_at=_lease_end(now),
        attempts=F("attempts") + 1,
        started_at=now,
        stage="starting",
        done=0,
        total=None,
        error="",
    )
    return token if claimed else None


def _lease_end(now: datetime) -> datetime:
    return now + timedelta(seconds=settings.JOB_LEASE_S)


class Heartbeat:
    """The progress callback of one claim: its UPDATE is progress, lease and the question whether to go on, in one.

    Raises Cancelled when the job was cancelled or taken over. `watcher` sees every report, throttled or not.
    """

    def __init__(self, job_id: int, token: UUID, watcher: OnProgress = ignore):
        self._job_id = job_id
        self.token = token
        self._watcher = watcher
        self._stage = ""
        self._due = 0.0

    def __call__(self, progress: Progress) -> None:
        self._watcher(progress)
        if progress.stage == self._stage and monotonic() < self._due:
            return
        self._stage, self._due = progress.stage, monotonic() + REPORT_EVERY_S
        try:
            stage = f"{progress.stage}, {progress.note}" if progress.note else progress.stage
            self.renew(stage=stage[:60], done=progress.done, total=progress.total)
        except DATABASE_IS_AWAY as error:  # the lease bears some missed reports
            logger.warning("Job %s could not report: %s", self._job_id, error)
            connection.close_if_unusable_or_obsolete()

    def renew(self, **report: Any) -> None:
        """Raise Cancelled as a report does."""
        lease_end = _lease_end(shared_now())
        if not Job.objects.owned(self._job_id, self.token).update(lease_expires_at=lease_end, **report):
            raise Cancelled(f"Job {self._job_id} was cancelled or taken over.")

    def store(self, store: Store) -> None:
        """Store a part of the results at once, so that it outlives this claim. Raises Cancelled as a report does."""
        with transaction.atomic():
            self.renew()
            store()

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """Renew the lease from a thread during a step that cannot report, such as loading an LM."""
        done = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=[done], daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _renew_until(self, done: threading.Event) -> None:
        try:
            while not done.wait(settings.JOB_LEASE_S / 3):
                try:
                    self.renew()
                except DATABASE_IS_AWAY:
                    connection.close_if_unusable_or_obsolete()
        except Cancelled:
            pass  # the job's own thread finds out with its next report
        finally:
            connection.close()


Runner = Callable[[Job, Heartbeat], Store]


def run_job(job_id: int, watcher: OnProgress = ignore, under: UUID | None = None) -> bool:
    """Claim and do the job; its row then tells how it went. Unexpected errors are recorded and raised.

    Return whether it could be claimed. A job whose database was away is lost, and so taken up again, by this or another
    worker. under: the claim of the job that this one is a part of, if its process does the part, too.
    """
    token = claim(job_id, shared_now(), under)
    if token is None:
        logger.info("Job %s has ended, another worker has claimed it, or only a newer version can do it.", job_id)
        return False
    try:
        job = Job.objects.owned(job_id, token).first()
        if job is None:
            raise Cancelled(f"Job {job_id} was cancelled before it began.")
        heartbeat = Heartbeat(job_id, token, watcher)
        with heartbeat.kept_alive():  # the first job of its kind imports torch, which can outlast the lease
            runner: Runner = import_string(settings.JOB_RUNNERS[job.kind])
        store = runner(job, heartbeat)
        _finish(job_id, token, store)
    except Cancelled as reason:
        logger.info("%s", reason)
    except (EngineError, DomainError) as error:
        logger.warning("Job %s failed: %s", job_id, error)
        _fail(job_id, token, str(error))
    except DATABASE_IS_AWAY as error:
        logger.warning("Job %s lost the database and is taken up again: %s", job_id, error)
        _lose(job_id, token, is_attempt=not is_connection_lost(error))
    except Exception:
        logger.exception("Job %s failed unexpectedly.", job_id)
        _fail(job_id, token, UNEXPECTED.format(job_id))
        raise
    return True


def _finish(job_id: int, token: UUID, store: Store) -> None:
    """Store the results and `succeeded` together, or nothing if the claim is no longer held."""
    with transaction.atomic():
        if not _end(job_id, token, Job.Status.SUCCEEDED):
            raise Cancelled(f"Job {job_id} was cancelled or taken over before its results were stored.")
        store()
        _tell_ended([job_id])


def _lose(job_id: int, token: UUID, is_attempt: bool) -> None:
    """End the lease, so that the job counts as lost at once and not only when the lease runs out.

    is_attempt: a cut connection is none, as it says little about the job, so it is tried once more; but no more than
    MOST_ATTEMPTS times, as a job may itself make the server end the connection.
    """
    deadline = monotonic() + settings.JOB_LEASE_S
    while monotonic() < deadline:
        try:
            connection.close_if_unusable_or_obsolete()
            n_more = 0 if is_attempt else 1
            Job.objects.owned(job_id, token).update(
                lease_expires_at=shared_now(), max_attempts=Least(F("max_attempts") + n_more, MOST_ATTEMPTS)
            )
            return
        except DATABASE_IS_AWAY:
            sleep(RECONNECT_EVERY_S)


@transaction.atomic
def _fail(job_id: int, token: UUID, error: str) -> None:
    if _end(job_id, token, Job.Status.FAILED, error=error):
        _tell_ended([job_id])


def _tell_ended(job_ids: Sequence[int]) -> None:
    """Let whoever listens know that jobs have ended, in the transaction that ends them. Their parts go."""
    delete_parts(job_ids)
    hook("jobs_ended")(job_ids)


def delete_parts(job_ids: Sequence[int]) -> None:
    """Delete the parts of jobs, within a transaction.

    They are locked before, as deleting reaches their results first, and a worker that ends one reaches its job first.
    """
    for some in batched(job_ids, JOBS_AT_ONCE):
        parts = Job.objects.filter(parent__in=some)
        if list(parts.order_by("pk").select_for_update().values_list("pk", flat=True)):
            parts.delete()


def _end(job_id: int, token: UUID, status: Job.Status, **fields: Any) -> int:
    return Job.objects.owned(job_id, token).update(**_ended(status), **fields)


def _ended(status: Job.Status) -> dict[str, Any]:
    return {"status": status, "finished_at": timezone.now(), "owner_token": None, "lease_expires_at": None}


def cancel(job: Job, by=None) -> None:
    """Cancel at once. Its worker loses its claim and stops with its next report, within two seconds.

    Raises JobNotOpen, NotAllowed.
    """
    check_may(by, Action.WORK, job.project)
    if not cancel_all(Job.objects.filter(pk=job.pk)):
        raise DomainError("JobNotOpen", f"Job {job.pk} has already ended; there is nothing to cancel.")


def cancel_all(jobs: QuerySet) -> int:
    """Cancel the unfinished of `jobs`; return how many."""
    with transaction.atomic():
        # Locked, so that none of them ends by itself meanwhile, which its worker tells.
        unfinished = Job.objects.unfinished().filter(pk__in=jobs.unfinished().order_by().values("pk"))
        job_ids = list(unfinished.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
        n_cancelled = unfinished.update(**_ended(Job.Status.CANCELLED))
        _tell_ended(job_ids)
    return n_cancelled


def retry(job: Job, by=None) -> None:
    """Queue a failed or cancelled job again, with all its attempts. Raises JobNotOpen, NotAllowed."""
    check_may(by, Action.WORK, job.project)
    if retry_all(Job.objects.filter(pk=job.pk)):
        return
    of_project = Job.objects.unfinished().filter(project=job.project_id)
    same = of_project.filter(unique_key=job.unique_key).exclude(Q(pk=job.pk) | Q(unique_key="")).first()
    if same:
        raise DomainError(
            "JobNotOpen", f"Job {same.pk} does the same as job {job.pk} and is {same.status}; wait for it or cancel it."
        )
    raise DomainError("JobNotOpen", f"Job {job.pk} has neither failed nor been cancelled; there is nothing to retry.")


def retry_all(jobs: QuerySet) -> int:
    """Queue those of `jobs` that failed or were cancelled again, with all their attempts; return how many.

    Of those that do the same only the newest, and none while another one is unfinished. Raises JobNotOpen.
    """
    try:
        return _retry_all(jobs)
    except IntegrityError:
        raise DomainError("JobNotOpen", "Somebody has just queued a job that does the same; look again.") from None


@transaction.atomic
def _retry_all(jobs: QuerySet) -> int:
    of_project = Job.objects.unfinished().alias(of=Coalesce("project", 0)).filter(of=Coalesce(OuterRef("project"), 0))
    same = of_project.filter(unique_key=OuterRef("unique_key")).exclude(unique_key="")
    rows = jobs.retryable().filter(~Exists(same)).order_by("pk").values_list("pk", "queue", "project", "unique_key")
    newest = {(project, unique_key or job_id): (job_id, queue) for job_id, queue, project, unique_key in rows}
    fresh = {"status": Job.Status.QUEUED, "attempts": 0, "started_at": None, "finished_at": None, "worker": None}
    fresh |= {"error": "", "stage": "", "done": 0, "total": None}
    queues = dict(newest.values())
    n_retried = sum(
        Job.objects.filter(pk__in=some).retryable().update(**fresh) for some in batched(list(queues), JOBS_AT_ONCE)
    )
    if n_retried:
        wake_for(queues)
    return n_retried


# -- recovery, every few seconds in each worker ------------------------------------------------------------------------


def recover(now: datetime) -> None:
    """Fail jobs that were lost at their last attempt. Other lost jobs are claimable, and so wait like queued ones."""
    lost_for_good = Job.objects.lost(now).filter(attempts__gte=F("max_attempts"))
    for job_id in list(lost_for_good.values_list("pk", flat=True)):
        with transaction.atomic():
            if lost_for_good.filter(pk=job_id).update(**_ended(Job.Status.FAILED), error=GAVE_UP):
                _tell_ended([job_id])
    # Web servers of the last release, which run during an update, create jobs without a queue.
    for job in Job.objects.claimable(now).filter(queue=""):
        Job.objects.filter(pk=job.pk, queue="").update(queue=queue_of(job.kind, job.payload))


def wake_idle(worker: Worker, now: datetime) -> None:
    """Send messages for jobs that wait, or were lost, while this worker has idle processes that could do them."""
    busy = Job.objects.running(now).filter(worker=worker)
    # A process can have a job and a part of it under one claim.
    n_idle = worker.n_processes - busy.order_by().values("owner_token").distinct().count()
    if worker.is_draining or n_idle <= 0:
        return
    for queue in QUEUES:
        if queue in worker.queues:
            for _ in range(Job.objects.claimable(now).filter(queue=queue)[:n_idle].count()):
                messages.wake(queue)
