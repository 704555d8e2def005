"""Tuples that a chat model lists when it is asked for them: the baseline that searches no LM.

The model is asked for a few tuples of the relation at a time, with the seed tuples as examples and with what it said
before as what not to say again, until its answers bring nothing new.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from kgharvest.engine.entities import Entity, NoEntity, read_entity
from kgharvest.engine.filters import DUPLICATE, OVERLAP, EntityFilter
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.types import HarvestParams, HarvestSpec, OnProgress, Progress

ASKING = "asking the chat model"  # the stage
SEED, UNPARSABLE, WRONG_ARITY = "seed_tuple", "unparsable", "wrong_number_of_entities"  # why an answer is no tuple
LONGEST_ANSWER = 200_000  # characters that are read
LONGEST_EXCLUSION = 12_000  # characters of what was said before, the latest of it, in a question
SLOT_NAMES = "XYZUVWABCDEFGH"
THOUGHTS = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
LIST_MARK = re.compile(r"\s*(?:[-*•]|\(?\d+[.):])\s+")
NO_ENTITIES = {"relation", "predicate", "explanation", "reason"}  # keys of objects
QUOTES = " \t\"'“”‘’«»`"
NOTHING_NEW = "The chat model brought nothing new in its last {n} answers."
Entities = tuple[Entity, ...]


class Limits(NamedTuple):
    """n_wanted: tuples to end with, None for as many as come. per_request: tuples asked for at a time.

    patience: answers in a row that bring nothing new, after which the model is not asked again. max_requests: at most.
    """

    n_wanted: int | None = None
    per_request: int = 25
    patience: int = 2
    max_requests: int = 100


class Ask(Protocol):
    def __call__(self, question: str, position: int) -> str | None:
        """Return the answer to the `position`-th question, from 0; None if it may not be asked any more."""


class Listed(NamedTuple):
    """tuples: in the order in which they came. rejected: what else came, by reason. notice: why asking ended early."""

    tuples: list[Entities]
    rejected: Counter[str]
    n_answers: int
    notice: str | None


def list_tuples(spec: HarvestSpec, ask: Ask, limits: Limits, on_progress: OnProgress) -> Listed:
    """Ask until `limits` say enough. The same answers give the same questions, so that stored ones can be replayed."""
    listing = Listing(spec)
    n_vain = n_answers = 0
    notice = None
    while limits.n_wanted is None or listing.n_keepable < limits.n_wanted:
        on_progress(Progress(ASKING, listing.n_keepable, limits.n_wanted))
        if n_vain == limits.patience:
            notice = NOTHING_NEW.format(n=n_vain) if limits.n_wanted is not None else None
            break
        if n_answers == limits.max_requests:
            notice = f"The chat model was asked {n_answers} times, which is the limit; allow more requests for more."
            break
        answer = ask(listing.question(limits.per_request), n_answers)
        if answer is None:
            notice = "The chat model was asked no further, as its budget bears no more; allow more for more tuples."
            break
        n_answers += 1
        n_vain = 0 if listing.add(answer) else n_vain + 1
    return Listed(listing.tuples, listing.rejected, n_answers, notice)


class Listing:
    """What a chat model has said so far.

    n_keepable: tuples that a list has in their order, with no entity in more of them than the parameters allow.
    """

    def __init__(self, spec: HarvestSpec) -> None:
        self.tuples: list[Entities] = []
        self.rejected: Counter[str] = Counter()
        self.n_keepable = 0
        self._spec = spec
        self._arity = len(spec.seed_tuples[0])
        templates = parse_prompts([*spec.initial_prompts, *spec.prompts], self._arity)
        self._filter = EntityFilter(templates, spec.params.disabled_filters)
        self._seeds = {tuple(entity.casefold() for entity in entities) for entities in spec.seed_tuples}
        self._said: dict[tuple[str, ...], str] = {}  # case-folded, and as a line of JSON
        self._repeats: Counter[str] = Counter()

    def question(self, n: int) -> str:
        return question(self._spec, n, self._latest_said())

    def _latest_said(self) -> list[str]:
        lines: list[str] = []
        n_characters = 0
        for line in reversed(self._said.values()):
            n_characters += len(line) + 1
            if n_characters > LONGEST_EXCLUSION:
                break
            lines.append(line)
        return lines[::-1]

    def add(self, answer: str) -> int:
        """Take in an answer; return how many new tuples it brought."""
        n_before = len(self.tuples)
        parsed = parse_answer(answer, self._arity)
        self.rejected.update({UNPARSABLE: parsed.n_unparsable, WRONG_ARITY: parsed.n_wrong_arity})
        for texts in parsed.tuples:
            reason = self._add(tuple(clean(text) for text in texts))
            if reason:
                self.rejected[reason] += 1
        self.rejected = +self.rejected  # without zeros
        return len(self.tuples) - n_before

    def _add(self, texts: tuple[str, ...]) -> str | None:
        """Take in a tuple, or return the reason not to."""
        key = tuple(text.casefold() for text in texts)
        if key in self._said:
            return DUPLICATE
        if key in self._seeds:
            return SEED
        self._said[key] = json.dumps(texts, ensure_ascii=False)
        entities: list[Entity] = []
        for text in texts:
            entity = read_entity(text, self._filter)
            if isinstance(entity, NoEntity):
                return entity.rule
            if self._filter.rejects_beside(entity.words, [other.words for other in entities]):
                return OVERLAP
            entities.append(entity)
        self.tuples.append(tuple(entities))
        self._count(entities, self._spec.params)
        return None

    def _count(self, entities: Sequence[Entity], params: HarvestParams) -> None:
        names = {entity.folded for entity in entities}
        if params.max_entity_repeats is None or all(self._repeats[name] < params.max_entity_repeats for name in names):
            self._repeats.update(names)
            self.n_keepable += 1


# -- what is asked -----------------------------------------------------------------------------------------------------


def question(spec: HarvestSpec, n: int, said: Sequence[str]) -> str:
    """Return the message that asks for `n` tuples. said: those that are not to come again, a JSON array each."""
    arity = len(spec.seed_tuples[0])
    names = [SLOT_NAMES[slot] if slot < len(SLOT_NAMES) else f"X{slot}" for slot in range(arity)]
    sentences = "\n".join(f"- {PromptTemplate.parse(prompt).fill(names)}" for prompt in spec.initial_prompts)
    shape = json.dumps(names, ensure_ascii=False)
    examples = "\n".join(json.dumps(entities, ensure_ascii=False) for entities in spec.seed_tuples)
    not_again = f"\nDo not repeat the examples, nor these, which are known already:\n{chr(10).join(said)}\n"
    return (
        f"List facts of the relation {spec.relation!r}, which these sentences express:\n{sentences}\n\n"
        f"A fact is a JSON array {shape} of {arity} short names or phrases that make the sentences true. Examples:\n"
        f"{examples}\n{not_again if said else ''}\n"
        f"Write {n} more facts that are true and different from each other, each as one such JSON array on a line of "
        "its own, and nothing else. If you know fewer, write fewer."
    )


# -- what is answered --------------------------------------------------------------------------------------------------


class Parsed(NamedTuple):
    """n_unparsable: lines, or values of JSON, that are no list of texts."""

    tuples: list[tuple[str, ...]]
    n_unparsable: int
    n_wrong_arity: int


def parse_answer(answer: str, arity: int) -> Parsed:
    """Return the tuples of an answer: JSON lines, an array of arrays or objects, whole or cut, or lines with "|".

    Thoughts, fences and list marks around them do not count.
    """
    text = THOUGHTS.sub("", answer)[:LONGEST_ANSWER]
    lists: list[list[str]] = []
    n_unparsable = 0
    rest: list[str] = []
    for value in json_values(text, rest):
        found = list(text_lists(value))
        lists += found
        n_unparsable += not found
    for line in "".join(rest).splitlines():
        bare = LIST_MARK.sub("", line, count=1).strip()
        if "|" in bare or "\t" in bare:
            lists.append([part for part in re.split(r"[|\t]", bare.strip("|")) if part.strip(" -:")])
        elif any(map(str.isalnum, bare)) and not bare.startswith("```"):
            n_unparsable += 1
    lists = [entities for entities in lists if entities]
    fitting = [tuple(entities) for entities in lists if len(entities) == arity]
    return Parsed(fitting, n_unparsable, len(lists) - len(fitting))


def json_values(text: str, rest: list[str]) -> Iterator[Any]:
    """Yield the arrays and objects in `text`, the outermost that are whole; append what is around them to `rest`."""
    decoder = json.JSONDecoder()
    start = 0
    for bracket in re.finditer(r"[\[{]", text):
        if bracket.start() < start:
            continue
        try:
            value, end = decoder.raw_decode(text, bracket.start())
        except ValueError:
            continue
        except RecursionError:  # no list of tuples: each bracket after this one would be read as deeply, in vain
            break
        rest.append(text[start : bracket.start()])
        start = end
        yield value
    rest.append(text[start:])


def text_lists(value: Any) -> Iterator[list[str]]:
    """Yield the lists of texts in a value of JSON: ["a", "b"], {"head": "a", "tail": "b"}, or these within more."""
    if isinstance(value, dict):
        value = [part for name, part in value.items() if name.casefold() not in NO_ENTITIES]
    if not isinstance(value, list):
        return
    if value and all(isinstance(part, str) for part in value):
        yield value
        return
    for part in value:
        yield from text_lists(part)


def clean(text: str) -> str:
    """Return an entity without quotation marks, a sentence's end, superfluous spaces and halves of surrogate pairs."""
    text = text.encode(errors="replace").decode()
    return " ".join(text.strip(QUOTES).rstrip(".,;").strip(QUOTES).split())
