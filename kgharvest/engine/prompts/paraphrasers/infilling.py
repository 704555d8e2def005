"""Paraphrases by in-filling: a word or two between the slots are blanked, and the LM fills in others.

The blank is one more slot, so that every LM behind the `LanguageModel` protocol can be asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.language_models.base import GivesLogprobs, LanguageModel, Query, TokenIds, filled_tokens
from kgharvest.engine.prompts.paraphrasers.rules import capitalized, irregular_pasts
from kgharvest.engine.prompts.template import SLOT, PromptTemplate

BATCH_SIZE = 64
FILLERS_OF_ONE_WORD = 8
FILLERS_OF_TWO_WORDS = 4
LEAST_OVERLAP = 0.95
MOST_VARIANTS = 4
SHORTEST_FILLER = 3  # letters; what is shorter is a piece of a word
NEGATIONS = frozenset({"no", "not", "nor", "neither", "never", "hardly", "rarely", "seldom", "without", "cannot"})
ENDINGS = ("ing", "ed", "s")

_WORD = re.compile(r"(?<![\w<’'-])[A-Za-z][\w’'-]*(?![\w<])")


class Blank(NamedTuple):
    """A stretch of a prompt's text, of one or two words, to be filled with others."""

    start: int
    end: int
    words: tuple[str, ...]

    def fill(self, text: str, filler: str) -> str:
        """Return `text` with `filler` in the blank, and "a" or "an" before it as it needs."""
        right_article = r"\1n " if filler[0] in "aeiou" else r"\1 "
        return re.sub(r"\b([Aa])n? $", right_article, text[: self.start]) + filler + text[self.end :]


class Filler(NamedTuple):
    """What stands in a blank so far."""

    blank: Blank
    ids: TokenIds


def refill(lm: LanguageModel, prompt: PromptTemplate, entities: Sequence[str]) -> list[PromptTemplate]:
    """Return `prompt` with other words in one place each, the closest few in meaning first; often none.

    Closeness is the overlap of the LM's distributions for an entity, given the others, before and after. An LM behind a
    server gives none, and refills nothing.
    """
    if isinstance(lm, GivesLogprobs):
        return []
    encoded = [lm.encode_entity(entity) for entity in entities]
    fillers = likely_fillers(lm, prompt, encoded)
    texts = lm.canonical_texts([filler.ids for filler in fillers])
    variants = [
        PromptTemplate.parse(capitalized(filler.blank.fill(prompt.text, text)))
        for filler, text in zip(fillers, texts, strict=True)
        if text is not None and is_apt(text, filler.blank.words) and not repeats(text, prompt)
    ]
    ranked = sorted(
        zip(meaning_overlaps(lm, prompt, variants, entities), variants, strict=True), key=lambda pair: -pair[0]
    )
    return [variant for overlap, variant in ranked if overlap >= LEAST_OVERLAP][:MOST_VARIANTS]


def blanks(prompt: PromptTemplate) -> list[Blank]:
    """Return the words that carry meaning, alone and with each neighbour in the same stretch of text."""
    text = SLOT.sub(lambda slot: "<" * len(slot.group()), prompt.text)
    words = [Blank(*match.span(), (match.group(),)) for match in _WORD.finditer(text)]
    pairs = [
        Blank(left.start, right.end, left.words + right.words)
        for left, right in pairwise(words)
        if text[left.end : right.start] == " "
    ]
    return [blank for blank in words + pairs if any(map(carries_meaning, blank.words))]


def carries_meaning(word: str) -> bool:
    return word.lower() not in STOP_WORDS


def is_apt(text: str, words: Sequence[str]) -> bool:
    """Return whether `text` can stand for `words`: word by word the same sort, no content word again, no negation."""
    fillers = text.lower().split()
    return len(fillers) == len(words) and all(
        is_apt_word(filler, word.lower()) for filler, word in zip(fillers, words, strict=True)
    )


def is_apt_word(filler: str, word: str) -> bool:
    if filler in NEGATIONS or carries_meaning(filler) != carries_meaning(word):
        return False
    return not carries_meaning(word) or (
        filler != word and filler.isalpha() and len(filler) >= SHORTEST_FILLER and ending(filler) == ending(word)
    )


