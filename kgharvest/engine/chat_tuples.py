"""Baseline without an LM search: a chat model lists tuples.

Each request asks for a few tuples. It contains the seed tuples as examples and the tuples of earlier answers as
exclusions. No more requests are sent when the answers contain no new tuples or a limit is reached.
"""

import ast
import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple, Protocol

from kgharvest.engine.entities import Entity, NoEntity, read_entity
from kgharvest.engine.filters import DUPLICATE, OVERLAP, EntityFilter
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.types import HarvestSpec, OnProgress, Progress

ASKING = "asking the chat model"  # stage name
# Rejection reasons. UNPARSABLE: lines and JSON values without a list. NO_TEXT: an entity is neither text nor a number.
SEED, UNPARSABLE, WRONG_ARITY = "seed_tuple", "unparsable", "wrong_number_of_entities"
UNKNOWN_KEYS, NO_TEXT = "unknown_keys", "no_text"
LONGEST_ANSWER = 200_000  # characters; the rest is ignored
LONGEST_EXCLUSION = 12_000  # characters of excluded tuples per request, latest tuples first
SLOT_NAMES = "XYZUVWABCDEFGH"
THOUGHTS = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
# Key, or string, number, or constant, of a JSON value or Python literal
LEAF = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s\[\](){},:"']+)(\s*:)?""", re.DOTALL)
INNERMOST = re.compile(r"\[[^\[\]{}]*\]|\{[^\[\]{}]*\}")
SEPARATOR = re.compile(r"\s*(?:\||\t|->|=>|→)\s*")
RULE = re.compile(r"(?=.*-)[\s|:-]*\|[\s|:-]*")
NOT_A_LIST = re.compile(r"[\[\]{}]|[.:!?]$")  # a truncated JSON value, or a sentence
STRAIGHT_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
LIST_MARK = re.compile(r"\s*(?:[-*•]|\(?\d+[.):])\s+")
ROLES = {"head": 0, "subject": 0, "tail": 1, "object": 1}  # usual keys of a binary relation
NO_ENTITIES = {"relation", "predicate", "explanation", "reason"}  # object keys whose values are ignored
QUOTES = " \t\"'“”‘’«»`"
CORRECTION = (
    "\n\nYour last answer could not be read. Write no introduction, explanation, or table. Start each line with [ and "
    "end it with ]."
)
NOTHING_NEW = "The last {n} answers of the chat model contained no new tuples."
Entities = tuple[Entity, ...]


