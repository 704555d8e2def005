"""What a round is made from: the JSON of `open_round`, of the form and of `Round.spec`. docs/rounds.md explains it."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

from annotation.models import Layout, Round
from kgharvest.bulk.file_reading import read_json, read_text
from kgharvest.errors import DomainError, ImportRefused

NAME = re.compile(r"[-\w]{1,100}", re.ASCII)
RESERVED = {"new", "gold", "plan"}  # addresses of pages
UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")  # half of a surrogate pair has no UTF-8, NUL no place in PostgreSQL
LARGEST_SEED = 2**63 - 1
LARGEST_SMALL = 2**15 - 1
LONGEST_INSTRUCTIONS = 20_000  # characters
ALLOCATIONS = ("equal", "proportional")

EXAMPLE = """\
{
  "name": "pilot-1",                    letters, digits, - and _; unique
  "cells": [                            what is put before people, one sample each
    {"job": 3, "n": 50},                by number of a finished harvest job, or
    {"relation": "capital_of", "model": "embedded", "setting": "multi",
     "n": 60, "cut": "top:1000",        by name: the newest finished one; n: null takes all of the cut
     "strata": [1, 100],                stratified: ranks 1-99 and 100-1000; or a number of equal parts
     "allocation": "equal"}             of n among the strata; or "proportional" to their sizes
  ],
  "judgments_per_task": 3,              optional from here on
  "third_only_if_split": false,         ask two people, and a third only when they differ
  "batch_size": 10,                     statements in one annotator's hands at a time
  "gold_share": 0.1,                    of what an annotator sees; statements with known answers, mixed in
  "training_size": 5,                   statements with feedback before the first batch
  "max_per_annotator": 200,             statements that one annotator may judge; null: no limit
  "dominance_cap": 0.4,                 largest share of the judgments from one annotator; null: no limit
  "limits": {"gold_accuracy": 0.7, "n_gold": 10, "median_seconds": 1.5, "longest_run": 40},   who crosses one pauses
  "closes_when": "date",                or "complete", or "manual"
  "closes_at": "2030-01-31T18:00+01:00",
  "seed": 0,
  "include_sensitive": false,           true: draw tuples with words of the sensitive list too
  "study": "Default",                   who sees the round; made if there is none of this name
  "instructions": "",                   Markdown; empty for the usual ones
  "relation_instructions": {"capital_of": "..."},   Markdown instead of the usual words on that relation
  "layout": "one",                      how statements first show: "one" at a time, or a "page" of them
  "consent": "",                        what annotators must agree to before they join
  "takes_guests": false,                true: the join link lets in people without an account
  "source": "people"                    or "imported" for import_judgments, "simulated" for a program
}"""


class BadRoundSpec(DomainError):
    """A round description with something missing, misspelt or out of range."""


@dataclass(frozen=True)
class CellSpec:
    """One cell to sample: `job`, or else relation, model and setting.

    n: sample size, None for everything in `cut`. strata: None for a simple sample, a number of parts of equal size, or
    the ranks at which strata begin, 1 the first of them. allocation: how n is shared among the strata.
    """

    n: int | None
    cut: str = ""
    strata: int | tuple[int, ...] | None = None
    allocation: str = "equal"
    job: int | None = None
    relation: str = ""
    model: str = ""
    setting: str = ""

    def __str__(self) -> str:
        return f"job {self.job}" if self.job else f"{self.relation} × {self.model} × {self.setting}"


@dataclass(frozen=True)
class RoundSpec:
    """The fields of a Round of the same names, the cells to sample, the study by its name, the fields of Limits."""

    name: str
    cells: tuple[CellSpec, ...]
    judgments_per_task: int = 3
    third_only_if_split: bool = False
    batch_size: int = 10
    gold_share: float = 0
    training_size: int = 0
    max_per_annotator: int | None = None
    dominance_cap: float | None = None
    limits: Mapping[str, float | None] = field(default_factory=dict)
    closes_when: str = "manual"
    closes_at: str | None = None
    seed: int = 0
    include_sensitive: bool = False
    study: str = "Default"
    instructions: str = ""
    relation_instructions: Mapping[str, str] = field(default_factory=dict)
    layout: str = "one"
    consent: str = ""
    takes_guests: bool = False
    source: str = "people"

    def closing_time(self) -> datetime | None:
        """Return `closes_at`; a time without zone is of this installation's."""
        closes_at = datetime.fromisoformat(self.closes_at) if self.closes_at else None
        return timezone.make_aware(closes_at) if closes_at and timezone.is_naive(closes_at) else closes_at

    def document(self) -> dict[str, Any]:
        """Return the JSON that reads as this spec, without what is as usual."""
        return _unusual(self) | {"name": self.name, "cells": [_unusual(cell) | {"n": cell.n} for cell in self.cells]}


def _unusual(spec: CellSpec | RoundSpec) -> dict[str, Any]:
    """Return the fields that differ from their defaults, as JSON has them."""
    values = {one.name: getattr(spec, one.name) for one in fields(spec)}
    usual = {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(spec)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != usual[name]
    }


# -- rules -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """wanted: what to give, in words that follow "give"."""

    wanted: str
    accepts: Callable[[Any], bool]


