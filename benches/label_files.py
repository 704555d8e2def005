"""Time of `report FILE.csv` for 10,000 judgments, from the start of the program to its end.

    python benches/label_files.py      on a quiet machine

Must hold: under 5 s in each format.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
N_JUDGMENTS, PER_ITEM, N_ANNOTATORS = 10_000, 3, 40
MOST_SECONDS = 5
STRATA = {"head": 0.2, "tail": 0.8}


def write_labels(path: Path) -> None:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("item", "annotator", "label", "stratum", "weight", "cluster"))
        for number in range(N_JUDGMENTS // PER_ITEM):
            stratum = rng.choice([*STRATA])
            for annotator in rng.sample(range(N_ANNOTATORS), PER_ITEM):
                label = rng.choice(("True", "True", "True", "False", "Unjudgeable"))
                writer.writerow(
                    (number, f"worker {annotator}", label, stratum, STRATA[stratum], f"{stratum} {number // 4}")
                )


def main() -> None:
    is_slow = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        write_labels(path)
        environment = {**os.environ, "KGHARVEST_DATA_DIR": folder, "DEBUG": "1"}
        for file_format in ("json", "html", "md", "xlsx"):
            begin = time.perf_counter()
            command = [sys.executable, "manage.py", "report", str(path), "-o", f"{folder}/report.{file_format}"]
            subprocess.run(command, cwd=ROOT, env=environment, check=True)
            seconds = time.perf_counter() - begin
            is_slow |= seconds > MOST_SECONDS
            print(f"{file_format:5} {seconds:5.1f} s")
    sys.exit(is_slow)


if __name__ == "__main__":
    main()
