"""Relation validation: rules for all relations, and additional rules for relations from forms and the API."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import CONTROL, MOST_ENTITIES
from kgharvest.bulk.file_values import entities_error, read_entities
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
LONGEST_SENTENCE = 1_000  # maximum number of characters of a statement or prompt
LONGEST_EXPLANATION = 2_000
MOST_SENTENCES = 2_000  # maximum number of prompts or seed tuples of a relation
SEED_COLUMNS = {"seed_tuples": "seed tuple", "negative_seed_tuples": "negative seed tuple"}
LONG_STATEMENT = 200  # number of characters above which a statement gets advice


@dataclass
class RelationEntry:
    """Unvalidated relation from a file, a form, or an API request. where: location in the file, for error messages."""

    where: str
    name: Any
    initial_prompts: Any
    seed_tuples: Any
    prompts: Any = field(default_factory=list)
    statement: Any = None
    explanation: Any = ""
    needs_seeds: bool = True
    negative_seed_tuples: Any = field(default_factory=list)

    def columns(self) -> dict[str, Any]:
        """Return the values of the relation's columns, except its name and set. The entry must be valid."""
        return {
            "statement": one_line(self.statement or self.initial_prompts[0]),
            "explanation": self.explanation,
            "arity": self.arity,
            "initial_prompts": [one_line(prompt) for prompt in self.initial_prompts],
            "prompts": [one_line(prompt) for prompt in self.prompts],
            "seed_tuples": [list(read_entities(entities, self.arity)) for entities in self.seed_tuples],
            "negative_seed_tuples": [list(read_entities(seed, self.arity)) for seed in self.negative_seed_tuples],
        }

    @property
    def arity(self) -> int:
        return PromptTemplate.parse(self.initial_prompts[0]).arity


def one_line(sentence: str) -> str:
    """Replace line breaks with spaces: forms have one sentence per line, and annotators and LMs read a single line."""
    return BETWEEN_LINES.sub(" ", sentence.strip())


class FieldError(NamedTuple):
    """Error in one field of an entry. seed_number: position of the invalid seed tuple, from 1."""

    field: str
    reason: str
    seed_number: int | None = None

    def __str__(self) -> str:
        return f"{SEED_COLUMNS[self.field]} {self.seed_number} {self.reason}" if self.seed_number else self.reason


def sentence_error(text: str, longest: int = LONGEST_SENTENCE) -> str | None:
    """Return an error if `text` is longer than `longest` or has control characters other than line breaks."""
    if len(text) > longest:
        return f"{text!r:.80} has {len(text):,} characters; shorten it to {longest:,}"
    control = CONTROL.search(LINE_ENDS.sub(" ", text))
    return f"{text!r:.80} has a control character ({control.group()!r}); remove it" if control else None


def set_name_error(name: str) -> str | None:
    return None if SET_NAME.fullmatch(name) else f"invalid set name {name!r}; use letters, digits, -, and _"


def relation_errors(entry: RelationEntry) -> Iterator[FieldError]:
    """Yield validation errors for one relation."""
    has_name = isinstance(entry.name, str) and RELATION_NAME.fullmatch(entry.name)
    if not has_name:
        yield FieldError("name", f"invalid relation name {entry.name!r}; use up to 100 characters without spaces and /")
    if not _are_texts(entry.initial_prompts) or not entry.initial_prompts:
        yield FieldError(
            "initial_prompts", f"a statement or a list of up to {MOST_SENTENCES:,} initial prompts is required"
        )
        return
    if not _are_texts(entry.prompts):
        yield FieldError("prompts", f"prompts must be a list of up to {MOST_SENTENCES:,} texts")
        return
    if not isinstance(entry.explanation, str) or not isinstance(entry.statement, str | None):
        yield FieldError("statement", "statement and explanation must be texts")
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
    if has_name and (reason := sentence_error(entry.name)):
        errors.append(FieldError("name", reason))
    if reason := sentence_error(entry.explanation, LONGEST_EXPLANATION):
        errors.append(FieldError("explanation", reason))
    errors = errors or list(_slot_errors(entry, sentences))
    yield from errors
    if not errors and (reason := _statement_error(entry.statement or entry.initial_prompts[0])):
        yield FieldError("statement", reason)


def _are_texts(texts: Any) -> bool:
    return (
        isinstance(texts, list)
        and len(texts) <= MOST_SENTENCES
        and all(isinstance(text, str) and text.strip() for text in texts)
    )


