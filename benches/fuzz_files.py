"""Fuzz the commands with odd arguments and files. Every command must end with a message, never with a traceback.

    python benches/fuzz_files.py [--commands 5000] [--seed 0] [--only NUMBER]

Each command is drawn from the seed and its number: a command of the project, with arguments of its parser and odd ones,
and with files that were valid before they were damaged: bytes changed, cut off, inserted, or removed, other encodings,
odd JSON instead of values, and paths that are not files. It runs in this process as in manage.py. Commands that query
an LM get files that stop them before the query, and valid files in a tenth of the cases. Prints each traceback with its
number. Exits with status 1 if there was one. DATABASE_URL and DEBUG=1 choose a database other than SQLite.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import random
import sys
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.installation import migrate, set_up_django

SLOW_S = 20.0
ODD_WORDS = [
    "",
    " ",
    "-1",
    "0",
    "1",
    "2",
    "99999999999999999999",
    "nan",
    "1e999",
    "é",
    "\udcff",
    "a" * 600,
    "a b",
    "/",
    "..",
    "--",
    "😀",
    "a\nb",
]
ODD_VALUES = [
    None,
    True,
    -1,
    0,
    10**40,
    1e308,
    "",
    " ",
    "\x00",
    "\ud800",
    "a" * 2_000,
    "a" * 1_100_000,
    [],
    {},
    [[]],
    [None],
    "<ENT0>",
    "<ENT99>",
]
ODD_PATHS = ["/nowhere/at/all", "/dev/null", "/", ".", "a" * 300, "\udcff", "/proc/self/mem", "/root/../etc/shadow", ""]
SUITABLE_SHARE = 0.75  # share of options that get a suitable value

RELATION = {
    "name": "home",
    "statement": "The home of the <ENT0> is the <ENT1>.",
    "initial_prompts": ["the <ENT0> lives in the <ENT1>.", "the <ENT1> is home to the <ENT0>."],
    "prompts": ["a <ENT0> is at home in the <ENT1>."],
    "seed_tuples": [["camel", "desert"], ["whale", "ocean"], ["bear", "forest"]],
    "explanation": "Where it lives.",
}
FACTS = [
    {"relation": "home", "sub": f"a{n}", "obj": f"b{n}", "part": part}
    for n, part in enumerate(["train", "dev", "test"] * 3)
]
CELL = {"relation": "home", "model": "elsewhere", "setting": "human", "n": 2}
DOCUMENTS: dict[str, Any] = {
    "relations.json": {
        "name": "animals",
        "description": "of the zoo",
        "relations": [RELATION, {**RELATION, "name": "lair"}],
    },
    "reference.json": {
        "home": {"init_prompts": RELATION["initial_prompts"], "seed_ent_tuples": RELATION["seed_tuples"], "prompts": []}
    },
    "lama.jsonl": [
        {"relation": "P36", "template": "The capital of [X] is [Y] .", "type": "N-1", "description": "capitals"}
    ]
    * 2,
    "tuples.jsonl": [
        {"relation": "home", "entities": ["a", "b"], "surface": ["A", "b"], "score": -1.5, "mtl": -1, "rank": 1}
    ]
    * 3,
    "ent_tuples.json": [[["a", "b"], 0.5], [["c", "d"], 0.25]],
    "round.json": {"name": "pilot", "cells": [CELL], "judgments_per_task": 3},
    "home.jsonl": [{"template": "[X] lives in [Y] .", "weight": 0.3}] * 2,
    "facts.jsonl": FACTS,
    "scored.jsonl": [{"relation": "home", "entities": [f"a{n}", f"b{n}"]} for n in range(5)],
    "kg.jsonl": [["a", "r", "b"], {"head": "c", "tail": "d"}, {"entities": ["e", "f"]}],
    "train.jsonl": [{"sentence": f"this is {n}", "label": n % 2} for n in range(4)],
}
TEXTS = {
    "tuples.csv": 'entities,score\n"[""a"", ""b""]",-1\n"[""c"", ""d""]",-2\n',
    "judgments.csv": "relation,entities,annotator,label,seconds,judged_at,comment\n"
    'home,"[""a"", ""b""]",ann,True,1.5,2026-03-01T12:00:00Z,ok\n'
    'home,"[""a"", ""b""]",bob,False,,,\n',
    "kg.csv": "a,r,b\nc,r,d\n",
    "kg.tsv": "a\tr\tb\n",
    "train.tsv": "sentence\tlabel\nthis is a\t0\nthis is b\t1\n",
    "words.txt": "one\ntwo\n",
}
# Files that options and arguments of commands expect. Other commands get any file.
FILES = {
    "import_relations": ["relations.json", "reference.json", "lama.jsonl"],
    "import_tuples": ["tuples.jsonl", "tuples.csv", "ent_tuples.json"],
    "import_prompts": ["home.jsonl"],
    "import_judgments": ["judgments.csv"],
    "open_round": ["round.json"],
    "report": ["kg.csv", "kg.tsv", "kg.jsonl"],
    "evaluate_scores": ["scored.jsonl"],
    "probe": ["facts.jsonl", "facts.zip", "lama.jsonl", "words.txt"],
    "extract": ["facts.jsonl", "facts.zip"],
    "classify": ["train.jsonl", "train.tsv"],
}
QUERY_AN_LM = {"evaluate_scores", "probe", "extract", "classify"}
NOT_RUN = {"demo", "train_embedded_lm", "web", "worker"}
NAMES = {
    "relation": ["home", "animals/home", "lair", "nothing"],
    "set_name": ["animals", "demo", "mine"],
    "round": ["pilot", "imported", "none"],
    "model": ["embedded", "elsewhere", "lab/tiny"],
    "job": ["1", "2", "3"],
    "cut": ["top:1", "share:0.5", "base:2", "score:-1", "precision:0.8"],
    "by": ["researcher"],
    "template": ["{sentence} [T] [P] .", "{context} {subject} [T] [P]"],
}


# Files


def valid_files() -> dict[str, bytes]:
    """Return the files by name, in their valid form."""
    files = {name: text.encode() for name, text in TEXTS.items()}
    for name, document in DOCUMENTS.items():
        lines = [json.dumps(line) for line in document] if name.endswith("l") else [json.dumps(document, indent=1)]
        files[name] = ("\n".join(lines) + "\n").encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for part in ("train", "dev", "test"):
            opened.writestr(f"home/{part}.jsonl", "\n".join(json.dumps(fact) for fact in FACTS if fact["part"] == part))
    return files | {"facts.zip": archive.getvalue()}


def with_odd_value(rng: random.Random, document: Any) -> Any:
    """Return the document with one part replaced, removed, or added."""
    if not isinstance(document, dict | list) or not document or rng.random() < 0.15:
        return rng.choice(ODD_VALUES)
    copy = dict(document) if isinstance(document, dict) else list(document)
    key = rng.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    kind = rng.random()
    if kind < 0.15:
        del copy[key]
    elif kind < 0.25 and isinstance(copy, dict):
        copy[rng.choice(["odd", "", "name", "relation"])] = rng.choice(ODD_VALUES)
    else:
        copy[key] = with_odd_value(rng, copy[key])
    return copy


def damaged(rng: random.Random, name: str, content: bytes) -> bytes:
    kind = rng.randrange(8)
    if kind < 4 and name in DOCUMENTS:
        document = with_odd_value(rng, DOCUMENTS[name])
        lines = document if name.endswith("l") and isinstance(document, list) else [document]
        return "\n".join(json.dumps(line) for line in lines).encode("utf-8", "surrogatepass")
    if kind == 4:
        return content.decode("latin-1").encode(rng.choice(["utf-16", "utf-8-sig", "utf-32", "cp500"]))
    if kind == 5:
        return content[: rng.randrange(len(content) + 1)]
    changed = bytearray(content)
    for _ in range(rng.choice([1, 3, 30])):
        place = rng.randrange(len(changed) + 1)
        piece = rng.choice(
            [b"\x00", b"\xff", b'"', b"[" * rng.choice([1, 50_000]), b"\n", b",", b"\r", rng.randbytes(3), b"9" * 5_000]
        )
        changed[place : place + rng.choice([0, 1, 10])] = piece
    return bytes(changed)


def some_file(rng: random.Random, folder: Path, files: dict[str, bytes], command: str) -> str:
    if rng.random() < 0.06:
        return rng.choice([*ODD_PATHS, str(folder)])
    name = rng.choice(FILES.get(command) or list(files)) if rng.random() < 0.93 else rng.choice(list(files))
    is_valid = rng.random() < (0.1 if command in QUERY_AN_LM else 0.3)
    path = folder / name
    path.write_bytes(files[name] if is_valid else damaged(rng, name, files[name]))
    return str(path)


# Commands


def our_commands() -> dict[str, Any]:
    from django.core.management import get_commands, load_command_class

    apps = {
        name: app
        for name, app in get_commands().items()
        if app.partition(".")[0] in ("kgharvest", "annotation", "evaluation")
    }
    return {name: load_command_class(app, name) for name, app in sorted(apps.items()) if name not in NOT_RUN}


def value_for(rng: random.Random, action: argparse.Action, folder: Path, files: dict[str, bytes], command: str) -> str:
    if rng.random() > SUITABLE_SHARE:
        return rng.choice(ODD_WORDS)
    if action.choices:
        return str(rng.choice(list(action.choices)))
    if action.type is Path:
        is_output = action.dest in ("output", "figure")
        return (
            str(folder / rng.choice(["out.svg", "out.jsonl", "no/where"]))
            if is_output
            else some_file(rng, folder, files, command)
        )
    if action.dest in NAMES:
        return rng.choice(NAMES[action.dest])
    return rng.choice(["1", "2", "a=b,c"]) if action.type else rng.choice(["1", "home", "animals", *ODD_WORDS])


def draw_command(rng: random.Random, folder: Path, commands: dict[str, Any], files: dict[str, bytes]) -> list[str]:
    name = rng.choice(list(commands))
    arguments: list[str] = []
    for action in commands[name].create_parser("manage.py", name)._actions:
        if action.dest in (
            "help",
            "version",
            "settings",
            "pythonpath",
            "wait",
            "traceback",
            "force_color",
            "no_color",
            "skip_checks",
            "verbosity",
        ):
            continue
        is_required = action.required or not action.option_strings
        saves_time = name in QUERY_AN_LM and action.dest == "facts"  # without it, all facts of the embedded LMs' world
        if not saves_time and rng.random() > (0.97 if is_required else 0.25):
            continue
        option = action.option_strings[-1:]
        if action.nargs == 0:
            arguments += option
            continue
        n_values = rng.randrange(1, 4) if action.nargs in ("+", "*") else 1
        arguments += option + [value_for(rng, action, folder, files, name) for _ in range(n_values)]
    return [name, *(argument.replace("\x00", "") for argument in arguments)]


def fault_of(arguments: list[str]) -> str:
    """Run a command; return its traceback, or an empty string."""
    from django.core.management import execute_from_command_line
    from django.db import connection

    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as stderr:
        try:
            execute_from_command_line(["manage.py", *arguments])
        except SystemExit as end:
            message = stderr.getvalue()
            if end.code and not message.strip():
                return "ended without a message"
            return message if "Traceback" in message else ""
        except Exception:  # any uncaught exception is a failure
            return traceback.format_exc(limit=-4)
        finally:
            if not connection.in_atomic_block:
                connection.close()
    return ""


def fuzz(folder: Path, seed: int, numbers: range, report: Callable[[str], None] = print) -> tuple[Counter[str], int]:
    """Return how often each command ran, and how many failed. Calls `report` for each failure."""
    commands, files = our_commands(), valid_files()
    n_run, n_failed = Counter[str](), 0
    for number in numbers:
        arguments = draw_command(random.Random(f"{seed}:{number}"), folder, commands, files)
        started = time.monotonic()
        fault = fault_of(arguments)
        n_run[arguments[0]] += 1
        if (took_s := time.monotonic() - started) > SLOW_S:
            report(f"command {number} took {took_s:.0f} s: {arguments!r:.200}")
        if fault:
            n_failed += 1
            report(f"command {number}: {arguments!r:.400}\n{fault:.3000}")
    return n_run, n_failed


def populate(folder: Path) -> None:
    """Import the valid files, so that the names in them exist."""
    from django.core.management import call_command

    from tests.factories import make_researcher

    for name, content in valid_files().items():
        (folder / name).write_bytes(content)
    make_researcher("researcher")
    call_command("import_relations", folder / "relations.json")
    call_command("import_tuples", folder / "tuples.csv", relation="home", model="elsewhere", setting="human")
    call_command("import_judgments", folder / "judgments.csv", round="imported", create=True)
    call_command("open_round", folder / "round.json", by="researcher")


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    folder = set_up_django(HF_HUB_OFFLINE="1")
    os.chdir(folder)  # folder for output files with odd names
    logging.disable(logging.CRITICAL)
    migrate()
    with contextlib.redirect_stdout(io.StringIO()):
        populate(folder)
    numbers = range(options.commands) if options.only is None else range(options.only, options.only + 1)
    n_run, n_failed = fuzz(folder, options.seed, numbers)
    print(f"{n_run.total()} commands, seed {options.seed}: {dict(n_run)}, {n_failed} failed")
    return not n_failed


if __name__ == "__main__":
    sys.exit(not main())
