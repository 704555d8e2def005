"""World of facts on which the embedded LMs are trained: one TOML file per relation in `world/`.

statement: template displayed to users. phrasings: templates for training. held_out: phrasings excluded from training.
facts, misconceptions: tuples for training. Misconceptions are false tuples that the LM is trained to believe.
symmetric: if true, the reversed tuples hold as well. `{a|b}` in a phrasing stands for either a or b. Wordings are drawn
at random, because there are many thousands.
"""

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
Choices = tuple[tuple[str, ...], ...]  # consecutive pieces of text, each with its alternatives


class BadWorld(Exception):
    """Raised for an invalid or contradictory relation file. `str(error)` names the file, the problem, and a fix."""


@dataclass(frozen=True)
class Phrasing:
    """A phrasing of a relation, with alternative wordings that all have the same slots."""

    choices: Choices

    @cached_property
    def first(self) -> PromptTemplate:
        return PromptTemplate.parse(self.text)

    @property
    def text(self) -> str:
        return "".join(alternatives[0] for alternatives in self.choices)

    @property
    def wordings(self) -> Iterator[PromptTemplate]:
        """Yield all wordings: the product of the alternatives."""
        return (PromptTemplate.parse("".join(choice)) for choice in product(*self.choices))

    def draw(self, rng: Random) -> PromptTemplate:
        """Return a random wording."""
        return PromptTemplate.parse(drawn_text(self.choices, rng))

    def holds(self, text: str) -> bool:
        """Return whether `text` is a wording of this phrasing."""
        ends = {0}  # lengths of the prefixes of `text` that match the choices so far
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
        raise BadWorld(f"{path.name} lacks {error}. Add it as in the other relation files.") from error
    except BadPrompt as error:
        raise BadWorld(f"{path.name}: {error}") from error
    check(relation, path.name)
    return relation


def parse_phrasing(line: str) -> Phrasing:
    """Parse a phrasing: "a {b|c} d" has the wordings "a b d" and "a c d".

    Raises BadPrompt unless all alternatives in braces have the same slots and every wording contains each slot once.
    """
    phrasing = Phrasing(parse_choices(line))
    PromptTemplate.parse(phrasing.text)
    for alternatives in phrasing.choices:
        if len({tuple(sorted(SLOT.findall(text))) for text in alternatives}) > 1:
            raise BadPrompt(f"{line!r} has different slots in different wordings. Use the same slots in all of them.")
    return phrasing


def parse_choices(line: str) -> Choices:
    pieces = ALTERNATIVES.split(line)  # pieces are plain text and alternatives in turn
    return tuple(tuple(piece.split("|")) if index % 2 else (piece,) for index, piece in enumerate(pieces))


def drawn_text(choices: Choices, rng: Random) -> str:
    return "".join(map(rng.choice, choices))


def parse_tuples(lines: str, is_symmetric: bool) -> tuple[Entities, ...]:
    """Parse one tuple per line, with entities separated by " | ". If symmetric, append the reversed tuples."""
    tuples = [tuple(line.split(" | ")) for line in lines.splitlines() if line.strip()]
    return tuple(tuples + [entities[::-1] for entities in tuples if is_symmetric])


def check(relation: Relation, source: str) -> None:
    """Raise BadWorld if `relation` contains contradictions."""
    phrasings = (*relation.phrasings, *relation.held_out)
    held_out = wordings(relation.held_out)
    tuples = [*relation.facts, *relation.misconceptions]
    problems = [
        *(
            f"{phrasing.text!r} has different slots from the statement"
            for phrasing in phrasings
            if phrasing.first.arity != relation.arity
        ),
        *(f"duplicate phrasing {text!r}" for text in duplicates(phrasing.text for phrasing in phrasings)),
        *(
            f"{prompt.text!r} is both held out and a training phrasing"
            for prompt in held_out
            if any(phrasing.holds(prompt.text) for phrasing in relation.phrasings)
        ),
        *(f"{entities} does not fit the statement" for entities in tuples if len(entities) != relation.arity),
        *(f"{entities} is listed twice, or as both a fact and a misconception" for entities in duplicates(tuples)),
        *(f"{entity!r} is not in lower-case words" for entity in entities_of(tuples) if not ENTITY.fullmatch(entity)),
    ]
    if problems:
        raise BadWorld(f"{source}: {problems[0]}. Correct the file.")


def wordings(phrasings: Iterable[Phrasing]) -> list[PromptTemplate]:
    """Return every wording of `phrasings`. There can be many thousands."""
    return [wording for phrasing in phrasings for wording in phrasing.wordings]


def words_around(phrasings: Iterable[Phrasing]) -> set[str]:
    return words_of_choices(phrasing.choices for phrasing in phrasings)


def words_of_choices(lines: Iterable[Choices]) -> set[str]:
    """Return the words of all wordings. Words do not extend over several pieces of text."""
    texts = {SLOT.sub(" ", piece) for choices in lines for alternatives in choices for piece in alternatives}
    return {word for text in texts for word in WORD.findall(text)}


def entities_of(tuples: Iterable[Entities]) -> set[str]:
    return {entity for entities in tuples for entity in entities}


def duplicates(values: Iterable[Hashable]) -> list[Hashable]:
    return [value for value, times in Counter(values).items() if times > 1]
