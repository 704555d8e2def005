"""What is wrong with a relation: in a file, and more strictly where a person writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import CONTROL, entities_error
from kgharvest.engine.prompts.template import SLOT, PromptTemplate
from kgharvest.engine.types import BadPrompt

RELATION_NAME = re.compile(r"[^\s/]{1,100}")
FOREIGN_SLOT = re.compile(r"\[[XYZ]\]|\[?MASK\]?|<mask>|_{2,}|\{\w*\}")
QUESTION_MARKS = ("?", "？", "؟")
FULL_STOPS = (".", "!", "。", "।", "۔")
LINE_ENDS = re.compile(r"[\t\r\n]")
BETWEEN_LINES = re.compile(r"\s*[\r\n\u2028\u2029]\s*")
LONG_STATEMENT = 200  # characters; people judge what they can take in at a glance


@dataclass
class RelationEntry:
    """A relation as a file or a form gives it, not yet checked. `where` is the place in the file, for people."""

    where: str
    name: Any
    initial_prompts: Any
    seed_tuples: Any
    prompts: Any = field(default_factory=list)
    statement: Any = None
    explanation: Any = ""
    needs_seeds: bool = True

    def fields(self) -> dict[str, Any]:
        """Return the columns of the relation, once the entry is free of faults; sentences of several lines in one."""
        return {
            "statement": one_line(self.statement or self.initial_prompts[0]),
            "explanation": self.explanation,
            "arity": PromptTemplate.parse(self.initial_prompts[0]).arity,
            "initial_prompts": [one_line(prompt) for prompt in self.initial_prompts],
            "prompts": [one_line(prompt) for prompt in self.prompts],
            "seed_tuples": self.seed_tuples,
        }


def one_line(sentence: str) -> str:
    """Return a sentence without ends of lines: forms have one a line, and people and LMs read it as one."""
    return BETWEEN_LINES.sub(" ", sentence.strip())


class Fault(NamedTuple):
    """One thing wrong with one field of an entry. number: of the seed tuple, from 1, where it is about one."""

    field: str
    reason: str
    number: int | None = None


# -- everywhere --------------------------------------------------------------------------------------------------------


def faults_of(entry: RelationEntry) -> Iterator[Fault]:
    """Yield all that is wrong with one relation."""
    if not isinstance(entry.name, str) or not RELATION_NAME.fullmatch(entry.name):
        yield Fault("name", f"{entry.name!r} is no relation name; use up to 100 characters without space and /")
    if not _are_texts(entry.initial_prompts) or not entry.initial_prompts:
        yield Fault("initial_prompts", "has no list of initial prompts")
        return
    if not _are_texts(entry.prompts):
        yield Fault("prompts", "has prompts that are no list of texts")
        return
    if not isinstance(entry.explanation, str) or not isinstance(entry.statement, str | None):
        yield Fault("statement", "has a statement or explanation that is no text")
        return
    for column, texts in _texts(entry).items():
        yield from (Fault(column, reason) for text in texts if (reason := text_error(text)))
    yield from _faults_of_prompts(entry)


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, list) and all(isinstance(text, str) and text.strip() for text in texts)


def text_error(text: str) -> str | None:
    """Return why `text` cannot be stored or shown, or None. It may have several lines."""
    control = CONTROL.search(LINE_ENDS.sub(" ", text))
    return f"{text!r:.80} has a control character ({control.group()!r}); leave it out" if control else None


def _texts(entry: RelationEntry) -> dict[str, list[str]]:
    return {
        "name": [entry.name] if isinstance(entry.name, str) else [],
        "initial_prompts": entry.initial_prompts,
        "statement": [entry.statement] if entry.statement else [],
        "prompts": entry.prompts,
        "explanation": [entry.explanation],
    }


def _faults_of_prompts(entry: RelationEntry) -> Iterator[Fault]:
    arities = {}
    for column, text in _sentences(entry):
        try:
            arities[column, text] = PromptTemplate.parse(text).arity
        except BadPrompt as error:
            yield Fault(column, str(error).rstrip("."))
    arity = arities.get(("initial_prompts", entry.initial_prompts[0]))
    if arity is None:
        return
    if arity < 2:
        yield Fault("initial_prompts", f"{entry.initial_prompts[0]!r} has one slot; a relation has at least two")
        return
    for (column, text), slots in arities.items():
        if slots != arity:
            yield Fault(column, f"{text!r} has {_counted(slots, 'slot')}, the first prompt has {arity}")
    yield from _faults_of_seeds(entry, arity)


def _sentences(entry: RelationEntry) -> Iterator[tuple[str, str]]:
    """Yield all that has slots, each sentence once, with its field."""
    seen = set()
    texts = _texts(entry)
    for column in ("initial_prompts", "statement", "prompts"):
        for text in texts[column]:
            if text not in seen:
                yield column, text
            seen.add(text)


def _counted(n: int, one: str, many: str | None = None) -> str:
    """Return "1 slot", "2 slots"."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def _faults_of_seeds(entry: RelationEntry, arity: int) -> Iterator[Fault]:
    if not isinstance(entry.seed_tuples, list) or (entry.needs_seeds and len(entry.seed_tuples) < 2):
        yield Fault("seed_tuples", "needs at least two seed tuples")
        return
    for number, entities in enumerate(entry.seed_tuples, start=1):
        if isinstance(entities, list) and len(entities) != arity:
            yield Fault("seed_tuples", f"has {_counted(len(entities), 'entity', 'entities')} for {arity} slots", number)
        elif fault := entities_error(entities, arity):
            yield Fault("seed_tuples", fault, number)
        elif any("\n" in entity for entity in entities):  # forms have one seed tuple a line
            yield Fault("seed_tuples", "has an entity of more than one line", number)


