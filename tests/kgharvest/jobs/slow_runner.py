"""A slow fake harvest for tests with real workers. It reports progress and stores three tuples."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.conf import settings

from kgharvest.engine.types import HarvestResult, Progress, ScoredTuple, WeightedPrompt
from kgharvest.harvests import runner
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job

STEPS = int(os.environ.get("SLOW_RUNNER_STEPS", 15))
STEP_S = 0.1
HOLD = "hold"  # file in the data folder; harvests pause while it exists


def run(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    with (Path(settings.DATA_DIR) / "starts").open("a") as file:
        file.write(f"{job.pk} {os.getpid()}\n")
    for step in range(STEPS):
        heartbeat(Progress("search", step, STEPS))
        time.sleep(STEP_S)
        while (Path(settings.DATA_DIR) / HOLD).exists():
            heartbeat(Progress("search", step, STEPS))
            time.sleep(STEP_S)
    harvest_job = HarvestJob.objects.select_related("relation").get(pk=job.pk)
    return lambda: runner.store_result(harvest_job, three_tuples(), None)


def three_tuples() -> HarvestResult:
    pairs = [("dog", "swim"), ("bird", "fly"), ("cat", "climb")]
    return HarvestResult(
        prompts=(WeightedPrompt("<ENT0> can <ENT1> .", -1.0, 1.0),),
        tuples=tuple(ScoredTuple(pair, pair, -1.0 - rank, -2.0) for rank, pair in enumerate(pairs)),
        rejected={"stop word": 2},
        stats={"states": 7},
    )