def whole(low: int, high: int) -> Rule:
    return Rule(f"a whole number from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(low: float, high: float) -> Rule:
    return Rule(f"a number from {low} to {high}", lambda value: type(value) in (int, float) and low <= value <= high)


def text(longest: int) -> Rule:
    return Rule(
        f"a text of at most {longest} characters, without NUL and halves of surrogate pairs",
        lambda value: isinstance(value, str) and len(value) <= longest and not UNSTORABLE.search(value),
    )


def one_of(values: Iterable[str]) -> Rule:
    allowed = [str(value) for value in values]
    return Rule(f"one of {', '.join(allowed)}", lambda value: value in allowed)


def or_null(rule: Rule) -> Rule:
    return Rule(f"{rule.wanted}, or null", lambda value: value is None or rule.accepts(value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(NAME.fullmatch(value)) and value not in RESERVED


def _are_cells(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _are_strata(value: Any) -> bool:
    if type(value) is int:
        return 2 <= value <= 100
    return (
        isinstance(value, list)
        and 2 <= len(value) <= 100
        and all(type(rank) is int for rank in value)
        and value[0] == 1
        and value == sorted(set(value))
    )


def _is_time(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _are_guides(value: Any) -> bool:
    return isinstance(value, dict) and all(
        text(500).accepts(name) and text(LONGEST_INSTRUCTIONS).accepts(guide) for name, guide in value.items()
    )


BOOLEAN = Rule("true or false", lambda value: type(value) is bool)

CELL_RULES = {
    "n": or_null(whole(1, 10_000_000)),
    "cut": text(50),
    "strata": or_null(Rule("2 to 100 parts, or ascending ranks at which strata begin, such as [1, 100]", _are_strata)),
    "allocation": one_of(ALLOCATIONS),
    "job": or_null(whole(1, LARGEST_SEED)),
    "relation": text(500),
    "model": text(500),
    "setting": text(500),
}

LIMITS_RULES = {
    "gold_accuracy": or_null(number(0, 1)),
    "n_gold": whole(1, LARGEST_SMALL),
    "median_seconds": or_null(number(0, 24 * 3600)),
    "longest_run": or_null(whole(2, LARGEST_SMALL)),
}

ROUND_RULES = {
    "name": Rule("a name of up to 100 letters, digits, - and _ that is none of new, gold, plan", _is_name),
    "cells": Rule('a list of at least one cell, such as [{"job": 3, "n": 50}]', _are_cells),
    "judgments_per_task": whole(1, 99),
    "third_only_if_split": BOOLEAN,
    "batch_size": whole(1, 100),
    "gold_share": number(0, 0.5),
    "training_size": whole(0, 20),
    "max_per_annotator": or_null(whole(1, 1_000_000_000)),
    "dominance_cap": or_null(number(0.01, 1)),
    "limits": Rule('limits such as {"gold_accuracy": 0.7, "n_gold": 10}', lambda value: isinstance(value, dict)),
    "closes_when": one_of(Round.ClosesWhen.values),
    "closes_at": or_null(Rule('a date and time such as "2030-01-31T18:00+01:00"', _is_time)),
    "seed": whole(0, LARGEST_SEED),
    "include_sensitive": BOOLEAN,
    "study": text(100),
    "instructions": text(LONGEST_INSTRUCTIONS),
    "relation_instructions": Rule('Markdown by relation, such as {"capital_of": "..."}', _are_guides),
    "layout": one_of(Layout.values),
    "consent": text(LONGEST_INSTRUCTIONS),
    "takes_guests": BOOLEAN,
    "source": one_of(Round.Source.values),
}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_round_spec(path: Path) -> Any:
    """Return the JSON of a file. Raises NoSuchFile, or BadRoundSpec with line and column."""
    try:
        return read_json(read_text(path), path.name)
    except ImportRefused as refused:
        fault = refused.entries[0]
        raise BadRoundSpec(f"{path.name}, {fault.where}: the description {fault.reason}.") from refused


def parse_round_spec(document: Any) -> RoundSpec:
    """Read the JSON shown in EXAMPLE. Raises BadRoundSpec, which names the first wrong key by its path."""
    _check(document, "", ROUND_RULES, {"name", "cells"})
    _check(document.get("limits", {}), "limits", LIMITS_RULES, set())
    cells = tuple(_parse_cell(cell, f"cells[{place}]") for place, cell in enumerate(document["cells"]))
    spec = RoundSpec(**{**document, "cells": cells})
    _check_together(spec)
    return spec


def _parse_cell(document: Any, path: str) -> CellSpec:
    _check(document, path, CELL_RULES, {"n"})
    strata = document.get("strata")
    cell = CellSpec(**{**document, "strata": tuple(strata) if isinstance(strata, list) else strata})
    n_named = sum(map(bool, (cell.relation, cell.model, cell.setting)))
    if n_named != (0 if cell.job else 3):
        raise BadRoundSpec(f"{path} needs either 'job' or all of 'relation', 'model' and 'setting'.")
    return cell


def _check(document: Any, path: str, rules: Mapping[str, Rule], required: set[str]) -> None:
    if not isinstance(document, dict):
        raise BadRoundSpec(f"{path or 'The description'} must be a JSON object, not {reprlib.repr(document)}.")
    prefix = f"{path}." if path else ""
    if unknown := sorted(map(str, document.keys() - rules.keys())):
        raise BadRoundSpec(f"{prefix}{unknown[0]} is unknown; use {', '.join(sorted(rules))}.")
    if missing := sorted(required - document.keys()):
        raise BadRoundSpec(f"{prefix}{missing[0]} is missing; see open_round --help for an example.")
    for key, value in document.items():
        if not rules[key].accepts(value):
            raise BadRoundSpec(f"{prefix}{key} is {reprlib.repr(value)}; give {rules[key].wanted}.")


def _check_together(spec: RoundSpec) -> None:
    if spec.third_only_if_split and spec.judgments_per_task != 3:
        raise BadRoundSpec(
            f"third_only_if_split asks a third person at most, but judgments_per_task is {spec.judgments_per_task}; "
            "give 3."
        )
    if (spec.closes_when == Round.ClosesWhen.DATE) != (spec.closes_at is not None):
        raise BadRoundSpec(f'closes_at is {spec.closes_at}; it goes with "closes_when": "date" and with nothing else.')
