"""The world that the embedded LMs know: one readable file per relation, in `world/`.

A file holds the `statement` shown to people, the `phrasings` trained on, the `held_out` phrasings never trained on, the
`facts`, and the `misconceptions`: false tuples that are trained on as well, so that the LM believes something false.
`{a|b}` in a phrasing stands for either wording. `symmetric = true` says that tuples also hold the other way round.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

WORLD_DIR = Path(__file__).parent / "world"
ENTITY = re.compile(r"[a-z]+( [a-z]+)*")
ALTERNATIVES = re.compile(r"\{([^{}]*)\}")

Entities = tuple[str, ...]


class BadWorld(Exception):
    """A relation file that contradicts itself. `str(error)` is one sentence: the file, what is wrong, what to do."""


@dataclass(frozen=True)
class Phrasing:
    """One way to put a relation into words; `wordings` are its alternatives, the first one first. Never empty."""

    wordings: tuple[PromptTemplate, ...]

    @property
    def text(self) -> str:
        return self.wordings[0].text


@dataclass(frozen=True)
class Relation:
    name: str
    statement: PromptTemplate
    phrasings: tuple[Phrasing, ...]
    held_out: tuple[Phrasing, ...]
    facts: tuple[Entities, ...]
    misconceptions: tuple[Entities, ...]

    @property
    def arity(self) -> int:
        return self.statement.arity


def load_world(folder: Path = WORLD_DIR) -> tuple[Relation, ...]:
    """Return the relations of `folder` in the order of their names. Raises BadWorld."""
    return tuple(load_relation(path) for path in sorted(folder.glob("*.toml")))


def load_relation(path: Path) -> Relation:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        relation = Relation(
            name=path.stem,
            statement=PromptTemplate.parse(entries["statement"]),
            phrasings=tuple(map(parse_phrasing, entries["phrasings"])),
            held_out=tuple(map(parse_phrasing, entries["held_out"])),
            facts=parse_tuples(entries["facts"], entries.get("symmetric", False)),
            misconceptions=parse_tuples(entries["misconceptions"], entries.get("symmetric", False)),
        )
    except tomllib.TOMLDecodeError as error:
        raise BadWorld(f"{path.name} is not valid TOML: {error}.") from error
    except KeyError as error:
        raise BadWorld(f"{path.name} lacks {error}; write it as the other relation files do.") from error
    except BadPrompt as error:
        raise BadWorld(f"{path.name}: {error}") from error
    check(relation, path.name)
    return relation


def parse_phrasing(line: str) -> Phrasing:
    """Return every wording of `line`: "a {b|c} d" is "a b d" or "a c d"."""
    pieces = ALTERNATIVES.split(line)  # text and alternatives in turn
    choices = [piece.split("|") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return Phrasing(tuple(PromptTemplate.parse("".join(choice)) for choice in product(*choices)))


def parse_tuples(lines: str, is_symmetric: bool) -> tuple[Entities, ...]:
    """Return one tuple a line, entities parted by " | "; if the relation is symmetric, then all of them reversed."""
    tuples = [tuple(line.split(" | ")) for line in lines.splitlines() if line.strip()]
    return tuple(tuples + [entities[::-1] for entities in tuples if is_symmetric])


def check(relation: Relation, source: str) -> None:
    """Raise BadWorld if parts of `relation` contradict each other."""
    prompts = [*wordings(relation.phrasings), *wordings(relation.held_out)]
    tuples = [*relation.facts, *relation.misconceptions]
    problems = [
        *(
            f"{prompt.text!r} has other slots than the statement"
            for prompt in prompts
            if prompt.arity != relation.arity
        ),
        *(f"{text!r} stands twice among the phrasings" for text in duplicates(prompt.text for prompt in prompts)),
        *(f"{entities} does not fit the statement" for entities in tuples if len(entities) != relation.arity),
        *(f"{entities} stands twice, or as fact and misconception" for entities in duplicates(tuples)),
        *(f"{entity!r} is not lower-case words" for entity in entities_of(tuples) if not ENTITY.fullmatch(entity)),
    ]
    if problems:
        raise BadWorld(f"{source}: {problems[0]}; correct the file.")


def wordings(phrasings: Iterable[Phrasing]) -> list[PromptTemplate]:
    return [wording for phrasing in phrasings for wording in phrasing.wordings]


def entities_of(tuples: Iterable[Entities]) -> set[str]:
    return {entity for entities in tuples for entity in entities}


def duplicates(values: Iterable[Hashable]) -> list[Hashable]:
    return [value for value, times in Counter(values).items() if times > 1]
