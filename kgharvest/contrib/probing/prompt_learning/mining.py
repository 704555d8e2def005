"""Prompt mining from sentences with both entities of a known fact (LPAQA: Jiang et al. 2020, section 3.1).

Middle words: the words between the two entities. "Obama was born in Hawaii" gives "[X] was born in [Y] .".
Dependency paths: the words from the leftmost to the rightmost word of the shortest path between the entities in the
    dependency tree. This method also finds "capital of [X] is [Y] ." in "The capital of France is Paris".
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, permutations
from typing import Literal, NamedTuple

from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.types import EngineError

TOKEN = re.compile(r"\w+(?:[-.]\w+)*|['’]\w+|[^\w\s]")  # "France's" is France and 's
MOST_WORDS = 10  # per prompt, as in the paper
LONGEST_SENTENCE = 200  # words; longer texts are not sentences
HEAD, TAIL = "[X]", "[Y]"
ROOT = -1
NO_SPACE_BEFORE = frozenset("'’),.:;?!%")

Pair = tuple[str, str]
Words = tuple[str, ...]
How = Literal["middle", "dependency"]


class Sentence(NamedTuple):
    """Words and, if the sentence is parsed, the index of each word's parent. ROOT: the word has no parent."""

    words: Words
    parents: tuple[int, ...] = ()


class MinedPrompt(NamedTuple):
    """A template with [X] and [Y], its number of occurrences, and the number of facts with which it occurs."""

    template: str
    n: int
    n_facts: int


class Found(NamedTuple):
    """An entity at words[start:end] of a sentence."""

    entity: str
    start: int
    end: int


# Reading


def sentences_of_text(lines: Iterable[str]) -> Iterator[Sentence]:
    """Yield the sentences of a text with one sentence per line."""
    for line in lines:
        if words := tuple(TOKEN.findall(line)):
            yield Sentence(words)


def sentences_of_conllu(lines: Iterable[str]) -> Iterator[Sentence]:
    """Yield the parsed sentences of CoNLL-U: one word per line, ten tab-separated columns, blank lines after sentences.

    Raises EngineError with the number of an invalid line. Format: https://universaldependencies.org/format.html
    """
    words: list[str] = []
    heads: list[int] = []
    start = 1
    for number, line in zip(count(1), chain(lines, [""]), strict=False):
        columns = line.rstrip("\r\n").split("\t")
        if columns == [""]:
            if words and max(heads) > len(words):
                raise EngineError(
                    f"The sentence at line {start} has {len(words)} words, but a word depends on word {max(heads)}."
                )
            if words:
                yield Sentence(tuple(words), tuple(head - 1 for head in heads))
            words, heads, start = [], [], number + 1
        elif not line.startswith("#") and not re.fullmatch(r"\d+[-.]\d+", columns[0]):  # no multiword or empty token
            if len(columns) != 10 or columns[0] != str(len(words) + 1) or not columns[6].isdecimal():
                raise EngineError(
                    f"Line {number} is not a CoNLL-U word. A word requires ten columns, a word number counted from 1, "
                    "and a numeric HEAD."
                )
            words.append(columns[1])
            heads.append(int(columns[6]))


# Mining