class Limits(NamedTuple):
    """Limits on chat requests.

    n_wanted: number of tuples after which no more tuples are requested. None: no limit. per_request: tuples per
    request.
    patience: number of consecutive answers without new tuples after which no more requests are sent.
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
        text = question(spec, limits.per_request, listing.recent_lines(), listing.was_unreadable)
        answer = ask(text, n_answers)
        if answer is None:
            notice = "The budget of the chat model was exhausted. Increase it to get more tuples."
            break
        n_answers += 1
        n_without_new = 0 if listing.add(answer) else n_without_new + 1
    return Listed(listing.tuples, listing.rejected, n_answers, notice)


class Listing:
    """Tuples collected from a chat model's answers.

    n_keepable: number of tuples that remain if the cap on entity repeats is applied in order of arrival.
    was_unreadable: True if the latest answer contained text, but no tuple.
    """

    def __init__(self, spec: HarvestSpec) -> None:
        self.tuples: list[Entities] = []
        self.rejected: Counter[str] = Counter()
        self.n_keepable = 0
        self.was_unreadable = False
        self._spec = spec
        self._arity = len(spec.seed_tuples[0])
        templates = parse_prompts([*spec.initial_prompts, *spec.prompts], self._arity)
        self._filter = EntityFilter(templates, spec.params.disabled_filters, spec.params.numbers)
        self._seeds = {
            tuple(entity.casefold() for entity in entities)
            for entities in (*spec.seed_tuples, *spec.negative_seed_tuples)
        }
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
        self.rejected.update(parsed.rejected)
        self.was_unreadable = bool(parsed.rejected) and not parsed.tuples
        for texts in parsed.tuples:
            reason = self._add(tuple(clean(text) for text in texts))
            if reason:
                self.rejected[reason] += 1
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


def slot_name(slot: int) -> str:
    return SLOT_NAMES[slot] if slot < len(SLOT_NAMES) else f"X{slot}"


def answer_format(arity: int) -> dict[str, Any]:
    """Return the `response_format` of chat endpoints that can restrict answers to a JSON schema."""
    names = list(map(slot_name, range(arity)))
    fact = _object_schema({name: {"type": "string"} for name in names})
    schema = _object_schema({"facts": {"type": "array", "items": fact}})
    return {"type": "json_schema", "json_schema": {"name": "facts", "strict": True, "schema": schema}}


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def question(spec: HarvestSpec, n: int, said: Sequence[str], was_unreadable: bool = False) -> str:
    """Return the message that asks for `n` tuples.

    said: tuples to exclude, one JSON array each. was_unreadable: explain the format again.
    """
    arity = len(spec.seed_tuples[0])
    names = list(map(slot_name, range(arity)))
    sentences = "\n".join(f"- {PromptTemplate.parse(prompt).fill(names)}" for prompt in spec.initial_prompts)
    shape = json.dumps(names, ensure_ascii=False)
    examples = "\n".join(json.dumps(entities, ensure_ascii=False) for entities in spec.seed_tuples)
    denied = "\n".join(json.dumps(entities, ensure_ascii=False) for entities in spec.negative_seed_tuples)
    counterexamples = f"These are not facts of the relation:\n{denied}\n" if denied else ""
    not_again = f"\nDo not repeat the examples, nor these, which are known already:\n{chr(10).join(said)}\n"
    return (
        f"List facts of the relation {spec.relation!r}, which these sentences express:\n{sentences}\n\n"
        f"A fact is a JSON array {shape} of {arity} short names or phrases that make the sentences true. Examples:\n"
        f"{examples}\n{counterexamples}{not_again if said else ''}\n"
        f"Write {n} more facts that are true and different from each other, each as one such JSON array on a line of "
        f"its own, and nothing else. If you know fewer, write fewer.{CORRECTION if was_unreadable else ''}"
    )


# Answers


class Passage(NamedTuple):
    """Text and the position of each character in the answer."""

    text: str
    places: Sequence[int]

    def part(self, start: int, end: int) -> "Passage":
        return Passage(self.text[start:end], self.places[start:end])

    def find(self, text: str, start: int) -> "Passage":
        """Return the first occurrence of `text` from position `start`. Raises ValueError."""
        start = self.text.index(text, start)
        return self.part(start, start + len(text))

    def without(self, spans: Sequence[tuple[int, int]], limit: int | None = None) -> "Passage":
        """Return the text outside of `spans`, which are sorted, up to `limit` characters."""
        starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(self.text)]
        kept = list(islice(chain.from_iterable(map(range, starts, ends)), limit))
        return Passage("".join(self.text[place] for place in kept), [self.places[place] for place in kept])


class Cell(str):
    """An entity in an answer. span: its start and end, including quotes. None: unknown."""

    span: tuple[int, int] | None = None

    @classmethod
    def at(cls, passage: Passage | None, value: object) -> "Cell":
        cell = cls(value)
        if passage and passage.text:
            cell.span = passage.places[0], passage.places[-1] + 1
        return cell


class Parsed(NamedTuple):
    """Tuples of an answer, and the number of other lines and JSON values for each reason."""

    tuples: list[tuple[Cell, ...]]
    rejected: Counter[str]


def parse_answer(answer: str, arity: int) -> Parsed:
    """Return the tuples of an answer.

    Accepts JSON lines, a complete or truncated array of arrays or objects, Markdown tables, and lines separated by "|",
    tabs, arrows, or, in an answer without any other format, commas. Accepts single quotes, curly quotes, and trailing
    commas.
    Objects are read by their keys: the names of the question, or head, tail, subject, and object. Ignores `<think>`
    blocks, code fences, list markers, and table headers.
    """
    thoughts = [match.span() for match in THOUGHTS.finditer(answer)]
    passage = Passage(answer, range(len(answer))).without(thoughts, LONGEST_ANSWER)
    rejected: Counter[str] = Counter()
    rows: list[list[Any]] = []
    spans: list[tuple[int, int]] = []
    for value, source, span in json_values(passage.text):
        spans.append(span)
        try:
            found = list(cells_of(value, source, passage.part(*span), arity))
        except RecursionError:  # not a list of tuples
            found = []
        rows += [row for row in found if isinstance(row, list)]
        rejected.update([row for row in found if isinstance(row, str)] if found else [UNPARSABLE])
    rest = passage.without(spans)
    others: list[Passage] = []
    rows += table_rows(rest, arity, others)
    has_commas_only = not rows
    for line in others:
        parts = line.text.split(",")
        if has_commas_only and len(parts) == arity and all(map(str.strip, parts)) and not NOT_A_LIST.search(line.text):
            rows.append(split_cells(line, parts))
        elif any(map(str.isalnum, line.text)) and not line.text.startswith("```"):
            rejected[UNPARSABLE] += 1
    return _checked(rows, arity, rejected)


def scores_of(tokens: Sequence[tuple[str, float]], arity: int, alpha: float) -> dict[tuple[str, ...], float]:
    """Return f (Eq. 1) of the tuples in an answer, by their case-folded entities.

    tokens: the answer's tokens and their log-probabilities. An entity has the sum of the tokens that write it. Only the
    tokens of a tuple count, not other mentions of its entities. Tuples whose text differs from the answer's, such as
    escaped characters, are omitted.
    """
    answer = "".join(token for token, _ in tokens)
    ends = list(accumulate(len(token) for token, _ in tokens))
    scores: dict[tuple[str, ...], float] = {}
    for cells in parse_answer(answer, arity).tuples:
        entities = list(map(clean, cells))
        starts = [
            answer.find(text, *cell.span) if cell.span else -1 for text, cell in zip(entities, cells, strict=True)
        ]
        if min(starts) >= 0:
            spans = [(start, start + len(text)) for start, text in zip(starts, entities, strict=True)]
            runs = [tokens[bisect_right(ends, start) : bisect_left(ends, end) + 1] for start, end in spans]
            logprobs = [sum(logprob for _, logprob in run) for run in runs]
            score = alpha * sum(logprobs) + (1 - alpha) * min(logprobs)
            scores.setdefault(tuple(entity.casefold() for entity in entities), score)
    return scores


def _checked(rows: list[list[Any]], arity: int, rejected: Counter[str]) -> Parsed:
    """Return the rows that are tuples of the relation; count the others. Rows of slot names are headers."""
    tuples: list[tuple[Cell, ...]] = []
    for row in rows:
        if len(row) != arity:
            rejected[WRONG_ARITY] += 1
        elif not all(isinstance(value, Cell) for value in row):
            rejected[NO_TEXT] += 1
        elif order_of(row, arity) is None:
            tuples.append(tuple(row))
    return Parsed(tuples, rejected)


def json_values(text: str) -> Iterator[tuple[Any, str, tuple[int, int]]]:
    """Yield the outermost complete arrays and objects in `text`, their notation, and their start and end.

    Curly quotes in the notation of Python literals are replaced.
    """
    decoder = json.JSONDecoder()
    start = 0
    for bracket in re.finditer(r"[\[{]", text):
        if bracket.start() < start:
            continue
        try:
            value, end = decoder.raw_decode(text, bracket.start())
            source = text[bracket.start() : end]
        except ValueError:
            literal = INNERMOST.match(text, bracket.start())
            value = literal and python_literal(literal[0])
            if literal is None or value is None:
                continue
            end, source = literal.end(), literal[0].translate(STRAIGHT_QUOTES)
        except RecursionError:  # not a list of tuples; parsing again at each later bracket would be slow and fail
            break
        start = end
        yield value, source, (bracket.start(), end)


def python_literal(text: str) -> list[Any] | dict[Any, Any] | None:
    """Return the value of a list or dictionary in Python's notation, which models confuse with JSON, or None."""
    try:
        value = ast.literal_eval(text.translate(STRAIGHT_QUOTES))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def cells_of(value: Any, source: str, passage: Passage, arity: int) -> Iterator[list[Any] | str]:
    """Yield the rows of `rows_of`, with a Cell for each text and number. source: notation of `value` in `passage`."""
    leaves: list[Passage] = []

    def number(leaf: re.Match[str]) -> str:
        if leaf[2]:  # a key
            return leaf[0]
        leaves.append(passage.part(*leaf.span()))
        return f" {len(leaves) - 1} "

    rows = list(rows_of(value, arity))
    numbered = list(rows_of(python_literal(LEAF.sub(number, source)), arity))  # the same rows with numbers of leaves
    has_places = list(map(len, numbered)) == list(map(len, rows))
    for row, numbers in zip(rows, numbered if has_places else rows, strict=True):
        if isinstance(row, str):
            yield row
            continue
        is_text = [isinstance(part, str | int | float) and not isinstance(part, bool) for part in row]
        passages = [leaves[n] if has_places and known else None for n, known in zip(numbers, is_text, strict=True)]
        yield [
            Cell.at(place, part) if known else part for place, part, known in zip(passages, row, is_text, strict=True)
        ]


