"""Duration of the harvest in five lines (docs/python.md) in a new process, with torch's default number of threads.

    python benches/python_api.py

Target: at most 15 seconds including imports, on a quiet machine. If other programs run, compare the CPU seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

FIVE_LINES = """
import kgharvest as kg
lm = kg.load_lm("embedded")
seed_tuples = [("paris", "france"), ("rome", "italy")]
capitals = kg.harvest("<ENT0> is the capital of <ENT1> .", seed_tuples, lm, max_tuples=10)
print(capitals)
"""


def main() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    root = Path(__file__).resolve().parent.parent
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIVE_LINES], cwd=root, env=environment, check=True)
    wall_s, cpu = time.perf_counter() - start, os.times()
    print(f"{wall_s:.1f} s, {cpu.children_user + cpu.children_system:.1f} CPU s")


if __name__ == "__main__":
    main()
