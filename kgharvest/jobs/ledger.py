"""The ledger of jobs: enqueue, claim, heartbeat, finish, cancel, retry.

The broker only wakes workers, the database is the truth. A message may come twice, late or never; a worker may die at
any line. Every change of state is one conditional UPDATE whose row count is checked, so whoever comes second does
nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from kgharvest.jobs.queues import queue_of
from kgharvest.models import Job, Worker
from kgharvest.operations.clock import shared_now
from kgharvest.operations.logs import request_id
from kgharvest.registries import hook

logger = logging.getLogger(__name__)

REPORT_EVERY_S = 0.4  # between two reports of one stage; a cancelled job notices with the next
SENT_ANEW_AFTER = timedelta(minutes=5)  # then, as the broker may have lost them
ENQUEUED_PER_IDLE_PROCESS = 10  # for each process that could take a job, if there were a message for it
DATABASE_IS_AWAY = (OperationalError, InterfaceError)  # or was for a moment; InterfaceError: a connection that was cut
RECONNECT_EVERY_S = 1
ENDED_LAST = timedelta(days=1)  # jobs that work off what is due
JOBS_AT_ONCE = 1000  # named in one statement: PostgreSQL takes 65,535 parameters
MOST_ATTEMPTS = 20  # of a job, those that a cut connection ended among them
GAVE_UP = (
    "The worker died or the database failed during this job as often as it was tried, perhaps for lack of memory; "
    "ask for fewer candidates or a smaller LM, then retry."
)
UNEXPECTED = "An unexpected error stopped this job; the worker's log has the details under job {}."

Store = Callable[[], None]  # writes what a runner found; called inside the transaction that ends the job


class JobNotOpen(DomainError):
    """Cancelling a job that has ended, or retrying one that has not or that another one stands for."""


# -- a job's life ------------------------------------------------------------------------------------------------------


def enqueue(job: Job) -> None:
    """Send a message for a new job, of which `enqueued_at` is now, once the transaction is committed.

    A broker that is down or hangs costs time, not the job, and whoever asks a second at most (jobs.messages).
    """
    transaction.on_commit(lambda: send(job.pk, queue_of(job.kind, job.payload)))


def enqueue_many(jobs: Sequence[Job]) -> None:
    """Do for many new jobs what `enqueue` does for one, but send no more messages than workers soon take.

    The reaper and the workers that end these jobs send those of the others.
    """
    now = shared_now()
    told = _first_of_each_queue({job.pk: queue_of(job.kind, job.payload) for job in jobs}, now)
    for some in batched([job.pk for job in jobs if job.pk not in told], JOBS_AT_ONCE):
        Job.objects.filter(pk__in=some).update(enqueued_at=_long_before(now))
    Job.objects.filter(pk__in=told).update(enqueued_at=now)
    _send_all(told)


def _send_all(queues: Mapping[int, str]) -> None:
    transaction.on_commit(lambda: [send(job_id, queue) for job_id, queue in queues.items()])


def enqueue_once(kind: str) -> None:
    """Queue a job of a kind that works off what is due, for the whole installation, unless one is unfinished."""
    if Job.objects.unfinished().filter(kind=kind, project=None, finished_at=None).exists():
        return
    try:
        with transaction.atomic():
            enqueue(Job.objects.create(kind=kind, unique_key=kind))
    except IntegrityError:
        logger.debug("Another process has queued the job %s.", kind)


def delete_ended(kind: str) -> None:
    """Delete the jobs of such a kind that ended more than ENDED_LAST ago: they come by the thousand and say little."""
    long_ago = timezone.now() - ENDED_LAST
    ended = Job.objects.filter(kind=kind, project=None, finished_at__lt=long_ago).order_by("finished_at")
    while some := list(ended.values_list("pk", flat=True)[:JOBS_AT_ONCE]):
        Job.objects.filter(pk__in=some).delete()


def send(job_id: int, queue: str) -> None:
    if not messages.send(job_id, queue, request_id.get()):
        logger.info("No message was sent for job %s; the reaper sends one.", job_id)


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
        raise JobNotOpen(f"Job {job.pk} has already ended; there is nothing to cancel.")


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
        raise JobNotOpen(f"Job {same.pk} does the same as job {job.pk} and is {same.status}; wait for it or cancel it.")
    raise JobNotOpen(f"Job {job.pk} has neither failed nor been cancelled; there is nothing to retry.")


def retry_all(jobs: QuerySet) -> int:
    """Queue those of `jobs` that failed or were cancelled again, with all their attempts; return how many.

    Of those that do the same only the newest, and none while another one is unfinished. Raises JobNotOpen.
    """
    try:
        return _retry_all(jobs)
    except IntegrityError:
        raise JobNotOpen("Somebody has just queued a job that does the same; look again.") from None


@transaction.atomic
def _retry_all(jobs: QuerySet) -> int:
    of_project = Job.objects.unfinished().alias(of=Coalesce("project", 0)).filter(of=Coalesce(OuterRef("project"), 0))
    same = of_project.filter(unique_key=OuterRef("unique_key")).exclude(unique_key="")
    rows = jobs.retryable().filter(~Exists(same)).order_by("pk").values_list("pk", "queue", "project", "unique_key")
    newest = {(project, unique_key or job_id): (job_id, queue) for job_id, queue, project, unique_key in rows}
    queues = dict(newest.values())
    now = shared_now()
    told = _first_of_each_queue(queues, now)
    fresh = {"status": Job.Status.QUEUED, "attempts": 0, "started_at": None, "finished_at": None, "worker": None}
    fresh |= {"error": "", "stage": "", "done": 0, "total": None}
    waiting = [job_id for job_id in queues if job_id not in told]
    n_retried = sum(
        Job.objects.filter(pk__in=some).retryable().update(enqueued_at=enqueued_at, **fresh)
        for job_ids, enqueued_at in ((told, now), (waiting, _long_before(now)))
        for some in batched(job_ids, JOBS_AT_ONCE)
    )
    if n_retried:  # one that somebody else has retried meanwhile gets a second message
        _send_all(told)
    return n_retried


def _first_of_each_queue(queues: Mapping[int, str], now: datetime) -> dict[int, str]:
    """Return those of the jobs, with their queues, that workers can take soon; the reaper wakes them for the rest."""
    idle = workers.idle_processes(now)
    told: dict[int, str] = {}
    n_told: Counter[str] = Counter()
    for job_id, queue in queues.items():
        if n_told[queue] < ENQUEUED_PER_IDLE_PROCESS * max(1, idle.get(queue, 0)):
            told[job_id] = queue
            n_told[queue] += 1
    return told


# -- lost jobs ---------------------------------------------------------------------------------------------------------


def fail_lost(now: datetime) -> None:
    """Fail jobs whose workers keep dying."""
    lost_for_good = Job.objects.lost(now).filter(attempts__gte=F("max_attempts"))
    for job_id in list(lost_for_good.values_list("pk", flat=True)):
        with transaction.atomic():
            if lost_for_good.filter(pk=job_id).update(**_ended(Job.Status.FAILED), error=GAVE_UP):
                _tell_ended([job_id])


def put_back(job_id: int) -> None:
    """Have a job that its message has woken nobody for sent again by the next reaper."""
    Job.objects.filter(pk=job_id, status=Job.Status.QUEUED).update(enqueued_at=_long_before(shared_now()))


def _long_before(now: datetime) -> datetime:
    """Return when a message was sent that no longer counts, as one on its way neither."""
    return now - max(SENT_ANEW_AFTER, timedelta(seconds=settings.JOB_STALE_AFTER_S + 1))