def rows_of(value: Any, arity: int) -> Iterator[list[Any] | str]:
    """Yield the entities of each tuple in a JSON value, at any depth, or the reason for rejecting an object."""
    if isinstance(value, dict):
        by_slot = {slot: part for key, part in value.items() if (slot := slot_of(key, arity)) is not None}
        if len(by_slot) == arity:
            yield [by_slot[slot] for slot in range(arity)]
            return
        parts = [part for key, part in value.items() if str(key).casefold() not in NO_ENTITIES]
        if any(not isinstance(part, list | dict) for part in parts):
            # A flat list beside other values, such as {"cause": "a", "effects": ["b", "c"]}, is not a tuple.
            parts = [part for part in parts if is_nested(part)]
            if not parts:
                yield UNKNOWN_KEYS
        value = parts
    elif not isinstance(value, list):
        return
    elif value and not is_nested(value):
        yield value
        return
    for part in value:
        yield from rows_of(part, arity)


def is_nested(value: Any) -> bool:
    """Return True for a list or an object that contains lists or objects."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(part, list | dict) for part in parts)


def slot_of(name: Any, arity: int) -> int | None:
    """Return the slot that a key or a column name denotes, or None."""
    folded = str(name).casefold()
    if arity == 2 and folded in ROLES:
        return ROLES[folded]
    return next((slot for slot in range(arity) if folded in (slot_name(slot).casefold(), f"ent{slot}")), None)


def order_of(header: Sequence[Any], arity: int) -> list[int] | None:
    """Return the slot of each column, or None unless the header names all slots once."""
    slots = [slot for name in header if (slot := slot_of(name, arity)) is not None]
    return slots if len(header) == arity and sorted(slots) == list(range(arity)) else None


def split_cells(line: Passage, texts: Sequence[str]) -> list[Cell]:
    """Return consecutive parts of `line` without surrounding spaces."""
    cells, end = [], 0
    for text in map(str.strip, texts):
        end = line.text.index(text, end) + len(text)
        cells.append(Cell.at(line.part(end - len(text), end), text))
    return cells


def table_rows(rest: Passage, arity: int, others: list[Passage]) -> list[list[Cell]]:
    """Return the cells of each line with separators, in the order of the slots; append the other lines to `others`.

    A line above a Markdown rule, such as |---|---|, is a header. A header of slot names sets the order of the columns.
    """
    rows: list[list[Cell]] = []
    order = list(range(arity))
    start = 0
    for text, whole in zip(rest.text.splitlines(), rest.text.splitlines(keepends=True), strict=True):
        mark = LIST_MARK.match(text)
        bare = text[mark.end() if mark else 0 :].strip()
        line = rest.find(bare, start + (mark.end() if mark else 0))
        start += len(whole)
        if RULE.fullmatch(bare):
            header = rows.pop() if rows else []
            order = order_of(header, arity) or order
        elif SEPARATOR.search(bare):
            cells = split_cells(line, SEPARATOR.split(bare.strip("|")))
            is_tuple = len(cells) == arity and order_of(cells, arity) is None
            rows.append([cells[order.index(slot)] for slot in range(arity)] if is_tuple else cells)
        else:
            others.append(line)
    return rows


def clean(text: str) -> str:
    """Return an entity without surrounding quotes, trailing punctuation, redundant spaces, or lone surrogates."""
    text = text.encode(errors="replace").decode()
    return " ".join(text.strip(QUOTES).rstrip(".,;").strip(QUOTES).split())