def _slot_errors(entry: RelationEntry, sentences: dict[str, list[str]]) -> Iterator[FieldError]:
    """Yield errors in the slots of `sentences` (lists of texts by field) and in the seed tuples."""
    # The first field with a sentence determines the number of slots.
    columns = {text: column for column in reversed(sentences) for text in sentences[column]}
    arities = {}
    for text in dict.fromkeys(text for texts in sentences.values() for text in texts):
        try:
            arities[text] = PromptTemplate.parse(text).arity
        except BadPrompt as error:
            yield FieldError(columns[text], str(error).rstrip("."))
    arity = arities.get(entry.initial_prompts[0])
    if arity is None:
        return
    if not 2 <= arity <= MOST_ENTITIES:
        reason = f"{entry.initial_prompts[0]!r} has {counted(arity, 'slot')}; use 2 to {MOST_ENTITIES} slots"
        yield FieldError("initial_prompts", reason)
        return
    for text, n_slots in arities.items():
        if n_slots != arity:
            reason = f"{text!r} has {counted(n_slots, 'slot')}, but the first prompt has {arity}"
            yield FieldError(columns[text], reason)
    seed_errors = list(_seed_errors(entry, "seed_tuples", arity))
    yield from seed_errors or _seed_errors(entry, "negative_seed_tuples", arity)


def _seed_errors(entry: RelationEntry, column: str, arity: int) -> Iterator[FieldError]:
    tuples, noun = getattr(entry, column), SEED_COLUMNS[column]
    seeds = set() if column == "seed_tuples" else set(map(_folded, entry.seed_tuples))
    least = 2 if column == "seed_tuples" and entry.needs_seeds else 0
    if not isinstance(tuples, list) or len(tuples) < least:
        yield FieldError(column, f"at least two {noun}s are required" if least else f"{noun}s must be a list of lists")
        return
    if len(tuples) > MOST_SENTENCES:
        yield FieldError(column, f"{len(tuples):,} {noun}s; the maximum is {MOST_SENTENCES:,}")
        return
    for number, entities in enumerate(tuples, start=1):
        if isinstance(entities, list) and len(entities) != arity:
            n_entities = counted(len(entities), "entity", "entities")
            yield FieldError(column, f"has {n_entities} for {arity} slots", number)
        elif reason := entities_error(entities, arity):
            yield FieldError(column, reason, number)
        elif any("\n" in entity for entity in entities):  # because forms have one seed tuple per line
            yield FieldError(column, "has an entity with a line break", number)
        elif _folded(entities) in seeds:
            yield FieldError(column, "is also a seed tuple; remove one of them", number)


def _folded(entities: Sequence[str]) -> tuple[str, ...]:
    return tuple(entity.casefold() for entity in entities)


def authoring_errors(entry: RelationEntry) -> Iterator[FieldError]:
    """Yield errors for duplicate prompts and seed tuples. Imported files may contain duplicates."""
    for column in ("initial_prompts", "prompts"):
        texts: Sequence[str] = getattr(entry, column)
        repeated = sorted({text for text in texts if texts.count(text) > 1})
        yield from (FieldError(column, f"{text!r} occurs more than once; remove the duplicates") for text in repeated)
    for column, noun in SEED_COLUMNS.items():
        first_numbers: dict[tuple[str, ...], int] = {}
        for number, entities in enumerate(getattr(entry, column), start=1):
            first = first_numbers.setdefault(_folded(entities), number)
            if first != number:
                yield FieldError(column, f"is a duplicate of {noun} {first}; remove one of them", number)


def _statement_error(statement: str) -> str | None:
    """Return an error if annotators cannot judge `statement` as true or false."""
    words = SLOT.sub(" ", statement)
    if foreign_slot := FOREIGN_SLOT.search(words):
        return f"{foreign_slot.group()!r} is not a slot; use <ENT0>, <ENT1>, ..."
    if statement.rstrip().endswith(QUESTION_MARKS):
        return "the statement is a question; write a sentence that is true or false, such as '<ENT0> prevents <ENT1>.'"
    if not any(letter.isalpha() for letter in words):
        return "the statement contains only slots; add words that relate the entities"
    return None


def advice_on(statement: str) -> list[str]:
    """Return suggestions for a valid statement."""
    text = statement.strip()
    advice = {
        "The statement does not end with a full stop.": not text.endswith(FULL_STOPS),
        "The statement starts with a lower-case letter.": text[:1].islower(),
        f"The statement has {len(text)} characters. Short statements are judged faster.": len(text) > LONG_STATEMENT,
    }
    return [sentence for sentence, applies in advice.items() if applies]
