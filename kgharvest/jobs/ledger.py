"""Job ledger: enqueues, schedules, claims, ends, cancels, retries, and recovers jobs, and records their heartbeats.

The broker only wakes workers; the database is the source of truth. A message does not name a job. A worker that
receives a message calls `next_job` to get a job from the message's queue. A message can arrive twice, late, or never,
and a worker can die at any time. Therefore, every state change is one conditional UPDATE whose row count is checked. If
two processes compete, the second changes nothing.

No queued job is missed: after each job, the worker sends a message for the next job (`wake_next`), and workers with an
idle process check the ledger every few seconds (`wake_idle`).
"""

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

REPORT_EVERY_S = 0.4  # interval between progress reports of one stage; a report also detects cancellation
# Errors that can be temporary; InterfaceError means that the connection was lost.
DATABASE_IS_AWAY = (OperationalError, InterfaceError)
RECONNECT_EVERY_S = 1
ENDED_LAST = timedelta(days=1)  # period for which ended housekeeping jobs are kept
OVERTAKEN_AT_MOST = timedelta(minutes=10)  # much longer than loading an LM, much shorter than a wait for a harvest
JOBS_AT_ONCE = 1000  # maximum number of jobs per SQL statement, because PostgreSQL accepts at most 65,535 parameters
MOST_ATTEMPTS = 20  # maximum per job, including attempts that a lost connection ended
GAVE_UP = (
    "The worker died or the database failed in every attempt of this job, possibly because of insufficient memory. "
    "Reduce the number of candidates or use a smaller LM, then retry."
)
UNEXPECTED = "An unexpected error stopped this job. See the worker's log under job {}."

Store = Callable[[], None]  # function that stores a runner's results; called in the transaction that ends the job


# Enqueueing


def enqueue(*jobs: Job) -> None:
    """Wake workers for new jobs once the transaction is committed."""
    wake_for({job.pk: queue_of(job.kind, job.payload) for job in jobs})


def wake_for(queues: Mapping[int, str]) -> None:
    """Wake workers for queued jobs, given as {job id: queue}, once the transaction is committed.

    Each queue gets one message or, if there are enough jobs, one message for each idle process. An unavailable broker
    delays the caller by at most one second, and no job is lost (kgharvest.jobs.messages).
    """
    n_jobs = Counter(queues.values())
    idle = workers.idle_processes(shared_now()) if len(queues) > 1 else {}
    woken = [queue for queue, n in n_jobs.items() for _ in range(min(n, max(1, idle.get(queue, 0))))]
    transaction.on_commit(lambda: [messages.wake(queue, request_id.get()) for queue in woken])


def enqueue_once(kind: str) -> None:
    """Queue an installation-wide housekeeping job of this kind, unless such a job is unfinished."""
    if Job.objects.unfinished().filter(kind=kind, project=None, finished_at=None).exists():
        return
    try:
        with transaction.atomic():
            enqueue(Job.objects.create(kind=kind, unique_key=kind))
    except IntegrityError:
        logger.debug("Another process has already queued the job %s.", kind)


def delete_ended(kind: str) -> None:
    """Delete housekeeping jobs of this kind that ended more than ENDED_LAST ago."""
    long_ago = timezone.now() - ENDED_LAST
    ended = Job.objects.filter(kind=kind, project=None, finished_at__lt=long_ago).order_by("finished_at")
    while job_ids := list(ended.values_list("pk", flat=True)[:JOBS_AT_ONCE]):
        Job.objects.filter(pk__in=job_ids).delete()


# Scheduling


