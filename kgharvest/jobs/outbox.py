"""Outbox: a table of calls to other systems, and the loop that claims, tries, and retries these calls.

An outbox is a table with the columns `n_tries`, `next_try_at`, and `error`. The method `waiting()` of its queryset
returns the rows that can be tried. For each outbox (`registries.OUTBOXES`), one job at a time tries all due rows.

A claim counts the try, sets the time of the next try, and is committed before the call. If the worker is killed after
the call and before the outcome is recorded, the row is still waiting and is tried again (at-least-once delivery). If
the claim itself removes the row from `waiting()`, the row is never retried automatically (at-most-once delivery, for
payments).
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone
from django.utils.module_loading import import_string

from kgharvest.engine.types import Progress
from kgharvest.jobs import ledger
from kgharvest.models import Job

FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 3600.0


def wait_after(n_tries: int) -> timedelta:
    """Return the wait after `n_tries` tries: FIRST_WAIT_S, doubled for each additional try, at most LONGEST_WAIT_S.

    The wait is shortened at random by up to one half, so that rows that failed together are not retried together.
    """
    longest = min(FIRST_WAIT_S * 2.0 ** min(n_tries - 1, 30), LONGEST_WAIT_S)
    return timedelta(seconds=longest * random.uniform(0.5, 1))


class Result(Enum):
    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"  # the call is not retried
    UNCERTAIN = "uncertain"  # the call may have taken effect, so it must not be repeated


class Outcome(NamedTuple):
    """The outcome of one try. after_s: minimum wait before a retry. fields: additional columns to store."""

    result: Result
    error: str = ""
    after_s: float | None = None
    fields: Mapping[str, Any] = {}


class Outbox(ABC):
    """The loop that claims, tries, and retries the rows of one table. An instance runs the jobs of its kind.

    states: mapping from results to states of the row; empty if the table has no column `state`. rows_at_once: number of
    tries made in parallel, in threads. If it is greater than 1, `attempt` must not use the database.
    """

    job_kind: str
    model: type[Model]
    stage: str  # name of the job's stage, shown in the job's progress
    states: Mapping[Result, str] = {}
    rows_at_once = 1

    @abstractmethod
    def attempt(self, row: Any) -> Outcome:
        """Make one try. It is called outside transactions."""

    def due(self, now: datetime) -> QuerySet:
        """Return the rows to try now, in order."""
        return self.model.objects.waiting().filter(next_try_at__lte=now).order_by("pk")

    def unfinished(self) -> QuerySet:
        """Return the rows for which an outcome can still be stored."""
        return self.model.objects.waiting()

    def claim_fields(self, row: Any, now: datetime) -> dict[str, Any]:
        """Return additional columns that the claim of a row stores."""
        return {}

    def clean_up(self, now: datetime) -> None:  # noqa: B027 - optional
        """Delete old rows. It is called in the transaction that ends the job."""

    def enqueue_if_due(self, now: datetime) -> None:
        """Enqueue the job if a row is due and no such job is unfinished."""
        if self.due(now).exists():
            ledger.enqueue_once(self.job_kind)

    def __call__(self, job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
        """Try rows until none is due."""
        n_tried = 0
        while rows := self.claim(timezone.now()):
            with heartbeat.kept_alive():
                self.send(rows)
            n_tried += len(rows)
            heartbeat(Progress(self.stage, n_tried, None))

        def end_job() -> None:
            self.clean_up(timezone.now())
            ledger.delete_ended(self.job_kind)
            # Rows that were stored since the last claim have not enqueued a job, because this job was still unfinished.
            transaction.on_commit(lambda: self.enqueue_if_due(timezone.now()))

        return end_job

    def claim(self, now: datetime) -> list:
        """Claim up to `rows_at_once` due rows for this process and return them. Empty if no row is due."""
        while due := self.due(now)[: self.rows_at_once]:
            if claimed := [row for row in due if self._claim(row, now)]:
                return claimed
        return []

    def _claim(self, row: Any, now: datetime) -> bool:
        """Count the try and set the time of the next try, unless another process has claimed the row first."""
        unclaimed = self.model.objects.waiting().filter(pk=row.pk, n_tries=row.n_tries)
        row.retry_at = now + wait_after(row.n_tries + 1)
        fields = {"n_tries": row.n_tries + 1, "next_try_at": row.retry_at} | self.claim_fields(row, now)
        for name, value in fields.items():
            setattr(row, name, value)
        return bool(unclaimed.update(**fields))

    def send(self, rows: Sequence[Any]) -> None:
        """Try claimed rows and record the outcomes."""
        with ThreadPoolExecutor(self.rows_at_once) as pool:
            try_all = map if self.rows_at_once == 1 else pool.map
            for row, outcome in zip(rows, try_all(self.attempt, rows), strict=True):
                self.record(row, outcome, timezone.now())

    def record(self, row: Any, outcome: Outcome, now: datetime) -> None:
        """Store the outcome of a try.

        The outcome is ignored if the row is finished. An outcome other than DONE is also ignored if a later try has
        started.
        """
        unfinished = self.unfinished().filter(pk=row.pk)
        fields = {"error": outcome.error[: self.model._meta.get_field("error").max_length], **outcome.fields}
        if outcome.result in self.states:
            fields["state"] = self.states[outcome.result]
        if outcome.result is not Result.DONE:
            unfinished = unfinished.filter(n_tries=row.n_tries)
        if outcome.result is Result.RETRY:
            retry_at = max(row.retry_at, now + timedelta(seconds=outcome.after_s or 0))
            if retry_at != row.next_try_at:
                fields["next_try_at"] = retry_at
        unfinished.update(**fields)


def enqueue_due_outboxes(now: datetime) -> None:
    """Enqueue the job of each outbox that has a due row. This is a periodic task of every worker."""
    for path in settings.OUTBOXES.values():
        import_string(path).enqueue_if_due(now)
