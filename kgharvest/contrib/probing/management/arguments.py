"""Shared arguments and steps of the commands `probe`, `classify`, `extract`, and `mine_prompts`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.probing.probes.services import check_lm
from kgharvest.contrib.probing.text_tasks.options import NUMBERS, SEARCH_NUMBERS
from kgharvest.contrib.probing.text_tasks.tables import result_lines, result_tables
from kgharvest.harvests.language_models import PROBED_LM_NAMES_HELP, get_language_model
from kgharvest.management.command import add_placement_arguments, natural, positive
from kgharvest.models import Relation
from kgharvest.progress_bar import ProgressBar
from kgharvest.relations.names import relations_of_set, resolve_relation
from kgharvest.tables.formats import terminal_text

Records = list[dict[str, Any]]
Search = Callable[..., Iterable[dict[str, Any]]]  # (lm, control, on_progress=...)


def add_lm_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--model", default="embedded", help=f"embedded (default), {PROBED_LM_NAMES_HELP}")
    parser.add_argument("--revision", default="", help="revision of the LM")
    parser.add_argument("--no-control", action="store_true", help="skip the control with random weights")
    add_placement_arguments(parser)
    parser.add_argument("--output", type=Path, metavar="F.jsonl", help="write the records to a file")


def add_relation_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--set", dest="set_name", required=True, metavar="NAME", help="relation set")
    parser.add_argument(
        "--relation", action="append", metavar="R", help="relation of the set; repeatable (default: all)"
    )


def chosen_relations(options: dict[str, Any]) -> list[Relation]:
    """Raises UnresolvedName."""
    if options["relation"]:
        return [resolve_relation(name, options["set_name"]) for name in options["relation"]]
    return relations_of_set(options["set_name"])


def add_search_arguments(parser: ArgumentParser, task: str) -> None:
    """Add the options of a text task's trigger search, and LM arguments. task: "classify" or "extract"."""
    add_lm_arguments(parser)
    search = parser.add_argument_group("trigger search")
    for name in SEARCH_NUMBERS:
        add_number(search, name, task)


def add_number(parser: Any, name: str, task: str) -> None:
    """Add an option of NUMBERS to a parser or group."""
    number = NUMBERS[name]
    kind = float if isinstance(number.minimum, float) else natural if number.minimum == 0 else positive
    option, default = f"--{name.replace('_', '-')}", number.default_of(task)
    parser.add_argument(option, type=kind, default=default, help=f"{number.help} (default: %(default)s)")


def run_search(name: str, search: Search, options: dict[str, Any]) -> Records:
    """Load the LM, run the search, and return its records; also write them to `--output`."""
    from kgharvest.contrib.probing.probes.runner import load_with_control

    if options["output"]:
        check_writable(options["output"])
    language_model = get_language_model(options["model"], options["revision"])
    placement = options["device"], options["dtype"], not options["no_control"]
    check_lm(language_model, *placement)
    lm, control = load_with_control(language_model, *placement)
    with ProgressBar(name) as bar:
        records = [
            {**record, "seconds": round(record["seconds"], 3), "dtype": options["dtype"]}
            for record in search(lm, control, on_progress=bar)
        ]
    if options["output"]:
        write_atomically(options["output"], (json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return records


def results_text(records: Records) -> str:
    """Return the tables of the records, and the prompts that were found, as text."""
    tables = [f"{table.title}\n{terminal_text(table)}" for table in result_tables(records)]
    return "\n".join([*tables, *result_lines(records)])