def next_job(queue: str, now: datetime, in_memory: Collection[str]) -> int | None:
    """Return the job of the queue that this process should claim, or None. in_memory: LMs loaded in this process.

    The result is usually the oldest job. In queues of jobs that load LMs, the oldest job that uses a loaded LM takes
    precedence, so that LMs are loaded less often. It does not take precedence if a job younger than the oldest job was
    started more than OVERTAKEN_AT_MOST ago. Another process can claim the returned job first.
    """
    waiting = Job.objects.claimable(now).filter(queue=queue).order_by("pk")
    oldest = waiting.values_list("pk", flat=True).first()
    if oldest is None or queue not in (HARVEST, GPU):
        return oldest
    # The condition is a sorted range with one LM, so that PostgreSQL uses the index job_unfinished_of_lm. For an
    # equality, it may assume that an LM of most past jobs is as common among queued jobs, and scan all queued jobs for
    # one match.
    ranges = (waiting.filter(lm__gte=lm, lm__lte=lm).order_by("lm", "pk") for lm in in_memory)
    candidates = filter(None, (jobs.values_list("pk", flat=True).first() for jobs in ranges))
    chosen = min(candidates, default=oldest)
    return oldest if chosen != oldest and is_overdue(oldest, queue, now) else chosen


def is_overdue(job_id: int, queue: str, now: datetime) -> bool:
    """Return whether a younger job of the queue was started so long ago that this job must run next."""
    younger = Job.objects.filter(queue=queue, pk__gt=job_id, started_at__lt=now - OVERTAKEN_AT_MOST)
    # Often no row matches. ORDER BY lets PostgreSQL use the index. Without it, the planner may scan the table.
    return younger.order_by("pk").values_list("pk", flat=True).first() is not None


def wake_next(queue: str, now: datetime) -> None:
    """Send a message for this worker's next queue that has a claimable job.

    It replaces the consumed message of `queue`.

    Queues take turns, so that no queue starves while the worker is busy, even if the broker has lost the queue's
    messages.
    """
    queues = Worker.objects.filter(token=workers.TOKEN).values_list("queues", flat=True).first() or [queue]
    position = QUEUES.index(queue) + 1
    waiting = Job.objects.claimable(now)
    for candidate in (*QUEUES[position:], *QUEUES[:position]):
        if candidate in queues and waiting.filter(queue=candidate).exists():
            messages.wake(candidate)
            return


# Running


def claim(job_id: int, now: datetime, under: UUID | None = None) -> UUID | None:
    """Claim the job for this process. Return the token of the claim, or None if the job is not claimable.

    If a newer version added the kind of the job, the job remains queued for a worker of that version. A draining worker
    claims only parts of its running job. under: if the job to claim is a part of the running job, token of the running
    job's claim.
    """
    token = under or uuid4()
    worker = Worker.objects.filter(token=workers.TOKEN)  # in the process of a command, this selects no row
    claimable = Job.objects.claimable(now).filter(pk=job_id)
    claimed = (claimable if under else claimable.filter(~Exists(worker.filter(is_draining=True)))).update(
        status=Job.Status.RUNNING,
        owner_token=token,
        worker=Subquery(worker.values("pk")),
        lease_expires_at=now + timedelta(seconds=settings.JOB_LEASE_S),
        attempts=F("attempts") + 1,
        started_at=now,
        stage="starting",
        done=0,
        total=None,
        error="",
    )
    return token if claimed else None


