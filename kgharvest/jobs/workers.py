"""Heartbeats, devices, and loaded LMs of workers; draining of workers; advice about queues without workers.

The main process of a worker maintains its row. Jobs refer to the worker that claimed them.
"""

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
from kgharvest.environment import RUN
from kgharvest.errors import DomainError
from kgharvest.jobs import devices
from kgharvest.jobs.queues import GPU, HARVEST
from kgharvest.models import Job, Worker
from kgharvest.operations.clock import shared_now

TIMEOUT_S = 60  # a worker without a heartbeat for this time counts as lost
FORGOTTEN_AFTER = timedelta(days=1)  # period for which rows of workers without jobs are kept
# Limits the number of rows of containers, which get a new host name at each start.
FORGOTTEN_WITH_JOBS_AFTER = timedelta(days=90)


def new_token() -> UUID:
    """Return a token for a process.

    The first half of the token identifies the process id namespace: a machine or a container.

    Host names and process ids are not sufficient, because different containers can have the same host names and ids.
    """
    try:
        namespace = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:  # macOS has no such file
        namespace = f"{getnode()} {socket.gethostname()}"
    return UUID(bytes=blake2b(namespace.encode(), digest_size=8).digest() + os.urandom(8))


TOKEN = new_token()  # identifies the worker of this process and of its forks


class WorkerSpec(NamedTuple):
    """Options with which a worker was started. name: Celery's name, such as "celery@host".

    n_processes: number of jobs run in parallel.
    """

    name: str
    queues: Sequence[str]
    n_processes: int


def beat(spec: WorkerSpec, now: datetime, is_leaving: bool = False) -> Worker:
    """Record a heartbeat of this process's worker. Return the worker's row, which is created if missing.

    is_leaving: True if the worker exits after its running jobs.
    """
    report = {"seen_at": now, "language_models": in_memory(), **({"is_draining": True} if is_leaving else {})}
    if not Worker.objects.filter(token=TOKEN).update(**report):
        register(spec, now)
    return Worker.objects.get(token=TOKEN)


def forget_gone(now: datetime) -> None:
    """Delete the old rows of workers that are gone. Their jobs remain, without a worker."""
    gone = Worker.objects.filter(seen_at__lt=now - FORGOTTEN_AFTER)
    did_nothing = ~Exists(Job.objects.filter(worker=OuterRef("pk")))
    gone.filter(did_nothing | Q(seen_at__lt=now - FORGOTTEN_WITH_JOBS_AFTER)).delete()


def register(spec: WorkerSpec, now: datetime) -> None:
    """Assign the row with the worker's name to this process's worker.

    If another live worker has that row, try name-2, and so on.
    """
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
    """Assign the row with this name to this worker unless another live worker owns it. Return whether it succeeded."""
    row = Worker.objects.filter(name=name).first()
    if row is None:
        try:
            with transaction.atomic():
                Worker.objects.create(name=name, **fields)
        except IntegrityError:
            return False
        return True
    # Within a namespace, the row's worker is gone if its process id belongs to no process or to this process.
    is_same_namespace = row.pid and row.token and row.token.bytes[:8] == TOKEN.bytes[:8]
    has_ended = is_same_namespace and (row.pid == os.getpid() or not is_running(row.pid))
    if is_alive(row, fields["seen_at"]) and not has_ended:
        return False
    return bool(Worker.objects.filter(pk=row.pk, token=row.token, seen_at=row.seen_at).update(**fields))


def leave(now: datetime) -> None:
    """Record that this process's worker exits after its last job."""
    Worker.objects.filter(token=TOKEN).update(left_at=now, seen_at=now, language_models=[])


def find_worker(name: str) -> Worker:
    """Return the worker with this name. Raises WorkerNotThere."""
    worker = Worker.objects.filter(name=name).first()
    if worker is None:
        raise DomainError("WorkerNotThere", f"Worker {name!r:.80} not found. See the list of workers.")
    return worker


def drain(worker: Worker, by=None) -> None:
    """Make a worker finish its running jobs and exit. Raises NotAllowed or WorkerNotThere."""
    check_may(by, Action.MANAGE, None)
    if not taking(shared_now()).filter(pk=worker.pk).update(is_draining=True):
        raise DomainError("WorkerNotThere", f"Cannot drain the worker {worker}: it is gone or already draining.")


def undrain(worker: Worker, by=None) -> None:
    """Make a draining worker that still runs a job claim jobs again. Raises NotAllowed or WorkerNotThere."""
    check_may(by, Action.MANAGE, None)
    if not alive(shared_now()).filter(pk=worker.pk, is_draining=True).update(is_draining=False):
        raise DomainError(
            "WorkerNotThere", f"The worker {worker} is gone or not draining. Start a worker with {RUN} worker."
        )


