"""Re-scoring: the consistency of candidates (BertNet, Eq. 1 and 2), each in its most consistent casing.

Branch and bound over the casings of a candidate. Log-probabilities are never positive, so by Eq. 1 a tuple is at most
as compatible as its first tokens are. The consistency of the tokens read so far is therefore an upper bound for the
casing. A casing is read on, token by token, only while no other casing of the candidate has a larger bound. The first
complete casing with the largest bound is the most consistent one.

All tuples start with the same prefix, which contains no token. With this one prefix per token-count pattern, the LM
bounds every casing of every candidate. Likewise, tuples with a common head share the prefixes up to the tail.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, product
from string import capwords

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.entities import Entity
from kgharvest.engine.filters import is_writable
from kgharvest.engine.language_models.base import (
    EncodedPrompt,
    GivesLogprobs,
    LanguageModel,
    Pattern,
    Tick,
    TokenIds,
    filled_tokens,
    fits,
)
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.scoring import Encoded, Questions, compatibility, consistency
from kgharvest.engine.search import Candidate, Report
from kgharvest.engine.types import BadSeed, HarvestParams, ScoredTuple

# Candidates per part of a harvest at least, and at most in memory, except that tuples with a common head stay together.
# Each part reads the prefixes without tokens again.
MIN_TOGETHER, MAX_TOGETHER = 500, 2_000


def rescore(
    lm: LanguageModel,
    prompt_set: PromptSet,
    candidates: Sequence[Candidate],
    params: HarvestParams,
    report: Report,
    floor: float = -np.inf,
) -> list[ScoredTuple]:
    """Return the candidates with their consistency, each in its most consistent casing, in unspecified order.

    Candidates whose consistency is below `floor` can be missing.
    """
    scored: list[ScoredTuple] = []
    n_done = 0
    for together in with_common_heads(candidates, MAX_TOGETHER):

        def report_part(n: int, n_before: int = n_done) -> None:
            report(n_before + n)

        scored += Rescoring(lm, prompt_set, together, params, partial(report_part, 0)).run(report_part, floor)
        n_done += len(together)
    return scored


def with_common_heads(candidates: Iterable[Candidate], size: int) -> Iterator[list[Candidate]]:
    """Yield the candidates in alphabetical order, `size` or more at a time. Tuples with a common head stay together."""
    together: list[Candidate] = []
    in_order = sorted(candidates, key=lambda candidate: candidate.folded)
    for _, group in groupby(in_order, key=lambda candidate: candidate.folded[0]):
        together += group
        if len(together) >= size:
            yield together
            together = []
    if together:
        yield together


class Prefix:
    """The first tokens of some casings.

    next_tokens: the tokens that follow in these casings, with their rows in `logprobs`.
    logprobs: (T, P), log P(next token | prompt, prefix) in nats; None if the LM has not read the prefix.
    """

    __slots__ = ("logprobs", "next_tokens", "pattern", "tokens")

    def __init__(self, pattern: Pattern, tokens: TokenIds) -> None:
        self.pattern, self.tokens = pattern, tokens
        self.next_tokens: dict[int, int] = {}
        self.logprobs: NDArray[np.float64] | None = None


class Rescoring:
    """The casings of all candidates, numbered consecutively, and what the LM has read of each."""

    def __init__(
        self,
        lm: LanguageModel,
        prompt_set: PromptSet,
        candidates: Sequence[Candidate],
        params: HarvestParams,
        tick: Tick,
    ) -> None:
        self._lm, self._prompts, self._params, self._candidates = lm, prompt_set.prompts, params, candidates
        self._weights = np.array(prompt_set.weights)
        self._prefixes: dict[tuple[Pattern, TokenIds], Prefix] = {}
        self._surfaces: list[tuple[str, ...]] = []
        self._steps: list[list[tuple[Prefix, int, int]]] = []  # per token: prefix, row of the token, entity
        self._starts = [0]  # number of the first casing of each candidate, and the number of casings
        for candidate in candidates:
            for surface, ids in casings(lm, self._prompts, candidate):
                self._surfaces.append(surface)
                self._steps.append(self._steps_of(ids))
            self._starts.append(len(self._steps))
            tick()
        n_casings = len(self._steps)
        self._logprobs = np.zeros((n_casings, len(self._prompts), len(self._prompts[0].slots)))  # (C, P, n)
        self._n_read = [0] * n_casings
        self._bounds = np.zeros(n_casings)

    def run(self, report: Report, floor: float) -> list[ScoredTuple]:
        """Return the most consistent casing of each candidate whose bound stays above `floor`."""
        scored: list[ScoredTuple] = []
        tick = partial(report, 0)
        if isinstance(self._lm, GivesLogprobs):  # a server reads all prefixes of a tuple in one request
            self._read(list(self._prefixes.values()), tick)
        remaining = list(range(len(self._candidates)))
        while remaining:
            self._read_on(remaining)
            undecided: list[int] = []
            prefixes: dict[int, Prefix] = {}
            for number in remaining:
                start, end = self._starts[number : number + 2]
                best = start + int(self._bounds[start:end].argmax())  # ties: the first casing
                if self._n_read[best] == len(self._steps[best]):
                    candidate, score = self._candidates[number], float(self._bounds[best])
                    scored.append(ScoredTuple(candidate.folded, self._surfaces[best], score, candidate.mtl))
                elif self._bounds[best] >= floor:
                    undecided.append(number)
                    prefix = self._steps[best][self._n_read[best]][0]
                    prefixes[id(prefix)] = prefix
            remaining = undecided
            tick = partial(report, len(self._candidates) - len(remaining))
            self._read(list(prefixes.values()), tick)
            tick()
        return scored

    def _steps_of(self, ids: Encoded) -> list[tuple[Prefix, int, int]]:
        pattern, end = tuple(map(len, ids)), len(self._lm.entity_end)
        tokens = filled_tokens(self._lm, ids)
        entities = [entity for entity, length in enumerate(pattern) for _ in range(length + end)]
        visible = () if end else pattern  # an LM that ends entities itself does not see how many tokens are missing
        steps = []
        for n_before, (token, entity) in enumerate(zip(tokens, entities, strict=True)):
            key = visible, tokens[:n_before]
            prefix = self._prefixes.get(key)
            if prefix is None:
                prefix = self._prefixes[key] = Prefix(pattern, tokens[:n_before])
            row = prefix.next_tokens.setdefault(token, len(prefix.next_tokens))
            steps.append((prefix, row, entity))
        return steps

    def _read(self, prefixes: Sequence[Prefix], tick: Tick) -> None:
        """Let the LM read `prefixes`, those of equal length together."""
        in_order = sorted(prefixes, key=lambda prefix: sum(prefix.pattern))
        questions = Questions(self._lm, self._prompts)
        for prefix in in_order:
            for token in prefix.next_tokens:
                questions.ask(prefix.pattern, prefix.tokens, token)
        answers = questions.answer(self._params.batch_size, tick)  # (A, P)
        start = 0
        for prefix in in_order:
            prefix.logprobs = answers[start : start + len(prefix.next_tokens)]
            start += len(prefix.next_tokens)

    def _read_on(self, candidates: Iterable[int]) -> None:
        """Update the casings of `candidates` with all prefixes that the LM has read."""
        changed: list[int] = []
        for number in candidates:
            for casing in range(*self._starts[number : number + 2]):
                n_read = self._n_read[casing]
                for prefix, row, entity in self._steps[casing][n_read:]:
                    if prefix.logprobs is None:
                        break
                    self._logprobs[casing, :, entity] += prefix.logprobs[row]
                    n_read += 1
                if n_read > self._n_read[casing]:
                    self._n_read[casing] = n_read
                    changed.append(casing)
        fits_of_changed = compatibility(torch.from_numpy(self._logprobs[changed]), self._params.alpha).numpy()
        self._bounds[changed] = consistency(fits_of_changed, self._weights)


# Casings


def scorable(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], tuples: Sequence[Sequence[Entity]]
) -> list[Candidate]:
    """Return `tuples` as candidates, without tuples that `lm` cannot write or that are too long for a prompt."""
    encoded = [try_encode(lm, prompts, [entity.surface for entity in entities]) for entities in tuples]
    return [
        Candidate(tuple(map(len, ids)), entities=tuple(entities), is_complete=True)
        for entities, ids in zip(tuples, encoded, strict=True)
        if ids is not None
    ]


def casings(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], candidate: Candidate
) -> list[tuple[tuple[str, ...], Encoded]]:
    """Return the casings of the tuple that `lm` can write: the original, then lower-case and title-case variants."""
    original = (candidate.surface, tuple(lm.encode_entity(entity) for entity in candidate.surface))
    if not lm.is_cased:
        return [original]
    variants = list(product(*map(spellings, candidate.surface)))[1:]
    encoded = [(surface, try_encode(lm, prompts, surface)) for surface in variants]
    return [original, *((surface, ids) for surface, ids in encoded if ids is not None)]


def spellings(entity: str) -> list[str]:
    """Return the original, lower-case, and title-case spelling of `entity`.

    Omits spellings that are unwritable or case-fold to another entity. Example: the title case of both "ısı" and "isı"
    is "Isı".
    """
    cased = dict.fromkeys((entity, entity.lower(), capwords(entity)))
    return [spelling for spelling in cased if spelling.casefold() == entity.casefold() and is_writable(spelling)]


def try_encode(lm: LanguageModel, prompts: Sequence[EncodedPrompt], surface: Sequence[str]) -> Encoded | None:
    """Return the entity ids, or None if `lm` cannot write an entity or a prompt becomes too long."""
    try:
        encoded = tuple(lm.encode_entity(entity) for entity in surface)
    except BadSeed:
        return None
    pattern = tuple(map(len, encoded))
    return encoded if all(fits(lm, prompt, pattern) for prompt in prompts) else None
