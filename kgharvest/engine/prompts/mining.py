"""Prompts mined from sentences that name both entities of a known fact (LPAQA: Jiang et al. 2020, section 3.1).

Middle words: what stands between the two, "Obama was born in Hawaii" gives "[X] was born in [Y] .". Dependency paths:
the words from the leftmost to the rightmost of the shortest path between the two in the sentence's tree, which also
finds "capital of [X] is [Y] ." in "The capital of France is Paris".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, permutations
from typing import Literal, NamedTuple

from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.types import EngineError

TOKEN = re.compile(r"\w+(?:[-.]\w+)*|['’]\w+|[^\w\s]")  # "France's" is France and 's
MOST_WORDS = 10  # of a prompt, as in the paper
LONGEST_SENTENCE = 200  # words; what is longer is no sentence
HEAD, TAIL = "[X]", "[Y]"
ROOT = -1
NO_SPACE_BEFORE = frozenset("'’),.:;?!%")

Pair = tuple[str, str]
Words = tuple[str, ...]
How = Literal["middle", "dependency"]


class Sentence(NamedTuple):
    """words; parents: by word, the place of the one it depends on, ROOT for none; () where nobody parsed it."""

    words: Words
    parents: tuple[int, ...] = ()


class MinedPrompt(NamedTuple):
    """template: with [X] and [Y]. n: how often it was found; n_facts: of how many facts."""

    template: str
    n: int
    n_facts: int


class Found(NamedTuple):
    """Where an entity stands: words[start:end]."""

    entity: str
    start: int
    end: int


# -- reading -----------------------------------------------------------------------------------------------------------


def sentences_of_text(lines: Iterable[str]) -> Iterator[Sentence]:
    """Yield the sentences of a text with one a line."""
    for line in lines:
        if words := tuple(TOKEN.findall(line)):
            yield Sentence(words)


def sentences_of_conllu(lines: Iterable[str]) -> Iterator[Sentence]:
    """Yield the parsed sentences of CoNLL-U: a word a line, ten columns with tabs, an empty line after each sentence.

    Raises EngineError with the line at fault. https://universaldependencies.org/format.html
    """
    words: list[str] = []
    heads: list[int] = []
    start = 1
    for number, line in zip(count(1), chain(lines, [""]), strict=False):
        columns = line.rstrip("\r\n").split("\t")
        if columns == [""]:
            if words:
                yield _parsed(words, heads, start)
            words, heads, start = [], [], number + 1
        elif not line.startswith("#") and not re.fullmatch(r"\d+[-.]\d+", columns[0]):  # joined and elided words
            if len(columns) != 10 or columns[0] != str(len(words) + 1) or not columns[6].isdecimal():
                raise EngineError(f"Line {number} is no word of CoNLL-U: ten columns, numbered from 1, HEAD a number.")
            words.append(columns[1])
            heads.append(int(columns[6]))


def _parsed(words: Sequence[str], heads: Sequence[int], line: int) -> Sentence:
    if max(heads) > len(words):
        raise EngineError(f"The sentence of line {line} has {len(words)} words and one that depends on {max(heads)}.")
    return Sentence(tuple(words), tuple(head - 1 for head in heads))


# -- mining ------------------------------------------------------------------------------------------------------------


def mine_prompts(
    sentences: Iterable[Sentence], facts: Mapping[str, Iterable[Pair]], how: How = "middle", most: int = 40
) -> dict[str, list[MinedPrompt]]:
    """Return by relation the prompts found most often, at most `most`; those found equally often by their text.

    facts: (head, tail) pairs by relation; case does not matter. Left out are prompts of more than MOST_WORDS words, or
    of stop words and punctuation alone.
    """
    relations: dict[Pair, list[str]] = defaultdict(list)
    for relation, pairs in facts.items():
        for pair in {(_folded(head), _folded(tail)) for head, tail in pairs}:
            relations[pair].append(relation)
    index = EntityIndex(chain.from_iterable(relations))
    n_found: dict[str, Counter[str]] = {relation: Counter() for relation in facts}
    found_by: dict[tuple[str, str], set[Pair]] = defaultdict(set)
    for sentence in sentences:
        for head, tail in permutations(index.find(sentence.words), 2):
            pair = (head.entity, tail.entity)
            template = _template(sentence, head, tail, how) if pair in relations else None
            if template is None:
                continue
            for relation in relations[pair]:
                n_found[relation][template] += 1
                found_by[relation, template].add(pair)
    return {
        relation: [
            MinedPrompt(template, n, len(found_by[relation, template]))
            for template, n in sorted(counted.items(), key=lambda row: (-row[1], row[0]))[:most]
        ]
        for relation, counted in n_found.items()
    }


def _folded(entity: str) -> str:
    return " ".join(word.casefold() for word in TOKEN.findall(entity))


class EntityIndex:
    """Entities by their first word; `find` costs a look-up for each word of a sentence."""

    def __init__(self, entities: Iterable[str]):
        self._by_first: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for entity in set(entities) - {""}:
            words = tuple(entity.split(" "))
            self._by_first[words[0]].append(words)
        for candidates in self._by_first.values():
            candidates.sort(key=len, reverse=True)

    def find(self, words: Sequence[str]) -> Iterator[Found]:
        """Yield the entities in `words`, the longest from each place on, none within another."""
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
    return written(words) if _is_telling(words) else None


def _is_telling(words: Sequence[str]) -> bool:
    others = [word for word in words if word not in (HEAD, TAIL)]
    telling = (word for word in others if word.casefold() not in STOP_WORDS and word[0].isalnum())
    return len(others) <= MOST_WORDS and next(telling, None) is not None


def dependency_path(parents: Sequence[int], head: Found, tail: Found) -> list[int]:
    """Return the places on the shortest path in the tree between two spans, their own words left out."""
    ways = [_way_up(parents, _root_of(parents, span)) for span in (head, tail)]
    common = set(ways[0]) & set(ways[1])
    path = [place for way in ways for place in way if place not in common]
    meeting = next((place for place in ways[0] if place in common), None)
    within = {*range(head.start, head.end), *range(tail.start, tail.end)}
    return sorted({*path, *([] if meeting is None else [meeting])} - within)


def _root_of(parents: Sequence[int], span: Found) -> int:
    """Return the word of the span on which the others depend: the first whose parent lies outside."""
    inside = range(span.start, span.end)
    return next((place for place in inside if parents[place] not in inside), span.start)


def _way_up(parents: Sequence[int], place: int) -> list[int]:
    """Return the places from `place` to the root; a tree that is none ends where it comes round."""
    way: list[int] = []
    while place != ROOT and place not in way:
        way.append(place)
        place = parents[place]
    return way


def written(words: Sequence[str]) -> str:
    """Return a prompt with a full stop, as LPAQA's files have it: "[X] 's capital is [Y] ."."""
    text = ""
    for word in words:
        text += word if not text or word[0] in NO_SPACE_BEFORE else f" {word}"
    return text if text.endswith(".") else f"{text} ."
