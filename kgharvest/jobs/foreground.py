"""Do a job in the process of a command, with a progress bar."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from kgharvest.engine.types import Progress
from kgharvest.jobs import ledger
from kgharvest.models import Job


@contextmanager
def warnings_unlogged() -> Iterator[None]:
    """Keep warnings about failed jobs out of the log: the command prints the reason itself."""
    logger = logging.getLogger("kgharvest")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_to_the_end(job: Job, bar: ProgressBar) -> None:
    try:
        ledger.run_job(job.pk, bar)
    except KeyboardInterrupt:
        ledger.cancel(job)
        raise


class ProgressBar:
    """Shows progress on standard error: one bar, reset with each stage."""

    def __init__(self, label: str):
        self._label = label
        self._bar = tqdm(desc=label, disable=None, leave=False)
        self._stage = ""

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def __call__(self, progress: Progress) -> None:
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._bar.reset(progress.total)
            self._bar.set_description_str(f"{self._label}: {progress.stage}")
        self._bar.total = progress.total
        self._bar.update(progress.done - self._bar.n)
