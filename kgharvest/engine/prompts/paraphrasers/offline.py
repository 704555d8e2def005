"""Offline paraphraser: rule-based rewrites, words filled in by the LM, and frames around the clause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from kgharvest.engine.language_models.base import LanguageModel, fits
from kgharvest.engine.prompts.paraphrasers.infilling import refill
from kgharvest.engine.prompts.paraphrasers.rules import framed, is_about_place, rewritten
from kgharvest.engine.prompts.slot_recovery import as_prompt, as_sentence
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import entity_logprobs

BATCH_SIZE = 64


class OfflineParaphraser:
    """Rule-based paraphraser without network access. The LM fills in words and ranks the wordings."""

    name = "offline"

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return rewrites and fillings in turn, two rewrites per filling.

        An entity with digits is a year or another number, so no rewrite turns it into a place unless the sentence does.
        """
        prompt = statement_prompt(sentence, entities)
        if prompt is None:
            return []
        has_number = any(re.search(r"\d", entity) for entity in entities)
        rewrites = rewritten(prompt)
        if has_number and not is_about_place(prompt):
            rewrites = [other for other in rewrites if not is_about_place(other)]
        rewrites = self._best_first(rewrites, entities)
        fillings = refill(self._lm, prompt, entities)
        pairs = zip_longest(rewrites[0::2], rewrites[1::2], fillings)
        ordered = [template for triple in pairs for template in triple if template is not None]
        return [as_sentence(template, entities) for template in ordered]

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return the clause of the sentence in frames ("it is well known that ...")."""
        prompt = statement_prompt(sentence, entities)
        frames = [] if prompt is None else self._best_first(framed(prompt), entities)
        return [as_sentence(template, entities) for template in frames]

    def _best_first(self, templates: Sequence[PromptTemplate], entities: Sequence[str]) -> list[PromptTemplate]:
        """Return the templates within the LM's context length, by decreasing likelihood of `entities` in them."""
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
