"""The offline paraphraser: syntactic rewrites, in-filling by the LM itself, and frames around the clause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest

from kgharvest.engine.language_models.base import LanguageModel, fits
from kgharvest.engine.prompts.paraphrasers.general_rules import GENERAL_REWRITES
from kgharvest.engine.prompts.paraphrasers.infilling import refill
from kgharvest.engine.prompts.paraphrasers.rewrite_rules import REWRITES
from kgharvest.engine.prompts.paraphrasers.rewriting import (
    Rewrite,
    clause_of,
    expanded,
    is_imperative,
    prompt_of,
    strands,
    unclassified,
    unframed,
    without_adverbial,
)
from kgharvest.engine.prompts.paraphrasers.synonyms import with_heads, with_synonyms
from kgharvest.engine.prompts.paraphrasers.wordings import RELATION_REWRITES
from kgharvest.engine.prompts.slot_recovery import as_prompt, as_sentence
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import entity_logprobs

BATCH_SIZE = 64
MOST = 60  # wordings of one prompt; an LM has to read each
# Frames leave the meaning of the clause in them as it is.
FRAMES = (
    "it is well known that {clause}",
    "in general, {clause}",
    "it is often said that {clause}",
    "as everybody can see, {clause}",
    "there is no doubt about it: {clause}",
    "most of us would agree that {clause}",
    "{clause}, or so it is said",
    "as it happens, {clause}",
    "it should not be forgotten that {clause}",
    "{clause}, which is hardly surprising",
    "if I remember this correctly, {clause}",
    "{clause}, as has been found out again and again",
    "only later was it found out that {clause}",
)
# Clefts, fronted topics and the like: a part of the clause is brought out.
BROUGHT_OUT = re.compile(
    r"^it (?:is|was) (?:in |at |on )?(?:(?:an?|the) )?(?:<ENT|[a-z]+ (?:that|who) )|^what |\b(?:is|was|are) what |"
    r"something that|known to|^as for|^take |^when (?:it comes to|people talk|you compare)|serves? as|there is a chance"
)
OF_PLACES = re.compile(
    r"\b(?:place|birthplace|where|city|country|native|origins?|located|location|found|find|lies|home|headquarters)\b"
)
FRAME_PATTERNS = [re.compile(re.escape(frame).replace(r"\{clause\}", "(?P<clause>.*)")) for frame in FRAMES]


class OfflineParaphraser:
    """Rewrites by rule and asks no network. The LM proposes words and says which wordings it likes best."""

    name = "offline"

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return rewrites and fillings in turn, two of the former to one of the latter."""
        prompt = statement_prompt(sentence, entities)
        if prompt is None:
            return []
        fitting = [other for other in rewritten(prompt) if not takes_number_for_place(other, prompt, entities)]
        rewrites = self._best_first(fitting, entities)
        fillings = refill(self._lm, prompt, entities)
        pairs = zip_longest(rewrites[0::2], rewrites[1::2], fillings)
        ordered = [template for triple in pairs for template in triple if template is not None]
        return [as_sentence(template, entities) for template in ordered]

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return the clause of the sentence in the frames of FRAMES."""
        prompt = statement_prompt(sentence, entities)
        frames = [] if prompt is None else self._best_first(framed(prompt), entities)
        return [as_sentence(template, entities) for template in frames]

    def _best_first(self, templates: Sequence[PromptTemplate], entities: Sequence[str]) -> list[PromptTemplate]:
        """Return the templates that the LM can take, those first in which it finds `entities` likeliest."""
        encoded = tuple(self._lm.encode_entity(entity) for entity in entities)
        pattern = tuple(map(len, encoded))
        both = [(template, self._lm.encode_prompt(template)) for template in templates]
        fitting = [(template, prompt) for template, prompt in both if fits(self._lm, prompt, pattern)]
        if not fitting:
            return []
        prompts = [prompt for _, prompt in fitting]
        logprobs = entity_logprobs(self._lm, prompts, [encoded], BATCH_SIZE, lambda: None).sum(axis=-1)  # (1, P)
        ranked = sorted(zip(-logprobs.ravel(), range(len(fitting)), strict=True))
        return [fitting[index][0] for _, index in ranked]


def statement_prompt(sentence: str, entities: Sequence[str]) -> PromptTemplate | None:
    """Return the prompt that `sentence` is with these entities; None if it is a question, or lacks one of them."""
    prompt = as_prompt(sentence, entities)
    return None if prompt is None or prompt.text.endswith(("?", "!")) else prompt


def takes_number_for_place(wording: PromptTemplate, prompt: PromptTemplate, entities: Sequence[str]) -> bool:
    """Return whether `wording` speaks of a place, unlike `prompt`, though an entity is a year or another number."""
    has_number = any(re.search(r"\d", entity) for entity in entities)
    return has_number and not OF_PLACES.search(prompt.text) and OF_PLACES.search(wording.text) is not None


def rewritten(prompt: PromptTemplate) -> list[PromptTemplate]:
    """Return what the rules make of `prompt`, of a framed one without its frame; each wording once, at most MOST.

    First the wordings of known relations, then those of syntax, then synonyms, in the clause and in what was made of
    it. What is brought out by a cleft or the like is not brought out again, and none ends in a preposition unless
    `prompt` does.
    """
    clause = expanded(bare_clause(prompt))
    adverbial, main = without_adverbial(clause)
    known = list(relation_said(clause)) + [f"{adverbial}{text}" for text in relation_said(main)]
    ordinary = [f"{adverbial}{text}" for text in (*said_by(REWRITES, main), main)] + list(said_by(REWRITES, clause))
    general = list(said_by(GENERAL_REWRITES, clause))
    if BROUGHT_OUT.search(clause) or is_imperative(clause):
        ordinary, general = [text for text in ordinary if not BROUGHT_OUT.search(text)], []
    synonymous = list(with_synonyms(clause))
    mixed = [text for made in known + ordinary for text in islice(with_synonyms(made), 1)]
    texts = dict.fromkeys([clause, *known, *ordinary, *synonymous, *general, *mixed])
    own = expanded(clause_of(prompt))
    said = [text for text in texts if text != own and (strands(own) or not strands(text))]
    return [prompt_of(text) for text in said][:MOST]


def relation_said(clause: str) -> Iterator[str]:
    heads = with_heads(clause)
    return chain.from_iterable(said_by(RELATION_REWRITES, text) for text in dict.fromkeys((heads, unclassified(heads))))


def said_by(rules: Iterable[Rewrite], clause: str) -> Iterator[str]:
    return (text for rule in rules for text in rule.apply(clause))


def framed(prompt: PromptTemplate) -> list[PromptTemplate]:
    clause = bare_clause(prompt)
    return [] if is_imperative(clause) else [prompt_of(frame.format(clause=clause)) for frame in FRAMES]


def bare_clause(prompt: PromptTemplate) -> str:
    """Return the clause of `prompt` without the frame that it may stand in."""
    clause = clause_of(prompt)
    matches = (pattern.fullmatch(clause) for pattern in FRAME_PATTERNS)
    return unframed(next((match["clause"] for match in matches if match), clause))
