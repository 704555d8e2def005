"""Workers: who is there, what each can do and has in memory, and sending one away.

A worker is a row that its main process keeps; a job says which worker claimed it, so that what a worker does and did
is asked of the jobs.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, getnode

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from kgharvest import code_version
from kgharvest.access import Action, check_may
from kgharvest.engine.language_models.networks.placement import AUTO
from kgharvest.errors import DomainError
from kgharvest.jobs import devices
from kgharvest.jobs.queues import GPU, HARVEST
from kgharvest.models import Job, Worker
from kgharvest.operations.clock import shared_now

TIMEOUT_S = 60  # a worker without a heartbeat for so long counts as lost
FORGOTTEN_AFTER = timedelta(days=1)  # a worker that is gone and has done no job
FORGOTTEN_WITH_JOBS_AFTER = timedelta(days=90)  # hosts of containers have new names each time


def new_token() -> UUID:
    """Return a name for a process; the first half is the same for all that see each other's ids.

    These are of one machine, or of one container: the host names of containers may be alike, and their ids are.
    """
    try:
        sight = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:  # macOS
        sight = f"{getnode()} {socket.gethostname()}"
    return UUID(bytes=blake2b(sight.encode(), digest_size=8).digest() + os.urandom(8))


TOKEN = new_token()  # of this process and of those that it forks: names their worker


class WorkerSpec(NamedTuple):
    """What a worker is started as. name: Celery's, as "celery@host". n_processes: jobs that it does at once."""

    name: str
    queues: Sequence[str]
    n_processes: int


# -- a worker's own row ------------------------------------------------------------------------------------------------


def beat(spec: WorkerSpec, now: datetime, is_leaving: bool = False) -> Worker:
    """Note that this process's worker is alive; return its row, new if it has none yet.

    is_leaving: it was told to end, and does so when its jobs are done.
    """
    report = {"seen_at": now, "language_models": in_memory(), **({"is_draining": True} if is_leaving else {})}
    if not Worker.objects.filter(token=TOKEN).update(**report):
        register(spec, now)
    return Worker.objects.get(token=TOKEN)


def forget_gone(now: datetime) -> None:
    """Delete the rows of workers that are long gone; the jobs of those that did some stay, and name no worker then."""
    gone = Worker.objects.filter(seen_at__lt=now - FORGOTTEN_AFTER)
    did_nothing = ~Exists(Job.objects.filter(worker=OuterRef("pk")))
    gone.filter(did_nothing | Q(seen_at__lt=now - FORGOTTEN_WITH_JOBS_AFTER)).delete()


def register(spec: WorkerSpec, now: datetime) -> None:
    """Give this process's worker the row of its name, or of name-2 and so on if another living worker has it."""
    fields = {
        "token": TOKEN,
        "host": socket.gethostname()[:200],
        "pid": os.getpid(),
        "queues": list(spec.queues),
        "devices": devices.in_words(),
        "language_models": [],
        "n_processes": spec.n_processes,
        "version": code_version(),
        "started_at": now,
        "seen_at": now,
        "is_draining": False,
        "left_at": None,
    }
    first, at, host = spec.name.partition("@")
    for number in count(1):
        suffix = f"-{number}" if number > 1 else ""  # celery@host, celery-2@host, ...
        if _take_row(f"{first}{suffix}{at}{host}"[:200], fields):
            return


def _take_row(name: str, fields: Mapping) -> bool:
    """Return whether this worker took the row of that name, which must not belong to another living worker."""
    row = Worker.objects.filter(name=name).first()
    if row is None:
        try:
            with transaction.atomic():
                Worker.objects.create(name=name, **fields)
        except IntegrityError:
            return False
        return True
    # A process of this machine can be looked for. Its worker is gone if it does not run, or is this process.
    is_of_this_machine = row.pid and row.token and row.token.bytes[:8] == TOKEN.bytes[:8]
    has_ended = is_of_this_machine and (row.pid == os.getpid() or not is_running(row.pid))
    if is_alive(row, fields["seen_at"]) and not has_ended:
        return False
    return bool(Worker.objects.filter(pk=row.pk, token=row.token, seen_at=row.seen_at).update(**fields))


def leave(now: datetime) -> None:
    """Note that this process's worker has ended its last job and goes."""
    Worker.objects.filter(token=TOKEN).update(left_at=now, seen_at=now, language_models=[])


# -- sending workers away ----------------------------------------------------------------------------------------------


def find_worker(name: str) -> Worker:
    """Raises WorkerNotThere."""
    worker = Worker.objects.filter(name=name).first()
    if worker is None:
        raise DomainError(
            "WorkerNotThere", f"There is no worker {name!r:.80}; look at the list of workers for its name."
        )
    return worker


def drain(worker: Worker, by=None) -> None:
    """Have a worker take no further job, end those in hand, and leave. Raises NotAllowed, WorkerNotThere."""
    check_may(by, Action.MANAGE, None)
    if not taking(shared_now()).filter(pk=worker.pk).update(is_draining=True):
        raise DomainError(
            "WorkerNotThere", f"The worker {worker} is gone or is being drained already; there is nothing to do."
        )


