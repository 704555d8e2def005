"""Cost of import and export of a million tuples: seconds, CPU seconds, tuples per second, and memory of the process.

    python benches/tuples.py [--tuples 1000000]                              on SQLite in a temporary folder
    DATABASE_URL=postgres://... python benches/tuples.py [--tuples 1000000]  on an empty PostgreSQL database
    python benches/tuples.py --harvests FOLDER      all ent_tuples.json under a folder, such as bertnet/results/human

Must hold: imports of 10,000 tuples per second and exports of 40,000, with the memory needed for a tenth of the tuples;
the published harvests in under 30 s. CPU seconds are measured for this process only, so they exclude PostgreSQL
and other programs on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Measured inside the process, because only the process itself knows its peak memory.
MEASURED = """
import json, resource, sys, time
import django; django.setup()
from django.core.management import call_command
began, cpu = time.perf_counter(), time.process_time()
for command in json.load(sys.stdin):
    call_command(*command)
sys.stdout.flush()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - began, time.process_time() - cpu, peak, file=sys.stderr)
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--harvests", type=Path, metavar="FOLDER")
    return parser.parse_args()


def measured(*commands: tuple[object, ...], output: Path | None = None) -> tuple[float, float, float]:
    """Run commands of manage.py in one separate process; return seconds, CPU seconds, and peak megabytes."""
    request = json.dumps([[str(word) for word in command] for command in commands])
    with (output or Path(os.devnull)).open("wb") as file:
        run = subprocess.run(
            [sys.executable, "-c", MEASURED],
            cwd=ROOT,
            input=request.encode(),
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    if run.returncode:
        sys.exit(run.stderr.decode())
    seconds, cpu, peak = map(float, run.stderr.decode().split()[-3:])
    return seconds, cpu, peak


def show(n: int, name: str, took: tuple[float, float, float]) -> None:
    seconds, cpu, peak = took
    rates = f"{n / seconds:>8,.0f} per second, {n / cpu:>8,.0f} per CPU second"
    print(f"{n:>9,} {name:<16} {seconds:6.1f} s, {cpu:6.1f} s of CPU, {rates}, peak {peak:4.0f} MB", flush=True)


def write_tuples(path: Path, n: int) -> None:
    rng = random.Random(n)
    with path.open("w", encoding="utf-8") as file:
        for number in range(n):
            entities = [f"Head {rng.randrange(n)} of {n}", f"tail {number % 9973}"]
            row = {"entities": entities, "score": -rng.expovariate(0.1), "mtl": -rng.expovariate(0.2)}
            file.write(json.dumps(row) + "\n")


def write_relations(path: Path, names: list[tuple[str, int]]) -> None:
    slots = ["<ENT0> goes with <ENT1>.", "<ENT0> goes with <ENT1> at <ENT2>."]
    relations = [
        {
            "name": name,
            "statement": slots[arity - 2],
            "initial_prompts": [slots[arity - 2]],
            "seed_tuples": [["a", "b", "c"][:arity], ["d", "e", "f"][:arity]],
        }
        for name, arity in names
    ]
    path.write_text(json.dumps({"relations": relations}), encoding="utf-8")


def at_size(folder: Path, n: int) -> None:
    write_relations(folder / "relations.json", [(f"bench_{n}", 2)])
    measured(("import_relations", folder / "relations.json", "--set", f"bench-{n}"))
    source = folder / "source.jsonl"
    write_tuples(source, n)
    cell = ("--relation", f"bench-{n}/bench_{n}", "--model", "bench", "--setting", "multi")
    show(n, "import", measured(("import_tuples", source, *cell)))
    job = newest_job(folder)
    for file_format in ("jsonl", "csv", "nt", "ttl"):
        export = ("export_tuples", "--job", job, "--format", file_format, "--include-sensitive")
        output = folder / f"exported.{file_format}"
        show(n, f"export {file_format}", measured(export, output=output))
        if file_format in ("jsonl", "csv"):
            show(n, f"import {file_format} again", measured(("import_tuples", output, *cell)))
        output.unlink()


def newest_job(folder: Path) -> str:
    output = folder / "job"
    program = "from kgharvest.models import HarvestJob; print(HarvestJob.objects.latest('pk').pk)"
    measured(("shell", "--no-imports", "--verbosity", 0, "--command", program), output=output)
    return output.read_text().strip()


def published(folder: Path, harvests: Path) -> None:
    paths = sorted(harvests.rglob("ent_tuples.json"))
    arities = {path.parent.name: len(json.loads(path.read_text())[0][0]) for path in paths}
    write_relations(folder / "relations.json", sorted(arities.items()))
    measured(("import_relations", folder / "relations.json", "--set", "published"))
    commands = []
    for path in paths:
        setting, model, relation = path.parts[-4:-1]
        cell = ("--relation", f"published/{relation}", "--model", model, "--setting", setting[:30])
        commands.append(("import_tuples", path, *cell))
    n = sum(len(json.loads(path.read_text())) for path in paths)
    show(n, f"of {len(paths)} files", measured(*commands))


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kgharvest-bench-") as name:
        folder = Path(name)
        # With DEBUG, Django stores every SQL statement.
        production = {"SECRET_KEY": "only for this measurement" * 3, "ALLOWED_HOSTS": "localhost"}
        os.environ |= {"KGHARVEST_DATA_DIR": name, "DJANGO_SETTINGS_MODULE": "kgharvest.settings", **production}
        measured(("migrate", "--verbosity", 0))
        if options.harvests:
            published(folder, options.harvests)
            return
        for n in (options.tuples // 10, options.tuples):
            at_size(folder, n)


if __name__ == "__main__":
    main()
