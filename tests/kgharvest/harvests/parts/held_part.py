"""Runner of harvest parts in tests with real workers. A part does not finish while the file HOLD exists."""

from __future__ import annotations

import time
from pathlib import Path

from django.conf import settings

from kgharvest.engine.types import Progress
from kgharvest.harvests.parts import sharing
from kgharvest.jobs import ledger
from kgharvest.models import Job

HOLD = "hold-parts"  # file in the data folder


def run(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    store = sharing.run_part(job, heartbeat)
    while (Path(settings.DATA_DIR) / HOLD).exists():
        heartbeat(Progress("search", 0, 1))
        time.sleep(0.1)
    return store