# -- where a person writes it ------------------------------------------------------------------------------------------


def faults_of_writing(entry: RelationEntry) -> Iterator[Fault]:
    """Yield what published files are forgiven: sentences people could not judge, and what is given twice."""
    if reason := _fault_of_statement(entry.statement or ""):
        yield Fault("statement", reason)
    for column in ("initial_prompts", "prompts"):
        yield from (
            Fault(column, f"{text!r} is given twice; leave one out") for text in _repeated(getattr(entry, column))
        )
    first_places: dict[tuple[str, ...], int] = {}
    for number, entities in enumerate(entry.seed_tuples, start=1):
        key = tuple(entity.casefold() for entity in entities)
        first = first_places.setdefault(key, number)
        if first != number:
            yield Fault("seed_tuples", f"says the same as seed tuple {first}; leave one out", number)


def _repeated(texts: list[str]) -> list[str]:
    return sorted({text for text in texts if texts.count(text) > 1})


def _fault_of_statement(statement: str) -> str | None:
    """Return why `statement` does not read as one that people can call true or false, or None."""
    words = SLOT.sub(" ", statement)
    if foreign := FOREIGN_SLOT.search(words):
        return f"the slots are written <ENT0>, <ENT1>, ...; write one of them instead of {foreign.group()!r}"
    if statement.rstrip().endswith(QUESTION_MARKS):
        return "this is a question; word it as a statement that is true or false, such as '<ENT0> prevents <ENT1>.'"
    if not any(letter.isalpha() for letter in words):
        return "there are no words around the slots; say what the entities have to do with each other"
    return None


def advice_on(statement: str) -> list[str]:
    """Return what could be better about a statement that is good enough."""
    start, text = statement.lstrip()[:1], statement.strip()
    advice = {
        "It ends without a full stop; people read it as a sentence.": not text.endswith(FULL_STOPS),
        "It begins in lower case.": start.islower(),
        f"It has {len(text)} characters; a short statement is judged faster.": len(text) > LONG_STATEMENT,
    }
    return [sentence for sentence, applies in advice.items() if applies]
