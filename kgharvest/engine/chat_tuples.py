"""Baseline without an LM search: a chat model lists tuples.

Each request asks for a few tuples. It contains the seed tuples as examples and the tuples of earlier answers as
exclusions. No more requests are sent when the answers contain no new tuples or a limit is reached.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from kgharvest.engine.entities import Entity, NoEntity, read_entity
from kgharvest.engine.filters import DUPLICATE, OVERLAP, EntityFilter
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.types import HarvestSpec, OnProgress, Progress

ASKING = "asking the chat model"  # stage name
SEED, UNPARSABLE, WRONG_ARITY = "seed_tuple", "unparsable", "wrong_number_of_entities"  # rejection reasons
LONGEST_ANSWER = 200_000  # characters; the rest is ignored
LONGEST_EXCLUSION = 12_000  # characters of excluded tuples per request, latest tuples first
SLOT_NAMES = "XYZUVWABCDEFGH"
THOUGHTS = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
LIST_MARK = re.compile(r"\s*(?:[-*•]|\(?\d+[.):])\s+")
NO_ENTITIES = {"relation", "predicate", "explanation", "reason"}  # object keys whose values are ignored
QUOTES = " \t\"'“”‘’«»`"
NOTHING_NEW = "The last {n} answers of the chat model contained no new tuples."
Entities = tuple[Entity, ...]


class Limits(NamedTuple):
    """Limits on chat requests.

    n_wanted: number of tuples after which no more are requested. None: no limit. per_request: tuples per request.
    patience: number of consecutive answers without new tuples after which no more are requested.
    """

    n_wanted: int | None = None
    per_request: int = 25
    patience: int = 2
    max_requests: int = 100


class Ask(Protocol):
    def __call__(self, question: str, position: int) -> str | None:
        """Return the answer to question number `position` (from 0), or None if the budget is exhausted."""


class Listed(NamedTuple):
    """Tuples in order of arrival, and the number of rejections per reason. notice: reason for stopping early."""

    tuples: list[Entities]
    rejected: Counter[str]
    n_answers: int
    notice: str | None


def list_tuples(spec: HarvestSpec, ask: Ask, limits: Limits, on_progress: OnProgress) -> Listed:
    """Ask for tuples until a limit is reached.

    The same answers always lead to the same questions, so stored answers can be replayed.
    """
    listing = Listing(spec)
    n_without_new = n_answers = 0
    notice = None
    while limits.n_wanted is None or listing.n_keepable < limits.n_wanted:
        on_progress(Progress(ASKING, listing.n_keepable, limits.n_wanted))
        if n_without_new == limits.patience:
            notice = NOTHING_NEW.format(n=n_without_new) if limits.n_wanted is not None else None
            break
        if n_answers == limits.max_requests:
            notice = f"The limit of {n_answers} chat requests was reached. Increase it to get more tuples."
            break
        answer = ask(question(spec, limits.per_request, listing.recent_lines()), n_answers)
        if answer is None:
            notice = "The budget of the chat model was exhausted. Increase it to get more tuples."
            break
        n_answers += 1
        n_without_new = 0 if listing.add(answer) else n_without_new + 1
    return Listed(listing.tuples, listing.rejected, n_answers, notice)


class Listing:
    """Tuples collected from a chat model's answers.

    n_keepable: number of tuples that remain after applying the cap on entity repeats, in order of arrival.
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
        self._said: dict[tuple[str, ...], str] = {}  # case-folded tuple -> line of JSON
        self._repeats: Counter[str] = Counter()

    def recent_lines(self) -> list[str]:
        """Return the latest tuples as JSON lines, at most LONGEST_EXCLUSION characters, oldest first."""
        lines: list[str] = []
        n_characters = 0
        for line in reversed(self._said.values()):
            n_characters += len(line) + 1
            if n_characters > LONGEST_EXCLUSION:
                break
            lines.append(line)
        return lines[::-1]

    def add(self, answer: str) -> int:
        """Add the tuples of an answer. Return the number of new tuples."""
        n_before = len(self.tuples)
        parsed = parse_answer(answer, self._arity)
        self.rejected.update({UNPARSABLE: parsed.n_unparsable, WRONG_ARITY: parsed.n_wrong_arity})
        for texts in parsed.tuples:
            reason = self._add(tuple(clean(text) for text in texts))
            if reason:
                self.rejected[reason] += 1
        self.rejected = +self.rejected  # drops zero counts
        return len(self.tuples) - n_before

    def _add(self, texts: tuple[str, ...]) -> str | None:
        """Add a tuple, or return the reason for rejecting it."""
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
        names, cap = {entity.folded for entity in entities}, self._spec.params.max_entity_repeats
        if cap is None or all(self._repeats[name] < cap for name in names):
            self._repeats.update(names)
            self.n_keepable += 1
        return None


# Requests


def question(spec: HarvestSpec, n: int, said: Sequence[str]) -> str:
    """Return the message that asks for `n` tuples. said: tuples to exclude, one JSON array each."""
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


# Answers


class Parsed(NamedTuple):
    """Parsed answer. n_unparsable: number of lines or JSON values that are not lists of texts."""

    tuples: list[tuple[str, ...]]
    n_unparsable: int
    n_wrong_arity: int


def parse_answer(answer: str, arity: int) -> Parsed:
    """Return the tuples of an answer.

    Accepts JSON lines, a complete or truncated array of arrays or objects, and lines separated by "|" or tabs. Ignores
    `<think>` blocks, code fences, and list markers.
    """
    text = THOUGHTS.sub("", answer)[:LONGEST_ANSWER]
    lists: list[list[str]] = []
    n_unparsable = 0
    rest: list[str] = []
    for value in json_values(text, rest):
        value_lists = list(text_lists(value))
        lists += value_lists
        n_unparsable += not value_lists
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
    """Yield the outermost complete arrays and objects in `text`; append the text around them to `rest`."""
    decoder = json.JSONDecoder()
    start = 0
    for bracket in re.finditer(r"[\[{]", text):
        if bracket.start() < start:
            continue
        try:
            value, end = decoder.raw_decode(text, bracket.start())
        except ValueError:
            continue
        except RecursionError:  # not a list of tuples; parsing again at each later bracket would be slow and fail
            break
        rest.append(text[start : bracket.start()])
        start = end
        yield value
    rest.append(text[start:])


def text_lists(value: Any) -> Iterator[list[str]]:
    """Yield the lists of texts in a JSON value: ["a", "b"] or {"head": "a", "tail": "b"}, at any depth."""
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
    """Return an entity without surrounding quotes, trailing punctuation, redundant spaces, or lone surrogates."""
    text = text.encode(errors="replace").decode()
    return " ".join(text.strip(QUOTES).rstrip(".,;").strip(QUOTES).split())