_reports: Path | None = None  # folder that contains one file per process, named after the process id


def open_reports() -> None:
    """Create the folder of reports. Call it before the worker forks the processes that write there."""
    global _reports
    _reports = Path(tempfile.mkdtemp(prefix="kgharvest-worker-"))


def close_reports() -> None:
    if _reports:
        shutil.rmtree(_reports, ignore_errors=True)


def report_in_memory(names: Iterable[str]) -> None:
    """Report the LMs loaded in this process to the worker's main process. Outside workers, this has no effect."""
    if _reports is None:
        return
    with suppress(OSError):  # for example, the disk is full; this affects only the workers page
        draft = _reports / f"{os.getpid()}.new"
        draft.write_text(json.dumps(list(names)), encoding="utf-8")
        draft.replace(_reports / str(os.getpid()))


def in_memory() -> list[str]:
    """Return the LMs that are loaded in the running processes of this worker."""
    names: set[str] = set()
    for file in _reports.glob("*") if _reports else ():
        if file.name.isdecimal():
            with suppress(OSError):  # the process may be replacing the file
                if is_running(int(file.name)):
                    names.update(json.loads(file.read_text(encoding="utf-8")))
                else:
                    file.unlink()
    return sorted(names)


def is_running(pid: int) -> bool:
    """Return whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process belongs to another user
        pass
    return True


def is_alive(worker: Worker, now: datetime) -> bool:
    return worker.left_at is None and worker.seen_at >= now - timedelta(seconds=TIMEOUT_S)


def alive(now: datetime) -> QuerySet:
    """Return the workers with a heartbeat in the last minute that have not left."""
    return Worker.objects.filter(seen_at__gte=now - timedelta(seconds=TIMEOUT_S), left_at=None)


def taking(now: datetime) -> QuerySet:
    """Return the live workers that are not draining."""
    return alive(now).filter(is_draining=False)


def idle_processes(now: datetime) -> dict[str, int]:
    """Return the number of idle worker processes by queue, for all queues that live workers process."""
    claims = Job.objects.running(now).exclude(worker=None).order_by().values_list("worker", "owner_token").distinct()
    # If one process runs a job and a part of it, both have the same claim.
    busy = Counter(worker for worker, _ in claims)
    n_idle: Counter[str] = Counter()
    for pk, queues, n in taking(now).values_list("pk", "queues", "n_processes"):
        n_idle.update(dict.fromkeys(queues, max(0, n - busy[pk])))
    return n_idle


def n_processes(now: datetime) -> int:
    """Return the number of harvests that live workers can run in parallel."""
    rows = taking(now).values_list("queues", "n_processes")
    return sum(n for queues, n in rows if HARVEST in queues or GPU in queues)


def devices_offered(now: datetime) -> list[str]:
    """Return the choices for a device: the CPU, any GPU, each GPU of the workers, and all devices of a machine."""
    lines = [line for devices in taking(now).values_list("devices", flat=True) for line in devices]
    gpu_names = {line.partition(",")[0] for line in lines if line.startswith("cuda")}
    cards = sorted(gpu_names, key=lambda name: (len(name), name))  # sort cuda:2 before cuda:10
    return ["cpu", *(["cuda"] if cards else []), *cards, AUTO]


def queues_waited_in(jobs: QuerySet) -> set[str]:
    return set(jobs.filter(status=Job.Status.QUEUED).order_by().values_list("queue", flat=True).distinct())


def lacking_for(job: Job, now: datetime) -> str:
    """Return the advice of `lacking` for the job's queue if the job is queued, otherwise ""."""
    return lacking(now, {job.queue}) if job.status == Job.Status.QUEUED else ""


def lacking(now: datetime, queues: Collection[str] | None = None) -> str:
    """Return advice if a queue has no worker, otherwise "".

    queues: queues to check, or None for all queues with queued jobs.
    """
    queues = queues_waited_in(Job.objects.whole()) if queues is None else queues
    served_queues = set().union(*taking(now).values_list("queues", flat=True)) if queues else set()
    missing = set(queues) - served_queues
    if not missing:
        return ""
    missing_worker, jobs, place = "No worker", "queued jobs wait", " on the server"
    if missing == {GPU}:
        missing_worker, jobs = "No worker with a GPU", "jobs for the devices cuda and auto stay queued"
        place = " on a machine with a GPU"
    elif served_queues:
        missing_worker, jobs, place = f"No worker for the queue {' or '.join(sorted(missing))}", "its jobs wait", ""
    advice = f"Start one{place} with {RUN} worker. It runs queued jobs automatically."
    return f"{missing_worker} is running, so {jobs}. {advice}"