class Heartbeat:
    """Progress callback of one claim. One UPDATE stores the progress, renews the lease, and detects cancellation.

    Raises Cancelled if the job was canceled or taken over. `watcher` receives every report, including reports that are
    not stored because of the report interval.
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
        except DATABASE_IS_AWAY as error:  # the lease is long enough for a few missed reports
            logger.warning("Job %s could not report its progress: %s", self._job_id, error)
            connection.close_if_unusable_or_obsolete()

    def renew(self, **report: Any) -> None:
        """Renew the lease and store the columns of a report. Raises Cancelled."""
        lease_end = shared_now() + timedelta(seconds=settings.JOB_LEASE_S)
        if not Job.objects.owned(self._job_id, self.token).update(lease_expires_at=lease_end, **report):
            raise Cancelled(f"Job {self._job_id} was canceled or taken over.")

    def store(self, store: Store) -> None:
        """Store intermediate results in a transaction of their own. They are kept if the claim is lost later.

        Raises Cancelled.
        """
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
            pass  # the job's own thread detects the cancellation at its next report
        finally:
            connection.close()


Runner = Callable[[Job, Heartbeat], Store]


def run_job(job_id: int, watcher: OnProgress = ignore, under: UUID | None = None, runner: Runner | None = None) -> bool:
    """Claim and run the job. Return whether it could be claimed. The outcome is stored in the job's row.

    Unexpected errors are recorded and raised. If the database is unavailable, the job counts as lost, and a worker
    retries it. under: claim of the parent job, if the process of the parent job also runs this part. runner: function
    to use instead of the registered runner of the job's kind.
    """
    token = claim(job_id, shared_now(), under)
    if token is None:
        logger.info("Job %s has ended, was claimed by another worker, or needs a newer version.", job_id)
        return False
    try:
        job = Job.objects.owned(job_id, token).first()
        if job is None:
            raise Cancelled(f"Job {job_id} was canceled before it started.")
        heartbeat = Heartbeat(job_id, token, watcher)
        if runner is None:
            with heartbeat.kept_alive():  # the first job of a kind imports torch, which can take longer than the lease
                runner = import_string(settings.JOB_RUNNERS[job.kind])
        store = runner(job, heartbeat)
        _finish(job_id, token, store)
    except Cancelled as reason:
        logger.info("%s", reason)
    except (EngineError, DomainError) as error:
        logger.warning("Job %s failed: %s", job_id, error)
        _fail(job_id, token, str(error))
    except DATABASE_IS_AWAY as error:
        logger.warning("Job %s lost the database connection and will be retried: %s", job_id, error)
        _lose(job_id, token, is_attempt=not is_connection_lost(error))
    except Exception:
        logger.exception("Job %s failed unexpectedly.", job_id)
        _fail(job_id, token, UNEXPECTED.format(job_id))
        raise
    return True


def _finish(job_id: int, token: UUID, store: Store) -> None:
    """Save the results and mark the job succeeded in one transaction. Raises Cancelled if the claim was lost."""
    with transaction.atomic():
        if not Job.objects.owned(job_id, token).update(**_ended(Job.Status.SUCCEEDED)):
            raise Cancelled(f"Job {job_id} was canceled or taken over before its results were stored.")
        store()
        _announce_ended([job_id])


def _lose(job_id: int, token: UUID, is_attempt: bool) -> None:
    """End the lease, so that the job counts as lost immediately instead of when the lease expires.

    is_attempt: if False, the job gets one more attempt, because a lost connection says little about the job. The number
    of attempts is limited to MOST_ATTEMPTS, because the job itself may cause the server to close the connection.
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
    if Job.objects.owned(job_id, token).update(**_ended(Job.Status.FAILED), error=error):
        _announce_ended([job_id])


def _announce_ended(job_ids: Sequence[int]) -> None:
    """Delete the parts of ended jobs and call the hook `jobs_ended`. Called in the transaction that ends the jobs."""
    delete_parts(job_ids)
    hook("jobs_ended")(job_ids)


def delete_parts(job_ids: Sequence[int]) -> None:
    """Delete the parts of jobs. Requires a transaction.

    Lock the parts' jobs first to prevent deadlocks: a deletion would lock the result of a part before its job, but a
    worker that ends a part locks the job first.
    """
    for batch in batched(job_ids, JOBS_AT_ONCE):
        parts = Job.objects.filter(parent__in=batch)
        if list(parts.order_by("pk").select_for_update().values_list("pk", flat=True)):
            parts.delete()


def _ended(status: Job.Status) -> dict[str, Any]:
    return {"status": status, "finished_at": timezone.now(), "owner_token": None, "lease_expires_at": None}


def cancel(job: Job, by=None) -> None:
    """Cancel the job. Its worker loses the claim and stops at its next report, within two seconds.

    Raises JobNotOpen or NotAllowed.
    """
    check_may(by, Action.WORK, job.project)
    if not cancel_all(Job.objects.filter(pk=job.pk)):
        raise DomainError("JobNotOpen", f"Cannot cancel job {job.pk}: it has already ended.")


