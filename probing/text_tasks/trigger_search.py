"""What the commands that search for triggers of texts have in common."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgharvest.bulk.file_writing import check_writable, write_atomically
from kgharvest.harvests.language_models import get_language_model
from kgharvest.jobs.foreground import ProgressBar
from kgharvest.management.command import natural, positive
from probing.probes.services import ProbeParams, masked_lms

if TYPE_CHECKING:
    from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams

Records = list[dict[str, Any]]
Search = Callable[..., Iterable[dict[str, Any]]]  # (lm, control, on_progress=...)


def add_search_arguments(parser: ArgumentParser, iterations: int, batch_size: int, texts: str) -> None:
    """Add what says how to search, on what LM, and where to write. iterations, batch_size: defaults."""
    parser.add_argument("--model", default="embedded", help="embedded (default), a folder or a hub id; a masked LM")
    parser.add_argument(
        "--iterations", type=positive, default=iterations, help=f"of the search for triggers ({iterations})"
    )
    parser.add_argument("--restarts", type=natural, default=0, help="further searches, from random triggers (0)")
    parser.add_argument("--candidates", type=positive, default=10, help="tried in each iteration (10)")
    parser.add_argument(
        "--batch-size", type=positive, default=batch_size, help=f"{texts} in each iteration ({batch_size})"
    )
    parser.add_argument("--no-control", action="store_true", help="leave out the LM that knows nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--output", type=Path, metavar="F.jsonl", help="write the records to a file")


def search_params(options: dict[str, Any]) -> AutoPromptParams:
    from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams

    return AutoPromptParams(
        options["candidates"],
        options["batch_size"],
        options["iterations"],
        seed=options["seed"],
        restarts=options["restarts"],
    )


def searched(name: str, search: Search, options: dict[str, Any]) -> Records:
    """Load the LM and search; return the records, which are in the file asked for, too."""
    if options["output"]:
        check_writable(options["output"])
    params = ProbeParams(device=options["device"], with_control=not options["no_control"])
    lm, control = masked_lms(get_language_model(options["model"]), params)
    with ProgressBar(name) as bar:
        records = list(search(lm, control, on_progress=bar))
    if options["output"]:
        write_atomically(options["output"], (json.dumps(one, ensure_ascii=False) + "\n" for one in records))
    return records


def found_by_search(records: Records) -> Records:
    """Return the records of prompts that were searched for, on the LM itself."""
    return [record for record in records if record["method"] == "autoprompt" and not record["is_control"]]
