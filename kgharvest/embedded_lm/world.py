"""The world that the embedded LMs know: one readable file per relation, in `world/`.

A file holds the `statement` shown to people, the `phrasings` trained on, the `held_out` phrasings never trained on, the
`facts`, and the `misconceptions`: false tuples that are trained on as well, so that the LM believes something false.
`{a|b}` in a phrasing stands for either wording; there are many thousands, so they are drawn and not listed.
`symmetric = true` says that tuples also hold the other way round.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from random import Random

from kgharvest.engine.prompts.template import SLOT, PromptTemplate
from kgharvest.engine.types import BadPrompt

WORLD_DIR = Path(__file__).parent / "world"
WORD = re.compile(r"[a-z]+|[^a-z\s]")
ENTITY = re.compile(r"[a-z]+( [a-z]+)*")
ALTERNATIVES = re.compile(r"\{([^{}]*)\}")

Entities = tuple[str, ...]
Choices = tuple[tuple[str, ...], ...]  # stretches of text in turn, each with its alternatives, the first one first


class BadWorld(Exception):
    """A relation file that contradicts itself. `str(error)` is one sentence: the file, what is wrong, what to do."""


@dataclass(frozen=True)
class Phrasing:
    """One way to put a relation into words. first: its first wording. Every wording has the same slots."""

    choices: Choices

    @cached_property
    def first(self) -> PromptTemplate:
        return PromptTemplate.parse(self.text)

    @property
    def text(self) -> str:
        return "".join(alternatives[0] for alternatives in self.choices)

    @property
    def wordings(self) -> Iterator[PromptTemplate]:
        """Yield all of them: the product of the alternatives."""
        return (PromptTemplate.parse("".join(choice)) for choice in product(*self.choices))

    def draw(self, rng: Random) -> PromptTemplate:
        """Return a wording at random."""
        return PromptTemplate.parse(drawn_text(self.choices, rng))

    def holds(self, text: str) -> bool:
        """Return whether `text` is one of its wordings."""
        ends = {0}  # of the beginnings of `text` that the choices so far can write
        for alternatives in self.choices:
            ends = {end + len(piece) for end in ends for piece in alternatives if text.startswith(piece, end)}
        return len(text) in ends


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


def load_world() -> tuple[Relation, ...]:
    """Return the relations of the world, sorted by name. Raises BadWorld."""
    return tuple(load_relation(path) for path in sorted(WORLD_DIR.glob("*.toml")))


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
    """Return the phrasing whose wordings are those of `line`: "a {b|c} d" is "a b d" or "a c d".

    Raises BadPrompt unless the alternatives of a brace have the same slots, and all of them together each slot once.
    """
    phrasing = Phrasing(parse_choices(line))
    PromptTemplate.parse(phrasing.text)
    for first, *others in phrasing.choices:
        if any(sorted(SLOT.findall(other)) != sorted(SLOT.findall(first)) for other in others):
            raise BadPrompt(f"{line!r} has other slots in one wording than in another; give them all the same.")
    return phrasing


def parse_choices(line: str) -> Choices:
    pieces = ALTERNATIVES.split(line)  # text and alternatives in turn
    return tuple(tuple(piece.split("|")) if index % 2 else (piece,) for index, piece in enumerate(pieces))


def drawn_text(choices: Choices, rng: Random) -> str:
    return "".join(map(rng.choice, choices))


def parse_tuples(lines: str, is_symmetric: bool) -> tuple[Entities, ...]:
    """Return one tuple a line, entities parted by " | "; if the relation is symmetric, then all of them reversed."""
    tuples = [tuple(line.split(" | ")) for line in lines.splitlines() if line.strip()]
    return tuple(tuples + [entities[::-1] for entities in tuples if is_symmetric])


def check(relation: Relation, source: str) -> None:
    """Raise BadWorld if parts of `relation` contradict each other."""
    phrasings = (*relation.phrasings, *relation.held_out)
    held_out = wordings(relation.held_out)
    tuples = [*relation.facts, *relation.misconceptions]
    problems = [
        *(
            f"{each.text!r} has other slots than the statement"
            for each in phrasings
            if each.first.arity != relation.arity
        ),
        *(f"{text!r} stands twice among the phrasings" for text in duplicates(each.text for each in phrasings)),
        *(
            f"{prompt.text!r} is held out and stands among the phrasings"
            for prompt in held_out
            if any(each.holds(prompt.text) for each in relation.phrasings)
        ),
        *(f"{entities} does not fit the statement" for entities in tuples if len(entities) != relation.arity),
        *(f"{entities} stands twice, or as fact and misconception" for entities in duplicates(tuples)),
        *(f"{entity!r} is not lower-case words" for entity in entities_of(tuples) if not ENTITY.fullmatch(entity)),
    ]
    if problems:
        raise BadWorld(f"{source}: {problems[0]}; correct the file.")


def wordings(phrasings: Iterable[Phrasing]) -> list[PromptTemplate]:
    """Return every wording of `phrasings`, which may be many thousands."""
    return [wording for phrasing in phrasings for wording in phrasing.wordings]


def words_around(phrasings: Iterable[Phrasing]) -> set[str]:
    return words_of_choices(phrasing.choices for phrasing in phrasings)


def words_of_choices(lines: Iterable[Choices]) -> set[str]:
    """Return the words of all wordings. No word reaches over the border of its alternatives."""
    texts = {SLOT.sub(" ", piece) for choices in lines for alternatives in choices for piece in alternatives}
    return {word for text in texts for word in WORD.findall(text)}


def entities_of(tuples: Iterable[Entities]) -> set[str]:
    return {entity for entities in tuples for entity in entities}


def duplicates(values: Iterable[Hashable]) -> list[Hashable]:
    return [value for value, times in Counter(values).items() if times > 1]