def cancel_all(jobs: QuerySet) -> int:
    """Cancel the unfinished jobs. Return their number."""
    with transaction.atomic():
        # Lock the jobs so that no worker ends and announces one of them at the same time.
        unfinished = Job.objects.unfinished().filter(pk__in=jobs.unfinished().order_by().values("pk"))
        job_ids = list(unfinished.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
        n_cancelled = unfinished.update(**_ended(Job.Status.CANCELLED))
        _announce_ended(job_ids)
    return n_cancelled


def retry(job: Job, by=None) -> None:
    """Requeue a failed or canceled job and restore all its attempts. Raises JobNotOpen or NotAllowed."""
    check_may(by, Action.WORK, job.project)
    if retry_all(Job.objects.filter(pk=job.pk)):
        return
    project_jobs = Job.objects.unfinished().filter(project=job.project_id)
    same = project_jobs.filter(unique_key=job.unique_key).exclude(Q(pk=job.pk) | Q(unique_key="")).first()
    reason = "it has neither failed nor been canceled"
    if same:
        reason = f"job {same.pk} has the same task and is {same.status}; wait for it or cancel it"
    raise DomainError("JobNotOpen", f"Cannot retry job {job.pk}: {reason}.")


def retry_all(jobs: QuerySet) -> int:
    """Requeue the failed and canceled jobs and restore all their attempts. Return their number.

    If several jobs have the same task, only the newest job is requeued. If a job with this task is unfinished, none is
    requeued. Raises JobNotOpen.
    """
    in_project = Job.objects.unfinished().alias(of=Coalesce("project", 0)).filter(of=Coalesce(OuterRef("project"), 0))
    same = in_project.filter(unique_key=OuterRef("unique_key")).exclude(unique_key="")
    rows = jobs.retryable().filter(~Exists(same)).order_by("pk").values_list("pk", "queue", "project", "unique_key")
    reset = {"status": Job.Status.QUEUED, "attempts": 0, "started_at": None, "finished_at": None, "worker": None}
    reset |= {"error": "", "stage": "", "done": 0, "total": None}
    try:
        with transaction.atomic():
            newest = {(project, unique_key or job_id): (job_id, queue) for job_id, queue, project, unique_key in rows}
            queues = dict(newest.values())
            batches = batched(list(queues), JOBS_AT_ONCE)
            n_retried = sum(Job.objects.filter(pk__in=batch).retryable().update(**reset) for batch in batches)
            if n_retried:
                wake_for(queues)
            return n_retried
    except IntegrityError:
        message = "Another user has just queued a job with the same task. Reload the page."
        raise DomainError("JobNotOpen", message) from None


# Recovery, every few seconds in each worker


def recover(now: datetime) -> None:
    """Mark jobs that were lost in their last attempt as failed. Other lost jobs can be claimed like queued jobs."""
    lost_for_good = Job.objects.lost(now).filter(attempts__gte=F("max_attempts"))
    for job_id in list(lost_for_good.values_list("pk", flat=True)):
        with transaction.atomic():
            if lost_for_good.filter(pk=job_id).update(**_ended(Job.Status.FAILED), error=GAVE_UP):
                _announce_ended([job_id])
    # Set missing queues: during an update, web servers of the previous release create jobs without a queue.
    for job in Job.objects.claimable(now).filter(queue=""):
        Job.objects.filter(pk=job.pk, queue="").update(queue=queue_of(job.kind, job.payload))


def wake_idle(worker: Worker, now: datetime) -> None:
    """Send messages for queued and lost jobs. Each queue of this worker gets at most one message per idle process."""
    busy = Job.objects.running(now).filter(worker=worker)
    # A process can run a job and a part of the job under the same claim.
    n_idle = worker.n_processes - busy.order_by().values("owner_token").distinct().count()
    if worker.is_draining or n_idle <= 0:
        return
    for queue in QUEUES:
        if queue in worker.queues:
            for _ in range(Job.objects.claimable(now).filter(queue=queue)[:n_idle].count()):
                messages.wake(queue)
