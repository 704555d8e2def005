"""Cost of import and export of a KG of a million statements: seconds, CPU seconds, and memory of the process.

    python benches/knowledge_graphs.py [--tuples 1000000]       on SQLite in a temporary folder

Imports a file of ten relations, opens a round that draws 2,000 of the tuples, and exports all tuples in every format.
Must hold for a million: 60 s per export, and 500 MB for import and export.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

from tuples import measured, show

N_RELATIONS = 10
FORMATS = ("hf", "pykeen", "nt", "ttl")
OPEN_ROUND = """
from annotation.rounds.services import open_round
from kgharvest.accounts.projects import default_project
from kgharvest.models import HarvestJob
cells = [{"job": pk, "n": 200} for pk in HarvestJob.objects.values_list("pk", flat=True)]
open_round({"name": "bench", "cells": cells}, None, default_project())
"""


def write_kg(path: Path, n: int) -> None:
    rng = random.Random(n)
    with path.open("w", encoding="utf-8") as file:
        for number in range(n):
            score = round(rng.random(), 4)
            file.write(f"Head {rng.randrange(n)}\trelation_{number % N_RELATIONS}\ttail {number % 9973}\t{score}\n")


def write_mapping(path: Path) -> None:
    templates = {f"relation_{number}": {"template": f"[HEAD] has {number} of [TAIL]."} for number in range(N_RELATIONS)}
    path.write_text(json.dumps({"relations": templates}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    n = parser.parse_args().tuples
    with tempfile.TemporaryDirectory(prefix="kgharvest-bench-") as name:
        folder = Path(name)
        production = {"SECRET_KEY": "only for this measurement" * 3, "ALLOWED_HOSTS": "localhost"}
        os.environ |= {"KGHARVEST_DATA_DIR": name, "DJANGO_SETTINGS_MODULE": "kgharvest.settings", **production}
        measured(("migrate", "--verbosity", 0))
        write_kg(folder / "kg.tsv", n)
        write_mapping(folder / "mapping.json")
        imported = ("import_kg", folder / "kg.tsv", "--name", "bench", "--mapping", folder / "mapping.json")
        show(n, "import", measured(imported))
        measured(("shell", "--no-imports", "--verbosity", 0, "--command", OPEN_ROUND))
        for file_format in FORMATS:
            output = folder / f"out-{file_format}"
            command = ("export_kg", "--round", "bench", "--format", file_format, "--verdict", "all", "--output", output)
            show(n, f"export {file_format}", measured(command))
            shutil.rmtree(output) if output.is_dir() else output.unlink()


if __name__ == "__main__":
    main()
