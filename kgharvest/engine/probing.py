"""LAMA-style probing: ranks of the correct objects given the subjects (Petroni et al. 2019).

The object of a fact must be a single token. Log-probabilities are over the whole vocabulary. A smaller candidate
vocabulary selects some of them without renormalization. A rank is one plus the number of candidates with larger scores.
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

MRR_DEPTH = 10_000  # worse ranks count as 0, as in LAMA


class Fact(NamedTuple):
    subject: str
    object: str


class EncodedFact(NamedTuple):
    """Token ids of a fact. head: the subject. tail: the single token of the object."""

    head: TokenIds
    tail: int


@dataclass(frozen=True)
class UsableFacts:
    """Distinct facts that an LM can be asked about, and the number of excluded facts for each reason."""

    facts: tuple[EncodedFact, ...]
    left_out: dict[str, int]

    def without(self, others: UsableFacts, reason: str) -> UsableFacts:
        """Exclude the facts in `others` and count them under `reason`."""
        held_out = set(others.facts)
        remaining = tuple(fact for fact in self.facts if fact not in held_out)
        n_left_out = len(self.facts) - len(remaining)
        return UsableFacts(remaining, self.left_out | {reason: n_left_out}) if n_left_out else self

    @property
    def heads(self) -> list[TokenIds]:
        return [fact.head for fact in self.facts]

    @property
    def tails(self) -> torch.Tensor:
        """Tokens of the objects, (N,)."""
        return torch.tensor([fact.tail for fact in self.facts], dtype=torch.long)


def reasons_text(left_out: Mapping[str, int]) -> str:
    """Return the reasons and counts of excluded facts as a phrase, or "" if there are none."""
    return ", ".join(f"{n} {reason}" for reason, n in left_out.items())


class Answerer(Protocol):
    """A trained prompt system."""

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        """Yield (B, V) in the order of `heads`: log P(tail | head), or another score, for every token."""


@dataclass(frozen=True)
class ProbeScores:
    """ranks: (N,), 1 is best. logprobs: (N,), log-probabilities of the correct objects in nats."""

    ranks: NDArray[np.int64]
    logprobs: NDArray[np.float64]

    @property
    def n(self) -> int:
        return len(self.ranks)

    @property
    def mrr(self) -> float | None:
        """Mean reciprocal rank. None if there are no facts."""
        return mean(np.where(self.ranks <= MRR_DEPTH, 1 / self.ranks, 0.0))

    @property
    def nll(self) -> float | None:
        """Mean negative log-likelihood in nats. None if there are no facts."""
        return mean(-self.logprobs)

    def precision_at(self, k: int) -> float | None:
        """Return the share of facts with a rank of at most `k`, or None if there are no facts."""
        return mean(self.ranks <= k)


def mean(values: NDArray[np.generic]) -> float | None:
    return float(values.mean()) if len(values) else None


def usable_facts(lm: LanguageModel, facts: Sequence[Fact], vocabulary: Sequence[int] | None = None) -> UsableFacts:
    """Return the distinct facts whose object is one token, which must be in `vocabulary` if it is given."""
    left_out: Counter[str] = Counter()
    allowed = None if vocabulary is None else set(vocabulary)
    usable: dict[EncodedFact, None] = {}
    for fact in dict.fromkeys(facts):
        try:
            head, tail = lm.encode_entity(fact.subject), lm.encode_entity(fact.object)
        except BadSeed:
            left_out["not in the LM's vocabulary"] += 1
            continue
        if len(head) > lm.max_tokens // 2:
            left_out["subject longer than half of the LM's context"] += 1
        elif len(tail) > 1:
            left_out["object of several tokens"] += 1
        elif allowed is not None and tail[0] not in allowed:
            left_out["object outside the common vocabulary"] += 1
        else:
            usable[EncodedFact(head, tail[0])] = None
    return UsableFacts(tuple(usable), dict(left_out))


def common_words(lms: Sequence[LanguageModel], among: Collection[str] | None = None) -> list[str]:
    """Return the sorted words that every LM writes as one token: LAMA's common vocabulary.

    Words contain a letter and are not special tokens or word pieces. For an uncased LM, only the lower-case form of a
    word must be one token. among: candidate words; None: all words of any of the LMs.
    """
    candidates = {word for lm in lms for word in words_of(lm)} if among is None else set(among)
    return sorted(word for word in candidates if all(token_of(lm, word) is not None for lm in lms))


def words_of(lm: LanguageModel) -> Iterator[str]:
    """Yield the words that `lm` writes as one token."""
    starts = [(int(token),) for token in np.flatnonzero(lm.starts_entity)]
    return (word for word in lm.canonical_texts(starts) if word and any(map(str.isalpha, word)))


def token_of(lm: LanguageModel, word: str) -> int | None:
    """Return the token of `word`, or None if `lm` needs several tokens or cannot write it."""
    try:
        ids = lm.encode_entity(word)
    except BadSeed:
        return None
    return ids[0] if len(ids) == 1 and lm.starts_entity[ids[0]] else None


def probe(
    answerer: Answerer, facts: UsableFacts, vocabulary: Sequence[int] | None = None, tick: Tick = lambda: None
) -> ProbeScores:
    """Return the ranks of the correct objects among `vocabulary` (None: the whole vocabulary of the LM).

    Scores are converted to log-probabilities with a softmax over the whole vocabulary.
    """
    ranks, logprobs, n_scored = [np.zeros(0, dtype=np.int64)], [np.zeros(0)], 0
    for scores in answerer.scores(facts.heads, tick) if facts.facts else ():
        tails = facts.tails[n_scored : n_scored + len(scores)].to(scores.device)
        ranks.append(ranks_of(scores, tails, vocabulary))
        logprobs.append(torch.log_softmax(scores, dim=1).gather(1, tails[:, None])[:, 0].double().cpu().numpy())
        n_scored += len(scores)
    return ProbeScores(np.concatenate(ranks), np.concatenate(logprobs))


def ranks_of(scores: torch.Tensor, tails: torch.Tensor, vocabulary: Sequence[int] | None = None) -> NDArray[np.int64]:
    """Return (B,): one plus the number of tokens in `vocabulary` with a score (B, V) above that of `tails`."""
    right = scores.gather(1, tails[:, None])  # (B, 1)
    among = scores if vocabulary is None else scores[:, torch.tensor(list(vocabulary), device=scores.device)]
    ranks: NDArray[np.int64] = (1 + (among > right).sum(dim=1)).cpu().numpy()
    return ranks


class Majority:
    """Baseline without subjects: ranks objects by their frequency in the training facts.

    Ties are ordered by first occurrence. All objects that never occur share the next rank.
    """

    def __init__(self, train: UsableFacts, vocab_size: int) -> None:
        counts = torch.full((vocab_size,), 1e-6, dtype=torch.float64)
        for order, (tail, n) in enumerate(Counter(fact.tail for fact in train.facts).most_common()):
            counts[tail] += n - 1e-9 * order
        self._logprobs = (counts / counts.sum()).log()

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        yield self._logprobs.expand(len(heads), -1)
