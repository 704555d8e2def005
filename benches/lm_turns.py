"""Number of LM loads, with and without the preference for an LM in memory.

    python benches/lm_turns.py [--jobs 120] [--seconds 60] [--load 40]

Jobs that need alternating LMs, as from a launch of many relations, are all queued at once. Workers run them with the
real job choice and the real claims on a SQLite file, under a simulated clock. --seconds: duration of a job. --load:
time to load an LM. Prints the loads, the hours until all jobs are done, and the longest time that a job was overtaken,
in minutes.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from kgharvest.jobs import ledger
from kgharvest.models import Job

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(n_jobs: int, n_lms: int, n_workers: int, n_kept: int, prefers: bool, job_s: float, load_s: float) -> str:
    """Run all jobs; return the loads, hours, and minutes to print."""
    Job.objects.all().delete()
    lms = list(islice(cycle(f"lm {number}" for number in range(n_lms)), n_jobs))
    job_ids = [Job.objects.create(kind="harvest", lm=lm).pk for lm in lms]
    pending = dict(zip(job_ids, lms, strict=True))
    free_at, memory = [START] * n_workers, [[] for _ in range(n_workers)]
    overtaken: dict[int, datetime] = {}
    n_loads, longest = 0, timedelta()
    for _ in job_ids:
        worker = min(range(n_workers), key=free_at.__getitem__)
        now = free_at[worker]
        job_id = ledger.next_job("harvest", now, memory[worker] if prefers else [])
        assert ledger.claim(job_id, now)
        Job.objects.filter(pk=job_id).update(status="succeeded", owner_token=None, lease_expires_at=None)
        del pending[job_id]
        for older in (other for other in pending if other < job_id):
            longest = max(longest, now - overtaken.setdefault(older, now))
        lm = lms[job_id - job_ids[0]]
        is_loaded = lm in memory[worker]
        n_loads += not is_loaded
        memory[worker] = [*(other for other in memory[worker] if other != lm), lm][-n_kept:]
        free_at[worker] = now + timedelta(seconds=job_s + (0 if is_loaded else load_s))
    assert not pending  # each job ran once
    hours = (max(free_at) - START).total_seconds() / 3600
    return f"{n_loads:4} loads {hours:5.2f} h {longest.total_seconds() / 60:5.1f} min"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--load", type=float, default=40)
    arguments = parser.parse_args()
    migrate()
    for n_lms, n_workers, n_kept in [(2, 1, 1), (2, 1, 2), (2, 2, 1), (3, 1, 2), (6, 2, 2), (6, 3, 2)]:
        print(f"{n_lms} LMs, {n_workers} workers that keep {n_kept} in memory")
        for prefers in (False, True):
            line = run(arguments.jobs, n_lms, n_workers, n_kept, prefers, arguments.seconds, arguments.load)
            print(f"  {'with' if prefers else 'without'} the preference: {line}")


if __name__ == "__main__":
    main()