def repeats(filler: str, prompt: PromptTemplate) -> bool:
    """Return whether `filler` would say a word of the prompt twice, "the colour colour"."""
    prompt_words = {word.lower() for word in _WORD.findall(prompt.text)}
    return any(word in prompt_words and carries_meaning(word) for word in filler.lower().split())


def ending(word: str) -> str:
    """Return the inflection that `word` shows; "written" counts as one of -ed."""
    if word in irregular_pasts():
        return "ed"
    return next((ending for ending in ENDINGS if word.endswith(ending)), "")


def likely_fillers(lm: LanguageModel, prompt: PromptTemplate, encoded: Sequence[TokenIds]) -> list[Filler]:
    """Return the LM's likeliest fillers of every blank, as many tokens each as the blank has words."""
    begun = [Filler(blank, ()) for blank in blanks(prompt)]
    one_word = [filler for filler in begun if len(filler.blank.words) == 1]
    two_words = [filler for filler in begun if len(filler.blank.words) == 2]
    first_words = extend(lm, prompt, encoded, two_words, FILLERS_OF_TWO_WORDS)
    return [
        *extend(lm, prompt, encoded, one_word, FILLERS_OF_ONE_WORD),
        *extend(lm, prompt, encoded, first_words, 1),
    ]


def extend(
    lm: LanguageModel, prompt: PromptTemplate, encoded: Sequence[TokenIds], fillers: Sequence[Filler], n_best: int
) -> list[Filler]:
    """Return every filler with each of its `n_best` likeliest next tokens."""
    if not fillers:
        return []
    scores = logits(lm, [blank_query(lm, prompt, encoded, filler) for filler in fillers])  # (F, V)
    allowed = np.stack([lm.continues_entity if filler.ids else lm.starts_entity for filler in fillers])  # (F, V)
    best = scores.masked_fill(~torch.from_numpy(allowed), -torch.inf).topk(n_best).indices.tolist()  # (F, n)
    return [
        Filler(filler.blank, (*filler.ids, token))
        for filler, tokens in zip(fillers, best, strict=True)
        for token in tokens
    ]


def blank_query(lm: LanguageModel, prompt: PromptTemplate, encoded: Sequence[TokenIds], filler: Filler) -> Query:
    blanked = PromptTemplate.parse(filler.blank.fill(prompt.text, f"<ENT{prompt.arity}>"))
    pattern = (*map(len, encoded), len(filler.blank.words))
    return lm.query(lm.encode_prompt(blanked), pattern, filled_tokens(lm, encoded) + filler.ids)


def meaning_overlaps(
    lm: LanguageModel, prompt: PromptTemplate, variants: Sequence[PromptTemplate], entities: Sequence[str]
) -> list[float]:
    """Return for each variant how alike it and `prompt` make each entity, given the others: the least, in [0, 1].

    Likeness is the Bhattacharyya coefficient of two distributions of the entity's first token: the sum over the
    vocabulary of sqrt(P * Q). A capital is not told from a currency by its country, but the country's by the relation.
    """
    overlaps = [slot_overlaps(lm, [prompt, *variants], slot, entities) for slot in range(prompt.arity)]
    return [min(of_variant) for of_variant in zip(*overlaps, strict=True)]


def slot_overlaps(
    lm: LanguageModel, templates: Sequence[PromptTemplate], slot: int, entities: Sequence[str]
) -> list[float]:
    """Return for each template but the first how alike it and the first make the entity of `slot`, given the others."""
    pattern = (len(lm.encode_entity(entities[slot])),)
    one_slot = [with_one_slot(template, slot, entities) for template in templates]
    queries = [lm.query(lm.encode_prompt(template), pattern, ()) for template in one_slot]
    roots = logits(lm, queries).log_softmax(dim=-1).div(2).exp()  # (T, V)
    return (roots[1:] @ roots[0]).tolist()


def with_one_slot(template: PromptTemplate, slot: int, entities: Sequence[str]) -> PromptTemplate:
    """Return `template` with all entities in their places but that of `slot`, which is a template of arity 1."""
    return PromptTemplate.parse(template.fill([*entities[:slot], "<ENT0>", *entities[slot + 1 :]]))


def logits(lm: LanguageModel, queries: Sequence[Query]) -> torch.Tensor:
    return lm.logits(lm.vectors(queries, BATCH_SIZE, lambda: None)).cpu()
