"""Cost of replication packs for rounds of 20,000 statements with three judgments each.

    python benches/pack.py [N_TASKS ...]

The rounds are those of benches/report.py. Prints the seconds and the peak memory of packing and of verifying, each in a
process that does nothing else, and the size of the pack.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = (20_000,)

sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

DATA = set_up_django()

from django.db import connections

from benches.report import make_round
from evaluation.reports.services import create_report


def main() -> None:
    migrate()
    for n_tasks in [int(text) for text in sys.argv[1:]] or SIZES:
        report = create_report(make_round(n_tasks, random.Random(n_tasks)))
        connections.close_all()
        pack = DATA / f"{n_tasks}.zip"
        print(f"{n_tasks:,} statements, {report.document['n_judgments']:,} judgments")
        measure("pack", "--report", str(report.pk), "--output", str(pack))
        print(f"{pack.stat().st_size / 1e6:.1f} MB")
        measure("verify", str(pack))


def measure(*command: str) -> None:
    """Run a command in its own process and print its cost."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, str(ROOT / "manage.py"), *command], env=os.environ)
    _, status, usage = os.wait4(process.pid, 0)
    seconds, cpu = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    print(f"{command[0]}: {seconds:.1f} s, {cpu:.1f} s of CPU, {usage.ru_maxrss / 1024:.0f} MB; exit {status}")


if __name__ == "__main__":
    main()
