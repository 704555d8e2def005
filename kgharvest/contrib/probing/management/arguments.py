"""Shared arguments and steps of the commands `probe`, `classify`, `extract`, and `mine_prompts`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.contrib.probing.probes.services import check_lm
from kgharvest.harvests.language_models import PROBED_LM_NAMES_HELP, get_language_model
from kgharvest.management.command import ProgressBar, add_placement_arguments, natural, positive
from kgharvest.models import Relation
from kgharvest.relations.names import relations_of_set, resolve_relation
from kgharvest.tables.table import Column, Kind, Row, Table

if TYPE_CHECKING:
    from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams

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


def add_search_arguments(parser: ArgumentParser, iterations: int, batch_size: int, texts: str) -> None:
    """Add search options and LM arguments. iterations, batch_size: defaults. texts: noun for the batch items."""
    add_lm_arguments(parser)
    search = parser.add_argument_group("trigger search")
    search.add_argument("--iterations", type=positive, default=iterations, help="iterations (default: %(default)s)")
    search.add_argument(
        "--restarts", type=natural, default=0, help="additional searches from random triggers (default: 0)"
    )
    search.add_argument("--candidates", type=positive, default=10, help="candidates per iteration (default: 10)")
    search.add_argument(
        "--batch-size", type=positive, default=batch_size, help=f"{texts} per iteration (default: %(default)s)"
    )
    search.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")


def search_params(options: dict[str, Any]) -> AutoPromptParams:
    from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams

    names = ("batch_size", "iterations", "seed", "restarts")
    return AutoPromptParams(options["candidates"], **{name: options[name] for name in names})


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


def contexts_of(row: Mapping[str, Any]) -> str:
    return ", perturbed" if row.get("is_perturbed") else ""


def method_table(name: str, columns: Mapping[str, Column], records: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table with one row per method, kind of context, and LM. columns: columns by record key."""
    columns = {**columns, "forwards": Column("forward passes", Kind.COUNT), "seconds": Column("seconds", Kind.NUMBER)}
    rows = []
    for record in records:
        title = f"{record['method']}{contexts_of(record)}{', random weights' if record['is_control'] else ''}"
        rows.append(Row((title, *(record[key] for key in columns))))
    return Table(name, "Methods", (Column("method"), *columns.values()), tuple(rows))


def autoprompt_records(records: Records) -> Records:
    """Return AutoPrompt's records for the LM itself, without those for the control."""
    return [record for record in records if record["method"] == "autoprompt" and not record["is_control"]]
