"""Baseline of the benches: Algorithm 1 of the BertNet paper, depth first, one forward pass per prompt and state.

Straightforward PyTorch: batch size 1, the full LM head at every position, a sorted vocabulary at every state. As
printed, Algorithm 1 prunes only below the first entity, so every first entity costs a state; like the reference code,
this search stops at the N best first entities. `prunes_first` also prunes at the first entity. With an entity cap, the
search is not exact, because it applies the cap in visiting order, like the reference code. Without a cap and with
`prunes_first`, it is exact, up to ties.
"""

from __future__ import annotations

import heapq
from collections import Counter

import numpy as np
import torch


class DepthFirstSearch:
    """`ask(prompt_index, pattern, filled)` returns the ids and the position of the next token to fill."""

    def __init__(self, model, ask, weights, is_entity, starts, n_tuples, cap=None, prunes_first=False):
        self.model, self.ask, self.weights = model, ask, weights
        self.is_entity, self.starts = is_entity, starts
        self.n_tuples, self.cap, self.prunes_first = n_tuples, cap, prunes_first
        self.heap: list[tuple[float, tuple[int, ...]]] = []
        self.repeats: Counter[int] = Counter()
        self.n_forwards = 0
        self.n_first = 0  # first entities visited

    def run(self, arity):
        """Return the tuples (one token an entity) with the largest MTL, best first: [(mtl, tokens)]."""
        self.pattern = (1,) * arity
        self.visit((), 0.0)
        return sorted(self.heap, reverse=True)

    @torch.no_grad()
    def logprobs(self, filled):
        mean = 0
        for index, weight in enumerate(self.weights):
            ids, position = self.ask(index, self.pattern, filled)
            mean = mean + weight * self.model(torch.tensor([ids])).logits[0, position]
            self.n_forwards += 1
        return torch.log_softmax(mean, dim=-1).numpy()

    def visit(self, filled, mtl):
        if len(filled) == len(self.pattern):
            self.push(filled, mtl)
            return
        logprobs = self.logprobs(filled)
        for token in np.argsort(-logprobs):
            value = min(mtl, float(logprobs[token]))
            is_hopeless = len(self.heap) == self.n_tuples and value < self.heap[0][0]
            if is_hopeless and (filled or self.prunes_first):
                return
            if self.starts[token] and not self.is_saturated((*filled, token)) and self.is_entity(filled, int(token)):
                if not filled and self.n_first == self.n_tuples:
                    return
                self.n_first += not filled
                self.visit((*filled, int(token)), value)

    def push(self, filled, mtl):
        if self.is_saturated(filled):
            return
        heapq.heappush(self.heap, (mtl, filled))
        self.repeats.update(filled)
        if len(self.heap) > self.n_tuples:
            self.repeats.subtract(heapq.heappop(self.heap)[1])

    def is_saturated(self, filled):
        return self.cap is not None and any(self.repeats[token] >= self.cap for token in filled)


@torch.no_grad()
def compatibility(model, ask, n_prompts, weights, ids, alpha=2 / 3):
    """Return the consistency of one tuple of token ids, with one forward pass per prompt and token."""
    pattern = tuple(len(entity) for entity in ids)
    total = 0.0
    for index in range(n_prompts):
        filled: tuple[int, ...] = ()
        logprobs = []
        for entity in ids:
            logprob = 0.0
            for token in entity:
                query, position = ask(index, pattern, filled)
                logits = model(torch.tensor([query])).logits[0, position]
                logprob += torch.log_softmax(logits, dim=-1)[token].item()
                filled = (*filled, token)
            logprobs.append(logprob)
        total += weights[index] * (alpha * sum(logprobs) + (1 - alpha) * min(logprobs))
    return total
