"""One harvest by one worker and by two: the speedup, and whether the tuples are identical to the bit.

    python benches/split_harvest.py [--model embedded | base] [--candidates 20000] [--relation prevent] [--workers 2]

Runs real workers of one thread each, on SQLite and the filesystem broker, in a temporary folder. `base` is a BERT of
base size with random weights. Prints wall-clock seconds, and the CPU seconds of each worker in each stage. The critical
path is the sum over stages of the busiest worker's CPU seconds, that is, the wall-clock time on idle cores. Exits with
status 1 if the results differ.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.installation import ROOT, migrate, set_up_django

FOLDER = set_up_django(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.jobs import workers
from kgharvest.models import HarvestedTuple, HarvestJob, Worker

TICKS = os.sysconf("SC_CLK_TCK")
POLL_S = 0.1


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def running_workers(n: int):
    """Yield the processes of `n` workers that are ready."""
    arguments = [sys.executable, "-m", "celery", "-A", "kgharvest", "worker", "--pool", "solo", "--loglevel", "WARNING"]
    names = [f"worker-{number}@bench" for number in range(n)]
    with (FOLDER / "workers.log").open("ab") as log:
        processes = [
            subprocess.Popen([*arguments, "-n", name], cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
            for name in names
        ]
        try:
            while workers.alive(timezone.now()).count() < n:
                time.sleep(POLL_S)
            yield processes
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait()
            Worker.objects.all().delete()


def queue_harvest(arguments: argparse.Namespace, model: str, candidates: int) -> HarvestJob:
    call_command(
        "harvest",
        relation=[arguments.relation],
        model=[model],
        setting=["multi"],
        candidates=candidates,
        max_entity_tokens=arguments.max_entity_tokens,
        again=True,
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    return HarvestJob.objects.latest("pk")


def fingerprint(job: HarvestJob) -> str:
    digest = hashlib.sha256(repr(sorted(job.summary["rejected"].items())).encode())
    digest.update(repr((job.summary["stats"], job.summary["notice"], job.summary["warning"])).encode())
    rows = HarvestedTuple.objects.filter(job=job).order_by("rank")
    for row in rows.values_list("rank", "knowledge_tuple", "surface", "score", "mtl").iterator():
        digest.update(repr(row).encode())  # repr distinguishes every bit of a float
    return digest.hexdigest()[:16]


def measure(arguments: argparse.Namespace, model: str, candidates: int, n_workers: int) -> tuple[float, float, str]:
    """Return wall-clock and critical path in seconds, and a fingerprint of the result."""
    with running_workers(n_workers) as processes:
        while Worker.objects.filter(language_models=[]).exists():  # until each worker has loaded the LM
            for job in [queue_harvest(arguments, model, 5) for _ in range(n_workers)]:
                wait_for(job)
            time.sleep(2 * settings.JOB_LOOK_EVERY_S)
        spent: dict[str, list[float]] = defaultdict(lambda: [0.0] * n_workers)
        job = queue_harvest(arguments, model, candidates)
        before = [cpu_seconds(process.pid) for process in processes]
        while job.is_unfinished:
            time.sleep(POLL_S)
            job.refresh_from_db()
            now = [cpu_seconds(process.pid) for process in processes]
            stage = job.stage.partition(",")[0]
            spent[stage] = [old + new - then for old, new, then in zip(spent[stage], now, before, strict=True)]
            before = now
    if job.status != job.Status.SUCCEEDED:
        sys.exit(f"The harvest is {job.status}: {job.error}. See {FOLDER / 'workers.log'}.")
    wall = (job.finished_at - job.started_at).total_seconds()
    print(f"{n_workers} worker(s): {wall:.1f} s, {job.n_tuples} tuples, {job.summary['stats']}")
    print(f"  shared parts: {job.summary.get('parts', 'none')}; seconds of stages: {job.summary['seconds']}")
    for stage, seconds in spent.items():
        print(f"  CPU seconds in {stage or 'waiting'}: {', '.join(f'{one:.1f}' for one in seconds)}")
    path = sum(map(max, spent.values()))
    print(f"  CPU seconds in total: {sum(map(sum, spent.values())):.1f}; critical path {path:.1f}", flush=True)
    return wall, path, fingerprint(job)


def wait_for(job: HarvestJob) -> None:
    while job.is_unfinished:
        time.sleep(POLL_S)
        job.refresh_from_db()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded", help="base, an embedded LM, or a folder")
    parser.add_argument("--relation", default="prevent", help="relation of the set demo")
    parser.add_argument("--candidates", type=int, help="number of candidates (default: 20000, or 300 for base)")
    parser.add_argument("--max-entity-tokens", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    migrate()
    call_command("import_relations", str(ROOT / "kgharvest/relation_sets/demo.json"), stdout=io.StringIO())
    model, candidates = arguments.model, arguments.candidates or 20_000
    if model == "base":
        from benches.search import base_sized

        model, candidates = str(base_sized(str(EMBEDDED_LMS["embedded"]), FOLDER / "base")), arguments.candidates or 300
    print(
        f"{arguments.model}, {candidates} candidates per pattern; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    wall_1, path_1, result_1 = measure(arguments, model, candidates, 1)
    wall_n, path_n, result_n = measure(arguments, model, candidates, arguments.workers)
    print(
        f"ratio of wall-clock {wall_1 / wall_n:.2f}, of critical paths {path_1 / path_n:.2f}; "
        f"results {result_1}, {result_n}"
    )
    sys.exit(result_1 != result_n)


if __name__ == "__main__":
    main()
