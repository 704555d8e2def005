"""Checks of relations: what is wrong with one in a file, and more strictly with one that a person writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import CONTROL, MOST_ENTITIES, entities_error
from kgharvest.engine.prompts.template import SLOT, PromptTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.pages.number_format import counted

RELATION_NAME = re.compile(r"[^\s/]{1,100}")
SET_NAME = re.compile(r"[-\w]{1,100}", re.ASCII)
FOREIGN_SLOT = re.compile(r"\[[XYZ]\]|\[?MASK\]?|<mask>|_{2,}|\{\w*\}")
QUESTION_MARKS = ("?", "？", "؟")
FULL_STOPS = (".", "!", "。", "।", "۔")
LINE_ENDS = re.compile(r"[\t\r\n]")
BETWEEN_LINES = re.compile(r"\s*[\r\n\u2028\u2029]\s*")
LONGEST_SENTENCE = 1_000  # characters of a statement or prompt
LONGEST_EXPLANATION = 2_000
MOST_SENTENCES = 2_000  # prompts, or seed tuples, of a relation
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

    def columns(self) -> dict[str, Any]:
        """Return the relation's columns beside name and set, once the entry has no errors."""
        return {
            "statement": one_line(self.statement or self.initial_prompts[0]),
            "explanation": self.explanation,
            "arity": self.arity,
            "initial_prompts": [one_line(prompt) for prompt in self.initial_prompts],
            "prompts": [one_line(prompt) for prompt in self.prompts],
            "seed_tuples": self.seed_tuples,
        }

    @property
    def arity(self) -> int:
        return PromptTemplate.parse(self.initial_prompts[0]).arity


def one_line(sentence: str) -> str:
    """Return a sentence without ends of lines: forms have one a line, and people and LMs read it as one."""
    return BETWEEN_LINES.sub(" ", sentence.strip())


class FieldError(NamedTuple):
    """One thing wrong with one field of an entry. seed_number: of the seed tuple, from 1, where it is about one."""

    field: str
    reason: str
    seed_number: int | None = None


def text_error(text: str) -> str | None:
    """Return why `text` cannot be stored or shown, or None. It may have several lines."""
    control = CONTROL.search(LINE_ENDS.sub(" ", text))
    return f"{text!r:.80} has a control character ({control.group()!r}); leave it out" if control else None


def sentence_error(text: str, longest: int = LONGEST_SENTENCE) -> str | None:
    """Return why `text` is no statement, prompt or explanation, or None."""
    if len(text) > longest:
        return f"{text!r:.80} has {len(text):,} characters; shorten it to {longest:,}"
    return text_error(text)


def set_name_error(name: str) -> str | None:
    return None if SET_NAME.fullmatch(name) else f"{name!r} is no set name; use letters, digits, - and _"


# -- in files and forms ------------------------------------------------------------------------------------------------


def relation_errors(entry: RelationEntry) -> Iterator[FieldError]:
    """Yield all that is wrong with one relation."""
    if not isinstance(entry.name, str) or not RELATION_NAME.fullmatch(entry.name):
        yield FieldError("name", f"{entry.name!r} is no relation name; use up to 100 characters without space and /")
    if not _are_texts(entry.initial_prompts) or not entry.initial_prompts:
        yield FieldError(
            "initial_prompts", f"has neither a statement nor a list of at most {MOST_SENTENCES:,} initial prompts"
        )
        return
    if not _are_texts(entry.prompts):
        yield FieldError("prompts", f"has prompts that are no list of at most {MOST_SENTENCES:,} texts")
        return
    if not isinstance(entry.explanation, str) or not isinstance(entry.statement, str | None):
        yield FieldError("statement", "has a statement or explanation that is no text")
        return
    sentences = {
        "initial_prompts": entry.initial_prompts,
        "statement": [entry.statement] if entry.statement else [],
        "prompts": entry.prompts,
    }
    errors = [
        FieldError(column, reason)
        for column, texts in sentences.items()
        for text in texts
        if (reason := sentence_error(text))
    ]
    if isinstance(entry.name, str) and (reason := text_error(entry.name)):
        errors.append(FieldError("name", reason))
    if reason := sentence_error(entry.explanation, LONGEST_EXPLANATION):
        errors.append(FieldError("explanation", reason))
    faults = errors or list(_slot_errors(entry, sentences))
    yield from faults
    if not faults and (reason := _statement_error(entry.statement or entry.initial_prompts[0])):
        yield FieldError("statement", reason)


