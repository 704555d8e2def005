"""Offline paraphraser: rule-based rewrites, words replaced by the LM, and frames around the clause."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np
import torch

from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.language_models.base import GivesLogprobs, LanguageModel, Query, TokenIds, filled_tokens, fits
from kgharvest.engine.prompts.paraphrasers.rules import (
    capitalized,
    framed,
    irregular_pasts,
    is_about_place,
    restated,
    rewritten,
    with_article,
)
from kgharvest.engine.prompts.slot_recovery import as_prompt, as_sentence
from kgharvest.engine.prompts.template import SLOT, PromptTemplate
from kgharvest.engine.scoring import entity_logprobs

# Words filled in by the LM

BATCH_SIZE = 64
FILLERS_OF_ONE_WORD = 8
FILLERS_OF_TWO_WORDS = 4
LEAST_OVERLAP = 0.95
MOST_VARIANTS = 4
SHORTEST_FILLER = 3  # letters; shorter texts are word pieces
NEGATIONS = frozenset({"no", "not", "nor", "neither", "never", "hardly", "rarely", "seldom", "without", "cannot"})
ENDINGS = ("ing", "ed", "s")

_WORD = re.compile(r"(?<![\w<’'-])[A-Za-z][\w’'-]*(?![\w<])")


class Blank(NamedTuple):
    """One or two adjacent words of a prompt's text that can be replaced."""

    start: int
    end: int
    words: tuple[str, ...]

    def fill(self, text: str, filler: str) -> str:
        """Return `text` with `filler` in the blank, and the matching "a" or "an" before it."""
        return with_article(text[: self.start], filler) + text[self.end :]


class Filler(NamedTuple):
    """A blank and the tokens that have been filled in so far."""

    blank: Blank
    ids: TokenIds


def refill(lm: LanguageModel, prompt: PromptTemplate, entities: Sequence[str]) -> list[PromptTemplate]:
    """Return up to MOST_VARIANTS variants of `prompt` with one blank replaced. The closest in meaning comes first.

    The LM's distribution for an entity, given the other entities, is compared before and after the replacement: the
    larger the overlap, the closer the meaning. Returns [] if the LM is behind a server, because servers return no
    distributions.
    """
    if isinstance(lm, GivesLogprobs):
        return []
    encoded = [lm.encode_entity(entity) for entity in entities]
    empty = [Filler(blank, ()) for blank in blanks(prompt)]
    one_word = [filler for filler in empty if len(filler.blank.words) == 1]
    two_words = [filler for filler in empty if len(filler.blank.words) == 2]
    first_words = extend(lm, prompt, encoded, two_words, FILLERS_OF_TWO_WORDS)
    fillers = extend(lm, prompt, encoded, one_word, FILLERS_OF_ONE_WORD) + extend(lm, prompt, encoded, first_words, 1)
    texts = lm.canonical_texts([filler.ids for filler in fillers])
    variants = [
        PromptTemplate.parse(capitalized(filler.blank.fill(prompt.text, text)))
        for filler, text in zip(fillers, texts, strict=True)
        if text is not None and is_apt(text, filler.blank.words) and not repeats(text, prompt)
    ]
    overlaps = meaning_overlaps(lm, prompt, variants, entities)
    ranked = sorted(zip(overlaps, variants, strict=True), key=lambda pair: -pair[0])
    return [variant for overlap, variant in ranked if overlap >= LEAST_OVERLAP][:MOST_VARIANTS]


def blanks(prompt: PromptTemplate) -> list[Blank]:
    """Return each content word alone, and together with each adjacent word in the same segment of text."""
    text = SLOT.sub(lambda slot: "<" * len(slot.group()), prompt.text)
    words = [Blank(*match.span(), (match.group(),)) for match in _WORD.finditer(text)]
    pairs = [
        Blank(left.start, right.end, left.words + right.words)
        for left, right in pairwise(words)
        if text[left.end : right.start] == " "
    ]
    return [blank for blank in words + pairs if any(word.lower() not in STOP_WORDS for word in blank.words)]


def is_apt(text: str, words: Sequence[str]) -> bool:
    """Return whether `text` can replace `words`.

    Stop words can replace only stop words. Other words must differ but have the same ending. Negations are not allowed.
    """
    fillers = text.lower().split()
    if len(fillers) != len(words):
        return False
    for filler, word in zip(fillers, map(str.lower, words), strict=True):
        if filler in NEGATIONS or (filler in STOP_WORDS) != (word in STOP_WORDS):
            return False
        is_word = filler.isalpha() and len(filler) >= SHORTEST_FILLER
        if word not in STOP_WORDS and (filler == word or not is_word or ending(filler) != ending(word)):
            return False
    return True


def repeats(filler: str, prompt: PromptTemplate) -> bool:
    """Return whether `filler` contains a content word of the prompt, as in "the color color"."""
    prompt_words = {word.lower() for word in _WORD.findall(prompt.text)}
    return not (prompt_words - STOP_WORDS).isdisjoint(filler.lower().split())


def ending(word: str) -> str:
    """Return the inflectional ending of `word`; "written" counts as -ed."""
    if word in irregular_pasts():
        return "ed"
    return next((ending for ending in ENDINGS if word.endswith(ending)), "")


