"""Distribution of one harvest over several workers.

The parts of the harvest become jobs for idle workers and for the harvest's own worker. The result is bit-identical to
that of a single worker. Therefore, sharing needs no option: a long harvest is shared as soon as a worker is idle.
Because the harvest's own worker also runs unclaimed parts, it waits for other workers only at the end of a stage. A
part never waits for another part. If another worker takes over the harvest, it reuses the finished parts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from kgharvest import code_version
from kgharvest.engine.types import Cancelled, EngineError, OnProgress, Progress, Reporter
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger, workers
from kgharvest.models import HarvestJob, HarvestPart, Job
from kgharvest.operations.clock import shared_now

if TYPE_CHECKING:
    from kgharvest.engine.harvest import Prepared
    from kgharvest.engine.parts import Do, Part
    from kgharvest.engine.types import HarvestParams

logger = logging.getLogger(__name__)

KIND = "harvest-part"
# Name of a stage whose single part is stored as succeeded and contains the encoded prompts for all parts.
PREPARED = "prepared"
LOOK_EVERY_S = 2  # interval between checks for idle workers
POLL_S = 0.2  # polling interval while other workers run the last parts

ResultT = TypeVar("ResultT")


class Sharing:
    """Runner for the parts of one harvest under one claim of its job. Implements kgharvest.engine.parts.Share."""

    def __init__(self, job: HarvestJob, heartbeat: ledger.Heartbeat, on_progress: OnProgress):
        self._job, self._heartbeat, self._on_progress = job, heartbeat, on_progress
        self._is_shared = self._rows(PREPARED).exists()
        self._look_at: float | None = None
        self._stage, self._note = "", ""
        self._parts: Sequence[Part] = ()
        self._todo: list[int] = []
        self._n_done_alone = self._n_handed_out = 0

    def prepared(self, prepare: Callable[[], Prepared], params: HarvestParams) -> Prepared:
        """Return the preparation shared by an earlier claim, or the result of `prepare`."""
        from kgharvest.harvests.parts.serialization import read_prepared, write_prepared  # imports torch

        shared = prepared_of(self._job)
        if shared and shared[0] == code_version():
            return read_prepared(shared[1])[0]
        if shared:  # another code version may divide the harvest differently
            self._heartbeat.store(lambda: ledger.delete_parts([self._job.pk]))
            self._is_shared = False
        prepared = prepare()
        self._write_prepared = partial(write_prepared, prepared, params)
        return prepared

    def __call__(self, stage: str, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> list[ResultT]:
        """Return the results of the parts, in order.

        Raises EngineError, or Cancelled if the harvest was canceled or taken over.
        """
        self._stage, self._parts, self._note, self._n_done_alone = stage, parts, "", 0
        handed_out = set(self._rows(stage).values_list("position", flat=True))
        self._todo = [position for position in range(len(parts)) if position not in handed_out]
        if self._look_at is None:
            self._look_at = monotonic() + settings.HARVEST_SHARED_AFTER_S
        if self._is_shared:
            self._hand_out()
        results = dict(self._done_alone(parts, do))
        self._n_handed_out = len(parts) - len(results)
        if self._n_handed_out:
            results |= self._done_together(parts, do)
        return [results[position] for position in range(len(parts))]

    def summary(self) -> dict[str, int]:
        """Return the number of shared parts and the number of workers, or an empty result if no part was shared."""
        shared = HarvestPart.objects.filter(job__parent=self._job).exclude(stage=PREPARED)
        worker_ids = list(shared.values_list("job__worker", flat=True))
        return {"n": len(worker_ids), "n_workers": len({self._job.worker_id, *worker_ids})} if worker_ids else {}

    def _rows(self, stage: str) -> QuerySet:
        return HarvestPart.objects.filter(job__parent=self._job, stage=stage).order_by("pk")

    # Running parts in this worker

    def _done_alone(self, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> Iterator[tuple[int, ResultT]]:
        """Run the parts in order until the remaining parts are handed out to other workers."""
        report = Reporter(self._watch_alone, self._stage, sum(part.size for part in parts))
        while self._todo:
            position = self._todo.pop(0)
            n_before = self._n_done_alone
            yield position, do(parts[position], lambda n_done, n_before=n_before: report(n_before + n_done))
            self._n_done_alone += parts[position].size
            report(self._n_done_alone)

    def _watch_alone(self, progress: Progress) -> None:
        self._on_progress(progress._replace(note=self._note))
        if not self._todo or monotonic() < self._look_at:
            return
        self._look_at = monotonic() + LOOK_EVERY_S
        try:
            if workers.idle_processes(shared_now()).get(self._job.queue):
                self._hand_out()
        except ledger.DATABASE_IS_AWAY as error:
            # While the database is unavailable, other workers cannot claim parts either.
            logger.warning("Cannot share harvest %s: %s", self._job.pk, error)

    # Running parts in several workers

    def _hand_out(self) -> None:
        """Create jobs for the remaining parts."""
        if self._todo:
            self._heartbeat.store(self._store_parts)
            self._todo, self._is_shared = [], True

    def _store_parts(self) -> None:
        from kgharvest.harvests.parts.serialization import write_part

        if not self._is_shared:
            job = self._new_job(status=Job.Status.SUCCEEDED, finished_at=timezone.now())
            job.payload["code_version"] = code_version()
            job.save()
            HarvestPart.objects.create(job=job, stage=PREPARED, position=0, size=0, result=self._write_prepared())
        jobs = Job.objects.bulk_create(self._new_job() for _ in self._todo)
        HarvestPart.objects.bulk_create(
            HarvestPart(
                job=job,
                stage=self._stage,
                position=position,
                size=self._parts[position].size,
                question=write_part(self._parts[position]),
            )
            for job, position in zip(jobs, self._todo, strict=True)
        )
        ledger.enqueue(*jobs)

    def _new_job(self, **fields) -> Job:
        job = self._job
        placement = {name: job.payload[name] for name in ("device", "dtype")}
        return Job(kind=KIND, parent_id=job.pk, project_id=job.project_id, payload=placement, lm=job.lm, **fields)

    def _done_together(self, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> dict[int, ResultT]:
        """Run unclaimed parts and wait for the others. Then run the parts that failed in other workers."""
        from kgharvest.harvests.parts.serialization import read_result

        while self._n_unfinished():
            claimable = Job.objects.claimable(shared_now()).filter(
                parent=self._job, harvest_part__in=self._rows(self._stage)
            )
            job_id = claimable.order_by("pk").values_list("pk", flat=True).first()
            if job_id is None or not ledger.run_job(job_id, self._watch_part, self._heartbeat.token):
                sleep(POLL_S)
            self._heartbeat.renew()
        rows = self._rows(self._stage).exclude(result=None).values_list("position", "result").iterator(chunk_size=1)
        results = {position: read_result(result) for position, result in rows}
        for position in list(self._rows(self._stage).filter(result=None).values_list("position", flat=True)):
            results[position] = do(parts[position], lambda n_done: self._on_progress(self._last_progress))
        return results

    def _n_unfinished(self) -> int:
        """Report the progress of the stage, and return the number of its unfinished parts.

        Raises EngineError if a part failed in this worker, or Cancelled if parts are missing because the harvest ended.
        """
        rows = list(
            self._rows(self._stage).values_list("job__status", "job__error", "job__done", "size", "job__worker")
        )
        if len(rows) < self._n_handed_out:
            raise Cancelled(f"Harvest {self._job.pk} was canceled or taken over.")
        failed = [(error, worker) for status, error, _, _, worker in rows if status == Job.Status.FAILED]
        for error, worker in failed:
            if worker == self._job.worker_id:
                raise EngineError(error)
        n_succeeded = sum(status == Job.Status.SUCCEEDED for status, *_ in rows)
        n_workers = len({self._job.worker_id, *(worker for *_, worker in rows if worker)})
        self._note = f"{n_succeeded} of {len(rows)} parts done by {n_workers} worker{'s' * (n_workers != 1)}"
        done = sum(size if status == Job.Status.SUCCEEDED else done for status, _, done, size, _ in rows)
        total = sum(part.size for part in self._parts)
        self._last_progress = Progress(self._stage, min(self._n_done_alone + done, total), total, self._note)
        self._on_progress(self._last_progress)
        return len(rows) - n_succeeded - len(failed)

    def _watch_part(self, progress: Progress) -> None:
        """Report the progress of the harvest while this worker runs a part."""
        if monotonic() >= self._look_at:
            self._look_at = monotonic() + ledger.REPORT_EVERY_S
            self._n_unfinished()


def prepared_of(harvest: HarvestJob) -> tuple[str, bytes] | None:
    """Return the shared preparation and the code version that wrote it, or None if there is no preparation."""
    rows = HarvestPart.objects.filter(job__parent=harvest, stage=PREPARED).order_by("pk")
    row = rows.values_list("job__payload", "result").first()
    return (row[0]["code_version"], row[1]) if row else None


def run_part(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a job of kind "harvest-part". Returns the function that stores the result."""
    part = HarvestPart.objects.filter(pk=job.pk).first()
    harvest = HarvestJob.objects.select_related("language_model").filter(pk=job.parent_id).first()
    prepared = harvest and prepared_of(harvest)
    if part is None or harvest is None or prepared is None:
        raise Cancelled(f"Job {job.pk} is part of a harvest that has ended.")
    version, content = prepared
    if version != code_version():
        raise EngineError(f"This part needs kgharvest version {version}, which its harvest uses.")
    heartbeat(Progress(language_models.LOADING, 0))
    with heartbeat.kept_alive():
        from kgharvest.engine.harvest import question_of  # imports torch
        from kgharvest.harvests.parts.serialization import read_part, read_prepared, write_result

        lm = language_models.load(harvest.language_model, job.payload["device"], job.payload["dtype"])
    question = question_of(*read_prepared(content))
    report = Reporter(heartbeat, part.stage, part.size)
    result = write_result(read_part(part.question).do(lm, question, report))
    return lambda: HarvestPart.objects.filter(pk=part.pk).update(result=result)