def mine_prompts(
    sentences: Iterable[Sentence], facts: Mapping[str, Iterable[Pair]], how: How = "middle", most: int = 40
) -> dict[str, list[MinedPrompt]]:
    """Return up to `most` prompts of each relation, by decreasing frequency, then by text.

    facts: (head, tail) pairs by relation, matched case-insensitively. Prompts with more than MOST_WORDS words and
        prompts that consist only of stop words and punctuation are discarded.
    """
    relations: dict[Pair, list[str]] = defaultdict(list)
    for relation, pairs in facts.items():
        for pair in {(_folded(head), _folded(tail)) for head, tail in pairs}:
            relations[pair].append(relation)
    index = EntityIndex(chain.from_iterable(relations))
    counts: dict[str, Counter[str]] = {relation: Counter() for relation in facts}
    pairs_of: dict[tuple[str, str], set[Pair]] = defaultdict(set)
    for sentence in sentences:
        for head, tail in permutations(index.find(sentence.words), 2):
            pair = (head.entity, tail.entity)
            template = _template(sentence, head, tail, how) if pair in relations else None
            if template is None:
                continue
            for relation in relations[pair]:
                counts[relation][template] += 1
                pairs_of[relation, template].add(pair)
    return {
        relation: [
            MinedPrompt(template, n, len(pairs_of[relation, template]))
            for template, n in sorted(templates.items(), key=lambda row: (-row[1], row[0]))[:most]
        ]
        for relation, templates in counts.items()
    }


def _folded(entity: str) -> str:
    return " ".join(word.casefold() for word in TOKEN.findall(entity))


class EntityIndex:
    """Index of entities by first word, so that `find` performs one lookup per word of a sentence."""

    def __init__(self, entities: Iterable[str]):
        self._by_first: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for entity in set(entities) - {""}:
            words = tuple(entity.split(" "))
            self._by_first[words[0]].append(words)
        for candidates in self._by_first.values():
            candidates.sort(key=len, reverse=True)

    def find(self, words: Sequence[str]) -> Iterator[Found]:
        """Yield the entities in `words`, without overlaps. If several start at a position, yield the longest."""
        if len(words) > LONGEST_SENTENCE:
            return
        folded = tuple(word.casefold() for word in words)
        start = 0
        while start < len(folded):
            candidates = self._by_first.get(folded[start], ())
            entity = next((words for words in candidates if folded[start : start + len(words)] == words), None)
            if entity:
                yield Found(" ".join(entity), start, start + len(entity))
            start += len(entity) if entity else 1


def _template(sentence: Sentence, head: Found, tail: Found, how: How) -> str | None:
    first, second = sorted((head, tail), key=lambda place: place.start)
    start, end = first.start, second.end
    if how == "dependency":
        if not sentence.parents:
            return None
        path = dependency_path(sentence.parents, head, tail)
        start, end = min([start, *path]), max([end, *(place + 1 for place in path)])
    slots = (HEAD, TAIL) if first is head else (TAIL, HEAD)
    words = (
        *sentence.words[start : first.start],
        slots[0],
        *sentence.words[first.end : second.start],
        slots[1],
        *sentence.words[second.end : end],
    )
    text_words = [word for word in words if word not in (HEAD, TAIL)]
    has_content = any(word.casefold() not in STOP_WORDS and word[0].isalnum() for word in text_words)
    return written(words) if has_content and len(text_words) <= MOST_WORDS else None


def dependency_path(parents: Sequence[int], head: Found, tail: Found) -> list[int]:
    """Return the positions on the shortest path in the tree between two spans, without the words of the spans."""
    ways = []
    for span in (head, tail):
        inside = range(span.start, span.end)
        # The root of a span is its first word whose parent is outside the span.
        place = next((place for place in inside if parents[place] not in inside), span.start)
        way: list[int] = []
        while place != ROOT and place not in way:  # a malformed tree can contain a cycle
            way.append(place)
            place = parents[place]
        ways.append(way)
    common = set(ways[0]) & set(ways[1])
    path = [place for way in ways for place in way if place not in common]
    meeting = next((place for place in ways[0] if place in common), None)
    within = {*range(head.start, head.end), *range(tail.start, tail.end)}
    return sorted({*path, *([] if meeting is None else [meeting])} - within)


def written(words: Sequence[str]) -> str:
    """Return a prompt with a full stop, in the format of LPAQA's files: "[X] 's capital is [Y] ."."""
    text = ""
    for word in words:
        text += word if not text or word[0] in NO_SPACE_BEFORE else f" {word}"
    return text if text.endswith(".") else f"{text} ."
