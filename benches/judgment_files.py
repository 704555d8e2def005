"""Cost of import, export, and audit log of 300,000 judgments: seconds, and memory of a process that does nothing else.

    python benches/judgment_files.py      on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/judgment_files.py    on an empty PostgreSQL database

Must hold: the import in under 30 s; each export in under 10 s, with no more memory than for 3,000 judgments; sealing
and verifying in under 120 s.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = (3_000, 300_000)
ANNOTATORS_PER_TUPLE = 3
N_ANNOTATORS = 40
COLUMNS = ("relation", "entities", "annotator", "label", "model", "setting", "seconds", "judged_at")
# Measured inside the process, because only the process itself knows its peak memory.
MEASURED = """
import resource, sys, time
sys.argv[0] = "manage.py"
from django.core.management import execute_from_command_line
import django; django.setup()
begin = time.perf_counter()
execute_from_command_line(sys.argv)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{time.perf_counter() - begin:6.1f} s, peak {peak:4.0f} MB", file=sys.stderr)
"""


def write_judgments(path: Path, n: int) -> None:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for number in range(n // ANNOTATORS_PER_TUPLE):
            entities = json.dumps([f"head {number}", f"tail {number % 997}"])
            for annotator in rng.sample(range(N_ANNOTATORS), ANNOTATORS_PER_TUPLE):
                label = rng.choice(("True", "True", "False", "Unjudgeable"))
                moment = f"2026-03-{1 + number % 28:02}T12:{annotator:02}:00Z"
                cell = (f"relation_{number % 14}", entities, f"worker {annotator}", label, "big", "multi")
                writer.writerow((*cell, f"{rng.uniform(1, 20):.2f}", moment))


def measured(*arguments: object, output: Path | None = None) -> str:
    """Run a command of manage.py in its own process and return its cost."""
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    with (output or Path(os.devnull)).open("wb") as file:
        run = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    return run.stderr.splitlines()[-1]


def show(n: int, name: str, measure: Callable[[], str]) -> None:
    print(f"{n:>7,} {name:<14} {measure()}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kgharvest-bench-") as folder:
        os.environ |= {"KGHARVEST_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "kgharvest.settings"}
        measured("migrate", "--verbosity", 0)
        for n in SIZES:
            path, name = Path(folder) / f"{n}.csv", f"bench-{n}"
            write_judgments(path, n)
            command = ("import_judgments", path, "--round", name, "--create")
            show(n, "import", lambda command=command: measured(*command))
            show(n, "import, again", lambda command=command: measured(*command, "--duplicates", "first"))
            show(n, "seal, verify", lambda: measured("audit", "verify"))
            show(n, "verify", lambda: measured("audit", "verify"))
            for file_format in ("csv", "jsonl", "parquet"):
                export = ("export_judgments", "--round", name, "--format", file_format)
                output = Path(folder) / f"{n}.{file_format}"
                show(n, f"export {file_format}", lambda export=export, output=output: measured(*export, output=output))


if __name__ == "__main__":
    main()
