"""What a round is opened with: the JSON of `open_round` and of `Round.spec`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from annotation.models import Layout, Round
from kgharvest.errors import DomainError

NAME = re.compile(r"[-\w]{1,100}", re.ASCII)
RESERVED = {"new"}  # addresses of pages
LARGEST_SEED = 2**63 - 1
LONGEST_INSTRUCTIONS = 20_000  # characters

EXAMPLE = """\
{
  "name": "pilot-1",                    letters, digits, - and _; unique
  "cells": [                            what is put before people, one sample each
    {"job": 3, "n": 50},                by number of a finished harvest job, or
    {"relation": "capital_of", "model": "embedded", "setting": "multi",
     "n": 50, "cut": "top:100"}         by name: the newest finished one; n: null takes all of the cut
  ],
  "judgments_per_task": 3,              optional from here on
  "batch_size": 10,                     statements in one annotator's hands at a time
  "seed": 0,
  "study": "Default",                   who sees the round; made if there is none of this name
  "instructions": "",
  "layout": "one",                      how statements first show: "one" at a time, or a "page" of them
  "consent": "",                        what annotators must agree to before they join
  "takes_guests": false,                true: the join link lets in people without an account
  "include_sensitive": false,           true: draw tuples with sensitive words too
  "source": "people"                    or "imported" for import_judgments, "simulated" for a program
}"""


class BadRoundSpec(DomainError):
    """A round description with something missing, misspelt or out of range."""


@dataclass(frozen=True)
class CellSpec:
    """One cell to sample: `job`, or else relation, model and setting. n: sample size, None for everything in `cut`."""

    n: int | None
    cut: str = ""
    job: int | None = None
    relation: str = ""
    model: str = ""
    setting: str = ""


@dataclass(frozen=True)
class RoundSpec:
    name: str
    cells: tuple[CellSpec, ...]
    judgments_per_task: int = 3
    batch_size: int = 10
    seed: int = 0
    study: str = "Default"
    instructions: str = ""
    layout: str = Layout.ONE
    consent: str = ""
    takes_guests: bool = False
    include_sensitive: bool = False
    third_only_if_split: bool = False
    gold_share: float = 0.0
    training_size: int = 0
    max_per_annotator: int | None = None
    dominance_cap: float | None = None
    closes_when: str = Round.ClosesWhen.MANUAL
    closes_at: str | None = None
    source: str = Round.Source.PEOPLE


def parse_round_spec(document: Any) -> RoundSpec:
    """Read the JSON shown in EXAMPLE. Raises BadRoundSpec."""
    fields = _fields(document, "the round", {"name", "cells"}, set(RoundSpec.__dataclass_fields__))
    _check_round(fields)
    cells = tuple(_parse_cell(cell, f"cell {number}") for number, cell in enumerate(fields["cells"], start=1))
    return RoundSpec(**{**fields, "cells": cells})


def _check_round(fields: Mapping[str, Any]) -> None:
    name = fields["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in RESERVED:
        raise BadRoundSpec(f"{name!r} is no name for a round; use up to 100 letters, digits, - and _.")
    if not isinstance(fields["cells"], list) or not fields["cells"]:
        raise BadRoundSpec('\'cells\' of the round must be a list with at least one cell, such as {"job": 3, "n": 50}.')
    _check_whole(fields, "the round", "judgments_per_task", 1, 99)
    _check_whole(fields, "the round", "batch_size", 1, 100)
    _check_whole(fields, "the round", "seed", 0, LARGEST_SEED)
    _check_text(fields, "the round", "study", 100)
    _check_text(fields, "the round", "instructions", LONGEST_INSTRUCTIONS)
    _check_text(fields, "the round", "consent", LONGEST_INSTRUCTIONS)
    if fields.get("layout", Layout.ONE) not in Layout.values:
        raise BadRoundSpec(f"'layout' of the round is {fields['layout']!r}; use one of {', '.join(Layout.values)}.")
    for key in ("takes_guests", "include_sensitive"):
        if type(fields.get(key, False)) is not bool:
            raise BadRoundSpec(f"{key!r} of the round must be true or false.")
    if fields.get("source", "people") not in Round.Source.values:
        raise BadRoundSpec(
            f"'source' of the round is {fields['source']!r}; use one of {', '.join(Round.Source.values)}."
        )


def _parse_cell(document: Any, where: str) -> CellSpec:
    fields = _fields(document, where, {"n"}, set(CellSpec.__dataclass_fields__))
    by_name = {"relation", "model", "setting"} & fields.keys()
    if ("job" in fields) == bool(by_name) or (by_name and len(by_name) < 3):
        raise BadRoundSpec(f"In {where} give either 'job' or all of 'relation', 'model' and 'setting'.")
    if fields["n"] is not None:
        _check_whole(fields, where, "n", 1, 10_000_000)
    _check_whole(fields, where, "job", 1, LARGEST_SEED)
    for key in ("relation", "model", "setting", "cut"):
        _check_text(fields, where, key, 500)
    return CellSpec(**fields)


def _fields(document: Any, where: str, required: set[str], known: set[str]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise BadRoundSpec(f"The description of {where} must be a JSON object, not {document!r:.40}.")
    if unknown := document.keys() - known:
        raise BadRoundSpec(f"{min(unknown)!r} in {where} is unknown; use {', '.join(sorted(known))}.")
    if missing := required - document.keys():
        raise BadRoundSpec(f"{min(missing)!r} is missing in {where}; see open_round --help for an example.")
    return document


def _check_whole(fields: Mapping[str, Any], where: str, key: str, low: int, high: int) -> None:
    value = fields.get(key, low)
    if type(value) is not int or not low <= value <= high:
        raise BadRoundSpec(f"{key!r} of {where} is {value!r:.40}; give a whole number from {low} to {high}.")


def _check_text(fields: Mapping[str, Any], where: str, key: str, longest: int) -> None:
    value = fields.get(key, "")
    if not isinstance(value, str) or len(value) > longest:
        raise BadRoundSpec(f"{key!r} of {where} must be a text of at most {longest} characters.")
