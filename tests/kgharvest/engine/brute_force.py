"""Reference implementation of the search: all tuples, plain transformers forward passes, and a Python sort.

It shares only the filter predicates with the engine. These have their own tests.
"""

from __future__ import annotations

import functools
import heapq
import math
import re
from collections import Counter
from dataclasses import dataclass

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from kgharvest.engine import filters


@dataclass
class Candidate:
    entities: tuple[str, ...]
    surface: tuple[str, ...]
    logprobs: list[float]

    @property
    def order(self):
        return ([-value for value in sorted(self.logprobs)], self.entities, self.surface)

    @property
    def mtl(self):
        return min(self.logprobs)


class BruteForce:
    """Exhaustive search. `prompts`: texts with slots; `weights` sum to 1; `lead`: prefix of words inside a text."""

    def __init__(self, folder, prompts, weights, lead=""):
        self.model = AutoModelForMaskedLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.prompts, self.weights, self.lead = prompts, weights, lead
        self.in_order = functools.cache(
            lambda pattern: sorted(self.candidates(pattern), key=lambda candidate: candidate.order)
        )
        # All tuples repeat the same few entities and tokens.
        self.surface, self.is_first, self.is_inner = map(functools.cache, (self.surface, self.is_first, self.is_inner))
        self.log_distribution = functools.cache(self.log_distribution)

    def text_ids(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def entity_ids(self, text):
        return self.text_ids(self.lead + text)

    def sentence(self, prompt, slot_ids):
        """Return the ids of the prompt with `slot_ids[i]` in slot i, and the start of each slot."""
        ids, begins = [self.tokenizer.cls_token_id], {}
        pieces = re.split(r"<ENT(\d)>", prompt)
        for index, piece in enumerate(pieces):
            if index % 2:
                begins[int(piece)] = len(ids)
                ids += slot_ids[int(piece)]
            else:
                ids += self.text_ids(piece.rstrip() if index < len(pieces) - 1 else piece)
        return [*ids, self.tokenizer.sep_token_id], begins

    @torch.no_grad()
    def logits(self, prompt, slot_ids, slot, offset):
        ids, begins = self.sentence(prompt, slot_ids)
        return self.model(torch.tensor([ids])).logits[0, begins[slot] + offset]

    def log_distribution(self, prompt, slot_ids, slot, offset):
        return torch.log_softmax(self.logits(prompt, list(map(list, slot_ids)), slot, offset), dim=-1)

    def token_logprobs(self, slot_ids, slot, offset):
        """Return the log_softmax of the weighted mean of the prompts' logits."""
        mean = sum(
            weight * self.logits(prompt, slot_ids, slot, offset)
            for prompt, weight in zip(self.prompts, self.weights, strict=True)
        )
        return torch.log_softmax(mean, dim=-1)

    def is_inner(self, token):
        return token not in self.tokenizer.all_special_ids

    def is_first(self, token):
        piece = self.tokenizer.convert_ids_to_tokens(token)
        return self.is_inner(token) and (piece.startswith("Ġ") if self.lead else not piece.startswith("##"))

    def surface(self, ids):
        """Return the text of the entity, or None if the ids are not its canonical tokenization."""
        text = self.tokenizer.decode(ids).strip()
        return text if text and self.entity_ids(text) == list(ids) else None

    def candidates(self, pattern):
        """Yield all tuples of canonical entities with `pattern[i]` tokens in entity i."""
        mask = self.tokenizer.mask_token_id
        vocabulary = range(len(self.tokenizer))

        def fill(slot_ids, slot, offset, surfaces, logprobs):
            if slot == len(pattern):
                folded = tuple(" ".join(text.casefold().split()) for text in surfaces)
                yield Candidate(folded, tuple(surfaces), logprobs)
                return
            distribution = self.token_logprobs(slot_ids, slot, offset)
            for token in vocabulary:
                if not (self.is_first(token) if offset == 0 else self.is_inner(token)):
                    continue
                filled = [list(ids) for ids in slot_ids]
                filled[slot][offset] = token
                so_far = [*logprobs, distribution[token].item()]
                if offset + 1 < pattern[slot]:
                    yield from fill(filled, slot, offset + 1, surfaces, so_far)
                elif text := self.surface(tuple(filled[slot])):
                    yield from fill(filled, slot + 1, 0, [*surfaces, text], so_far)

        yield from fill([[mask] * n for n in pattern], 0, 0, [], [])

    def search(self, patterns, wanted, cap=None, disabled=()):
        """Return the kept candidates in search order."""
        lists = [self.in_order(pattern) for pattern in patterns]
        return self.kept(heapq.merge(*lists, key=lambda candidate: candidate.order), wanted, cap, disabled)

    def search_by_consistency(self, patterns, wanted, cap=None, disabled=()):
        """Return the kept candidates, largest consistency first."""
        candidates = [candidate for pattern in patterns for candidate in self.in_order(pattern)]
        score_of = {candidate.surface: self.consistency(candidate.surface) for candidate in candidates}
        by_score = sorted(candidates, key=lambda candidate: (-score_of[candidate.surface], candidate.entities))
        return [(c, score_of[c.surface]) for c in self.kept(by_score, wanted, cap, disabled)]

    def kept(self, candidates, wanted, cap, disabled):
        """Return the first `wanted` candidates, without rejected and equal ones, and with `cap` per entity."""
        kept, seen, repeats = [], set(), Counter()
        entity_filter = filters.EntityFilter([], frozenset({*disabled, filters.IN_PROMPT}))
        texts = [] if filters.IN_PROMPT in disabled else list(map(filters.words_of, self.prompt_texts()))
        for candidate in candidates:
            if len(kept) == wanted:
                break
            if self.is_rejected(candidate, entity_filter, texts) or candidate.entities in seen:
                continue
            if cap is not None and any(repeats[entity] >= cap for entity in candidate.entities):
                continue
            seen.add(candidate.entities)
            repeats.update(set(candidate.entities))
            kept.append(candidate)
        return kept

    def is_rejected(self, candidate, entity_filter, texts):
        """Return True if a filter rejects an entity. texts: words of the prompts, which must not contain entities."""
        words = [filters.words_of(text) for text in candidate.surface]
        return any(
            entity_filter.rejection(entity)
            or any(filters.occurs_in(entity, text) for text in texts)
            or entity_filter.rejects_beside(entity, words[:slot])
            for slot, entity in enumerate(words)
        )

    def prompt_texts(self):
        return [re.sub(r"[^\w\s]", " ", text) for prompt in self.prompts for text in re.split(r"<ENT\d>", prompt)]

    def compatibility(self, prompt, surface, alpha=2 / 3):
        """Return f(E, p) of equation 1 and figure 6 in the paper."""
        ids = [self.entity_ids(text) for text in surface]
        slot_ids = [[self.tokenizer.mask_token_id] * len(entity) for entity in ids]
        logprobs = []
        for slot, entity in enumerate(ids):
            logprob = 0.0
            for offset, token in enumerate(entity):
                logprob += self.log_distribution(prompt, tuple(map(tuple, slot_ids)), slot, offset)[token].item()
                slot_ids[slot][offset] = token
            logprobs.append(logprob)
        return alpha * math.fsum(logprobs) + (1 - alpha) * min(logprobs)

    def consistency(self, surface):
        return math.fsum(
            weight * self.compatibility(prompt, surface)
            for prompt, weight in zip(self.prompts, self.weights, strict=True)
        )