def extend(
    lm: LanguageModel, prompt: PromptTemplate, encoded: Sequence[TokenIds], fillers: Sequence[Filler], n_best: int
) -> list[Filler]:
    """Return each filler, extended by each of its `n_best` most likely next tokens."""
    if not fillers:
        return []
    queries = []
    for filler in fillers:
        blanked = PromptTemplate.parse(filler.blank.fill(prompt.text, f"<ENT{prompt.arity}>"))
        pattern = (*map(len, encoded), len(filler.blank.words))
        queries.append(lm.query(lm.encode_prompt(blanked), pattern, filled_tokens(lm, encoded) + filler.ids))
    scores = logits(lm, queries)  # (F, V)
    allowed = np.stack([lm.continues_entity if filler.ids else lm.starts_entity for filler in fillers])  # (F, V)
    best = scores.masked_fill(~torch.from_numpy(allowed), -torch.inf).topk(n_best).indices.tolist()  # (F, n)
    return [
        Filler(filler.blank, (*filler.ids, token))
        for filler, tokens in zip(fillers, best, strict=True)
        for token in tokens
    ]


def meaning_overlaps(
    lm: LanguageModel, prompt: PromptTemplate, variants: Sequence[PromptTemplate], entities: Sequence[str]
) -> list[float]:
    """Return the smallest slot overlap of each variant with `prompt`, in [0, 1].

    The overlap of a slot is the Bhattacharyya coefficient of the two distributions of its entity's first token, given
    the other entities: the sum over the vocabulary of sqrt(P * Q).
    """
    overlaps = []
    for slot, entity in enumerate(entities):
        filled = [*entities[:slot], "<ENT0>", *entities[slot + 1 :]]
        one_slot = [PromptTemplate.parse(template.fill(filled)) for template in (prompt, *variants)]
        pattern = (len(lm.encode_entity(entity)),)
        queries = [lm.query(lm.encode_prompt(template), pattern, ()) for template in one_slot]
        roots = logits(lm, queries).log_softmax(dim=-1).div(2).exp()  # (1 + variants, V)
        overlaps.append((roots[1:] @ roots[0]).tolist())
    return [min(of_variant) for of_variant in zip(*overlaps, strict=True)]


def logits(lm: LanguageModel, queries: Sequence[Query]) -> torch.Tensor:
    return lm.logits(lm.vectors(queries, BATCH_SIZE, lambda: None)).cpu()


# Paraphraser


class OfflineParaphraser:
    """Rule-based paraphraser without network access. The LM fills in words and ranks the wordings."""

    name = "offline"

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return rewrites and fillings in alternation, two rewrites per filling.

        Entities with digits are assumed to be years or other numbers. If there is such an entity, rewrites about a
        place are discarded, unless the sentence itself is about a place.
        """
        prompt = statement_prompt(sentence, entities)
        if prompt is None:
            return []
        rewrites = rewritten(prompt)
        if any(re.search(r"\d", entity) for entity in entities) and not is_about_place(prompt):
            rewrites = [other for other in rewrites if not is_about_place(other)]
        rewrites = self._best_first(rewrites, entities)
        fillings = refill(self._lm, prompt, entities)
        pairs = zip_longest(rewrites[0::2], rewrites[1::2], fillings)
        ordered = [template for triple in pairs for template in triple if template is not None]
        return [as_sentence(template, entities) for template in ordered]

    def restate(self, sentence: str, entities: Sequence[str]) -> list[str]:
        return self._worded(restated, sentence, entities)

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return the clause of the sentence in frames ("it is well known that ...")."""
        return self._worded(framed, sentence, entities)

    def _worded(
        self, rules: Callable[[PromptTemplate], list[PromptTemplate]], sentence: str, entities: Sequence[str]
    ) -> list[str]:
        prompt = statement_prompt(sentence, entities)
        templates = [] if prompt is None else self._best_first(rules(prompt), entities)
        return [as_sentence(template, entities) for template in templates]

    def _best_first(self, templates: Sequence[PromptTemplate], entities: Sequence[str]) -> list[PromptTemplate]:
        """Return the templates that fit into the LM's context, by decreasing likelihood of `entities` in them."""
        encoded = tuple(self._lm.encode_entity(entity) for entity in entities)
        pattern = tuple(map(len, encoded))
        encoded_templates = [(template, self._lm.encode_prompt(template)) for template in templates]
        fitting = [(template, prompt) for template, prompt in encoded_templates if fits(self._lm, prompt, pattern)]
        if not fitting:
            return []
        prompts = [prompt for _, prompt in fitting]
        logprobs = entity_logprobs(self._lm, prompts, [encoded], BATCH_SIZE, lambda: None).sum(axis=-1)  # (1, P)
        ranked = sorted(zip(-logprobs.ravel(), range(len(fitting)), strict=True))
        return [fitting[index][0] for _, index in ranked]


def statement_prompt(sentence: str, entities: Sequence[str]) -> PromptTemplate | None:
    """Return `sentence` with slots for `entities`, or None if it is a question or an entity is missing."""
    prompt = as_prompt(sentence, entities)
    return None if prompt is None or prompt.text.endswith(("?", "!")) else prompt