def _are_texts(texts: Any) -> bool:
    return (
        isinstance(texts, list)
        and len(texts) <= MOST_SENTENCES
        and all(isinstance(text, str) and text.strip() for text in texts)
    )


def _slot_errors(entry: RelationEntry, sentences: dict[str, list[str]]) -> Iterator[FieldError]:
    """Yield what is wrong with the slots of the sentences, by field, and with the seed tuples that fill them."""
    columns = {text: column for column in reversed(sentences) for text in sentences[column]}  # each text once
    arities = {}
    for text in dict.fromkeys(text for texts in sentences.values() for text in texts):
        try:
            arities[text] = PromptTemplate.parse(text).arity
        except BadPrompt as error:
            yield FieldError(columns[text], str(error).rstrip("."))
    arity = arities.get(entry.initial_prompts[0])
    if arity is None:
        return
    if arity > MOST_ENTITIES:
        reason = f"{entry.initial_prompts[0]!r} has {arity} slots; a relation has at most {MOST_ENTITIES}"
        yield FieldError("initial_prompts", reason)
        return
    if arity < 2:
        reason = f"{entry.initial_prompts[0]!r} has one slot; a relation has at least two"
        yield FieldError("initial_prompts", reason)
        return
    for text, slots in arities.items():
        if slots != arity:
            reason = f"{text!r} has {counted(slots, 'slot')}, the first prompt has {arity}"
            yield FieldError(columns[text], reason)
    yield from _seed_errors(entry, arity)


def _seed_errors(entry: RelationEntry, arity: int) -> Iterator[FieldError]:
    if not isinstance(entry.seed_tuples, list) or (entry.needs_seeds and len(entry.seed_tuples) < 2):
        yield FieldError("seed_tuples", "needs at least two seed tuples")
        return
    if len(entry.seed_tuples) > MOST_SENTENCES:
        yield FieldError("seed_tuples", f"has {len(entry.seed_tuples):,} seed tuples; give at most {MOST_SENTENCES:,}")
        return
    for number, entities in enumerate(entry.seed_tuples, start=1):
        if isinstance(entities, list) and len(entities) != arity:
            n_entities = counted(len(entities), "entity", "entities")
            yield FieldError("seed_tuples", f"has {n_entities} for {arity} slots", number)
        elif reason := entities_error(entities, arity):
            yield FieldError("seed_tuples", reason, number)
        elif any("\n" in entity for entity in entities):  # forms have one seed tuple a line
            yield FieldError("seed_tuples", "has an entity of more than one line", number)


# -- in forms ----------------------------------------------------------------------------------------------------------


def authoring_errors(entry: RelationEntry) -> Iterator[FieldError]:
    """Yield what published files are forgiven: what is given twice."""
    for column in ("initial_prompts", "prompts"):
        texts: Sequence[str] = getattr(entry, column)
        repeated = sorted({text for text in texts if texts.count(text) > 1})
        yield from (FieldError(column, f"{text!r} is given twice; leave one out") for text in repeated)
    first_numbers: dict[tuple[str, ...], int] = {}
    for number, entities in enumerate(entry.seed_tuples, start=1):
        first = first_numbers.setdefault(tuple(entity.casefold() for entity in entities), number)
        if first != number:
            yield FieldError("seed_tuples", f"says the same as seed tuple {first}; leave one out", number)


def _statement_error(statement: str) -> str | None:
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
    text = statement.strip()
    advice = {
        "It ends without a full stop; people read it as a sentence.": not text.endswith(FULL_STOPS),
        "It begins in lower case.": text[:1].islower(),
        f"It has {len(text)} characters; a short statement is judged faster.": len(text) > LONG_STATEMENT,
    }
    return [sentence for sentence, applies in advice.items() if applies]
