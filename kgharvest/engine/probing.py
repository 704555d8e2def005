"""LAMA-style probing: where does an LM rank the right object, given the subject (Petroni et al. 2019)?

The protocol: facts whose object is one token of the LM; log-probabilities over the whole vocabulary, of which a smaller
one may select entries without renormalising; a rank is one more than the number of candidates with a larger score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import LanguageModel, Tick, TokenIds
from kgharvest.engine.types import BadSeed

MRR_DEPTH = 10_000  # a rank beyond it counts 0, as in LAMA


class Fact(NamedTuple):
    subject: str
    object: str


class EncodedFact(NamedTuple):
    """head: the subject's tokens. tail: the object's one token."""

    head: TokenIds
    tail: int


@dataclass(frozen=True)
class UsableFacts:
    """The facts that an LM can be asked for, each once, and how many were left out, by reason."""

    facts: tuple[EncodedFact, ...]
    left_out: dict[str, int]

    def without(self, others: UsableFacts, reason: str) -> UsableFacts:
        """Leave out, for `reason`, the facts that `others` have."""
        held_out = set(others.facts)
        kept = tuple(fact for fact in self.facts if fact not in held_out)
        n_left_out = len(self.facts) - len(kept)
        return UsableFacts(kept, self.left_out | {reason: n_left_out}) if n_left_out else self

    @property
    def heads(self) -> list[TokenIds]:
        return [fact.head for fact in self.facts]

    @property
    def tails(self) -> torch.Tensor:
        """(N,)"""
        return torch.tensor([fact.tail for fact in self.facts], dtype=torch.long)


def reasons_text(left_out: Mapping[str, int]) -> str:
    """Return why facts were left out, as a phrase; empty if none was."""
    return ", ".join(f"{n} {reason}" for reason, n in left_out.items())


class Answerer(Protocol):
    """What a prompt system becomes once it has learned."""

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        """Yield (B, V), in the order of `heads`: log P(tail | head), or a score, for every token of the vocabulary."""


@dataclass(frozen=True)
class ProbeScores:
    """ranks: (N,), 1 is best. logprobs: (N,), of the right objects, in nats."""

    ranks: NDArray[np.int64]
    logprobs: NDArray[np.float64]

    @property
    def n(self) -> int:
        return len(self.ranks)

    @property
    def mrr(self) -> float | None:
        """Mean of 1 / rank, None without facts."""
        return mean(np.where(self.ranks <= MRR_DEPTH, 1 / self.ranks, 0.0))

    @property
    def nll(self) -> float | None:
        """Mean negative log-likelihood in nats, None without facts."""
        return mean(-self.logprobs)

    def precision_at(self, k: int) -> float | None:
        """Share of facts with the right object among the best `k`, None without facts."""
        return mean(self.ranks <= k)


def mean(values: NDArray[np.generic]) -> float | None:
    return float(values.mean()) if len(values) else None


def usable_facts(lm: LanguageModel, facts: Sequence[Fact], vocabulary: Sequence[int] | None = None) -> UsableFacts:
    """Return what of `facts` the protocol keeps: distinct ones, objects of one token of `vocabulary`."""
    left_out: Counter[str] = Counter()
    allowed = None if vocabulary is None else set(vocabulary)
    kept: dict[EncodedFact, None] = {}
    for fact in dict.fromkeys(facts):
        try:
            head, tail = lm.encode_entity(fact.subject), lm.encode_entity(fact.object)
        except BadSeed:
            left_out["not in the LM's vocabulary"] += 1
            continue
        if len(head) > lm.max_tokens // 2:
            left_out["subject longer than half of what the LM takes"] += 1
        elif len(tail) > 1:
            left_out["object of several tokens"] += 1
        elif allowed is not None and tail[0] not in allowed:
            left_out["object outside the common vocabulary"] += 1
        else:
            kept[EncodedFact(head, tail[0])] = None
    return UsableFacts(tuple(kept), dict(left_out))


def common_words(lms: Sequence[LanguageModel], among: Collection[str] | None = None) -> list[str]:
    """Return the words, sorted, that each of `lms` writes as one token: LAMA's common vocabulary.

    Words have a letter; special tokens and pieces from inside words are none. Of an uncased LM a word in any casing is
    one token if it is so in lower case. among: which words may be common, None being all that any of the LMs has.
    """
    candidates = {word for lm in lms for word in words_of(lm)} if among is None else set(among)
    return sorted(word for word in candidates if all(token_of(lm, word) is not None for lm in lms))


def words_of(lm: LanguageModel) -> Iterator[str]:
    """Yield the words that `lm` writes as one token."""
    starts = [(int(token),) for token in np.flatnonzero(lm.starts_entity)]
    return (word for word in lm.canonical_texts(starts) if word and any(map(str.isalpha, word)))


def token_of(lm: LanguageModel, word: str) -> int | None:
    """Return the one token that `word` is for `lm`, None if it is several or cannot be written."""
    try:
        ids = lm.encode_entity(word)
    except BadSeed:
        return None
    return ids[0] if len(ids) == 1 and lm.starts_entity[ids[0]] else None


def probe(
    answerer: Answerer, facts: UsableFacts, vocabulary: Sequence[int] | None = None, tick: Tick = lambda: None
) -> ProbeScores:
    """Return where `answerer` ranks the right objects among `vocabulary`, None being the LM's whole one.

    Scores that are no log-probabilities become some, over the whole vocabulary.
    """
    ranks, logprobs, done = [np.zeros(0, dtype=np.int64)], [np.zeros(0)], 0
    for scores in answerer.scores(facts.heads, tick) if facts.facts else ():
        tails = facts.tails[done : done + len(scores)].to(scores.device)
        ranks.append(ranks_of(scores, tails, vocabulary))
        logprobs.append(torch.log_softmax(scores, dim=1).gather(1, tails[:, None])[:, 0].double().cpu().numpy())
        done += len(scores)
    return ProbeScores(np.concatenate(ranks), np.concatenate(logprobs))


def ranks_of(scores: torch.Tensor, tails: torch.Tensor, vocabulary: Sequence[int] | None = None) -> NDArray[np.int64]:
    """Return (B,): one more than the number of tokens of `vocabulary` whose score (B, V) exceeds the one of `tails`."""
    right = scores.gather(1, tails[:, None])  # (B, 1)
    among = scores if vocabulary is None else scores[:, torch.tensor(list(vocabulary), device=scores.device)]
    ranks: NDArray[np.int64] = (1 + (among > right).sum(dim=1)).cpu().numpy()
    return ranks


class Majority:
    """The baseline that knows no subject: objects by how often they occur in the training facts.

    Ties go to the object that occurs first; objects that never occur share the rank after the last of those that do.
    """

    def __init__(self, train: UsableFacts, vocab_size: int) -> None:
        counts = torch.full((vocab_size,), 1e-6, dtype=torch.float64)
        for order, (tail, n) in enumerate(Counter(fact.tail for fact in train.facts).most_common()):
            counts[tail] += n - 1e-9 * order
        self._logprobs = (counts / counts.sum()).log()

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        yield self._logprobs.expand(len(heads), -1)