def undrain(worker: Worker, by=None) -> None:
    """Have a worker that is being drained and still has a job go on. Raises NotAllowed, WorkerNotThere."""
    check_may(by, Action.MANAGE, None)
    if not alive(shared_now()).filter(pk=worker.pk, is_draining=True).update(is_draining=False):
        raise DomainError(
            "WorkerNotThere", f"The worker {worker} is gone or was not being drained; start one with ./run worker."
        )


# -- what its processes hold -------------------------------------------------------------------------------------------

_reports: Path | None = None  # a folder with a file for each process, named by its id


def open_reports() -> None:
    """Make the folder of reports, before the worker forks the processes that write there."""
    global _reports
    _reports = Path(tempfile.mkdtemp(prefix="kgharvest-worker-"))


def close_reports() -> None:
    if _reports:
        shutil.rmtree(_reports, ignore_errors=True)


def report_in_memory(names: Iterable[str]) -> None:
    """Tell the main process which LMs this one holds. Nothing where there is no worker, as in a command."""
    if _reports is None:
        return
    with suppress(OSError):  # a full disk costs the line on the page of workers
        written = _reports / f"{os.getpid()}.new"
        written.write_text(json.dumps(list(names)), encoding="utf-8")
        written.replace(_reports / str(os.getpid()))


def in_memory() -> list[str]:
    """Return the LMs that living processes of this worker hold."""
    held: set[str] = set()
    for file in _reports.glob("*") if _reports else ():
        if file.name.isdecimal():
            with suppress(OSError):  # the process may just have written anew
                if is_running(int(file.name)):
                    held.update(json.loads(file.read_text(encoding="utf-8")))
                else:
                    file.unlink()
    return sorted(held)


def is_running(pid: int) -> bool:
    """Return whether there is a process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# -- who is there ------------------------------------------------------------------------------------------------------


def is_alive(worker: Worker, now: datetime) -> bool:
    return worker.left_at is None and worker.seen_at >= now - timedelta(seconds=TIMEOUT_S)


def alive(now: datetime) -> QuerySet:
    """Return the workers that were heard of within the last minute and have not left."""
    return Worker.objects.filter(seen_at__gte=now - timedelta(seconds=TIMEOUT_S), left_at=None)


def n_alive(now: datetime) -> int:
    return alive(now).count()


def taking(now: datetime) -> QuerySet:
    """Return the living workers that take further jobs."""
    return alive(now).filter(is_draining=False)


def taken_queues(now: datetime) -> set[str]:
    """Return the queues whose jobs some living worker takes."""
    return {queue for queues in taking(now).values_list("queues", flat=True) for queue in queues}


def idle_processes(now: datetime) -> dict[str, int]:
    """Return, for each queue that a living worker takes, how many of these workers' processes have no job."""
    claims = Job.objects.running(now).exclude(worker=None).order_by().values_list("worker", "owner_token").distinct()
    busy = Counter(worker for worker, _ in claims)  # a process may have a job and a part of it
    n_idle: dict[str, int] = {}
    for pk, queues, n in taking(now).values_list("pk", "queues", "n_processes"):
        for queue in queues:
            n_idle[queue] = n_idle.get(queue, 0) + max(0, n - busy[pk])
    return n_idle


def n_processes(now: datetime) -> int:
    """Return how many harvests the workers that are alive do at once."""
    rows = taking(now).values_list("queues", "n_processes")
    return sum(n for queues, n in rows if HARVEST in queues or GPU in queues)


def devices_offered(now: datetime) -> list[str]:
    """Return the devices that pages offer: the CPU, the GPUs that workers have, any of them, and all of a machine."""
    lines = [line for of_worker in taking(now).values_list("devices", flat=True) for line in of_worker]
    reported = {line.partition(",")[0] for line in lines if line.startswith("cuda")}
    cards = sorted(reported, key=lambda name: (len(name), name))  # cuda:2 before cuda:10
    return ["cpu", *(["cuda"] if cards else []), *cards, AUTO]


def queues_waited_in(jobs: QuerySet) -> set[str]:
    return set(jobs.filter(status=Job.Status.QUEUED).order_by().values_list("queue", flat=True).distinct())


def lacking_for(job: Job, now: datetime) -> str:
    """Say as `lacking` does whether a job waits for a worker that is not there."""
    return lacking(now, {job.queue}) if job.status == Job.Status.QUEUED else ""


def lacking(now: datetime, queues: Collection[str] | None = None) -> str:
    """Say for pages that jobs of `queues` have no worker to wait for; nothing if there is one for each queue.

    queues: None for those of all jobs that wait.
    """
    queues = queues_waited_in(Job.objects.whole()) if queues is None else queues
    taken = taken_queues(now) if queues else set()
    missing = set(queues) - taken
    if not missing:
        return ""
    if missing == {GPU}:
        return (
            "No worker that has a GPU is running, so jobs for the devices cuda and auto wait. Start one on a "
            "machine with a GPU, with ./run worker; it finds the jobs by itself."
        )
    if taken:
        names = " or ".join(sorted(missing))
        return (
            f"No worker that takes jobs of the queue {names} is running, so they wait. Start one with ./run worker; it "
            "finds the jobs by itself."
        )
    return (
        "No worker is running, so queued jobs wait. Start one on the server with ./run worker; it finds the queued "
        "jobs by itself."
    )
