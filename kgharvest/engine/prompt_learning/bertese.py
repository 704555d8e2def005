"""BERTese: a rewriter that learns to reword questions so that the LM answers them correctly (Haviv et al. 2021).

A single rewriter serves all relations. Its input is a question, which is a filled prompt with one mask. Its output is
one vector per token. The frozen LM reads the nearest words (as in the paper) or the vectors (as in the paper's code)
and answers at the mask.
"""

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from kgharvest.engine.language_models.base import EncodedPrompt, Query, Tick, TokenIds
from kgharvest.engine.language_models.batching import same_length_batches
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.types import EngineError

DISTANCES_AT_ONCE = 1 << 25  # distances between vectors and words; 128 MB


class AnsweredQuestion(NamedTuple):
    """A question with its correct token `tail`."""

    query: Query
    tail: int


@dataclass(frozen=True)
class BerteseParams:
    """Training parameters. The defaults suit small LMs and few facts.

    reads_words: True if the LM reads words (also in training), False if it reads vectors.
    distance_weight, mask_weight: lambda 1 and 2 of the losses; 0.3 and 0.5 in the paper.
    learning_rate, batch_size: 1e-5 and 64 in the paper, for BERT-base and 40,000 facts. If the LM reads words, a large
        rate or a small distance weight changes many words at once, mostly for the worse. Vectors allow larger rates.
    """

    reads_words: bool = True
    distance_weight: float = 3.0
    mask_weight: float = 0.5
    learning_rate: float = 3e-5
    batch_size: int = 16
    epochs: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Losses:
    """Training losses.

    answer: cross-entropy at the mask, in nats.
    distance: mean squared distance to the nearest word (f1).
    mask: negative of the largest mask share of all positions (f2), in [-1, 0).
    """

    answer: torch.Tensor
    distance: torch.Tensor
    mask: torch.Tensor


class Rewrites(NamedTuple):
    """Rewritten questions.

    embeddings: (B, T, d), input of the LM.
    words: (B, T), the words nearest to the rewriter's vectors. distances: (B, T), the squared distances to these words.
    mask_shares: (B, T), the share of the mask at each position. Each row sums to 1.
    """

    embeddings: torch.Tensor
    words: torch.Tensor
    distances: torch.Tensor
    mask_shares: torch.Tensor


class Rewriter(nn.Module):
    """A copy of the LM's layers. Its projected output is added to the word embeddings.

    The projection starts at zero, so an untrained rewriter returns every question unchanged. Special tokens at the
    start and end are never changed. reads_words: True if the LM reads words.
    """

    _words: torch.Tensor  # (V, d)

    def __init__(self, lm: MaskedLM, reads_words: bool = True) -> None:
        super().__init__()
        self._encoder = lm.trainable_encoder()
        shape = (lm.hidden_size, lm.word_embeddings.shape[1])  # different in ALBERT
        self.projection = nn.Parameter(torch.zeros(shape, device=lm.device))
        self.log_sharpness = nn.Parameter(torch.zeros((), device=lm.device))  # log beta
        self._n_kept = len(lm.tokens.prefix), len(lm.tokens.suffix)
        self.register_buffer("_words", lm.word_embeddings.float().detach())
        self._mask_id, self._reads_words = lm.mask_id, reads_words

    def forward(self, ids: torch.Tensor) -> Rewrites:
        """Rewrite `ids` (B, T), which start and end with special tokens."""
        words = self._words[ids]
        change = self._encoder(inputs_embeds=words).last_hidden_state.float() @ self.projection
        positions = torch.arange(ids.shape[1], device=ids.device)
        n_prefix, n_suffix = self._n_kept
        is_rewritten = (positions >= n_prefix) & (positions < ids.shape[1] - n_suffix)  # (T,)
        vectors = words + change * is_rewritten.float()[:, None]
        distances, nearest = nearest_words(vectors, self._words)
        to_mask = (vectors - self._words[self._mask_id]).square().sum(-1)
        mask_shares = torch.softmax(-self.log_sharpness.exp() * to_mask, dim=1)
        embeddings = straight_through(vectors, self._words[nearest]) if self._reads_words else vectors
        return Rewrites(embeddings, nearest, distances, mask_shares)


def nearest_words(vectors: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the squared distances of `vectors` (B, T, d) to the nearest of `words` (V, d), and the nearest tokens.

    Both have shape (B, T). The distances are differentiable in the vectors; the choice of the nearest word is not.
    """
    flat = vectors.detach().flatten(0, 1)
    norms = words.square().sum(1)
    at_once = max(1, DISTANCES_AT_ONCE // len(words))
    parts = [torch.addmm(norms, part, words.T, alpha=-2).argmin(1) for part in torch.split(flat, at_once)]
    nearest = torch.cat(parts).view(vectors.shape[:2])
    return (vectors - words[nearest]).square().sum(-1), nearest


def straight_through(soft: torch.Tensor, hard: torch.Tensor) -> torch.Tensor:
    """Return `hard`, with the gradient of `soft`."""
    return soft + (hard - soft).detach()


def losses(lm: MaskedLM, rewriter: Rewriter, ids: torch.Tensor, tails: torch.Tensor) -> Losses:
    """Return the losses of questions `ids` (B, T) with answers `tails` (B,)."""
    rewrites = rewriter(ids)
    logits = lm.project(lm.vectors_everywhere(rewrites.embeddings))  # (B, T, V)
    everywhere = tails[:, None].expand(ids.shape)
    answers = cross_entropy(logits.flatten(0, 1), everywhere.flatten(), reduction="none").view(ids.shape)
    position = one_hot(rewrites.mask_shares.argmax(1), ids.shape[1])
    return Losses(
        answer=(straight_through(rewrites.mask_shares, position.float()) * answers).sum(1).mean(),
        distance=rewrites.distances.mean(),
        mask=-rewrites.mask_shares.amax(1).mean(),
    )


@dataclass(frozen=True)
class LearnedRewriter:
    """history: P@1 on dev, at the start and after each epoch."""

    rewriter: Rewriter
    history: tuple[float, ...]

    @property
    def n_parameters(self) -> int:
        return sum(weights.numel() for weights in self.rewriter.parameters())


def learn_rewriter(
    lm: MaskedLM, train: Sequence[AnsweredQuestion], dev: Sequence[AnsweredQuestion], params: BerteseParams
) -> LearnedRewriter:
    """Return the best rewriter on dev. The candidates include the untrained one. Raises EngineError."""
    if not train or not dev:
        raise EngineError("A rewriter requires at least one training fact and one dev fact.")
    rewriter = Rewriter(lm, params.reads_words)
    best, history, rng = deepcopy(rewriter), [accuracy(lm, rewriter, dev)], random.Random(params.seed)
    optimiser = torch.optim.AdamW(rewriter.parameters(), lr=params.learning_rate)
    for _ in range(params.epochs):
        for batch in shuffled_batches(train, params.batch_size, rng):
            ids, tails = as_tensors(lm, batch)
            loss = losses(lm, rewriter, ids, tails)
            total = loss.answer + params.distance_weight * loss.distance + params.mask_weight * loss.mask
            weights = [weight for weight in rewriter.parameters() if weight.requires_grad]
            for weight, gradient in zip(weights, torch.autograd.grad(total, weights, allow_unused=True), strict=True):
                weight.grad = gradient
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
        history.append(accuracy(lm, rewriter, dev))
        if history[-1] > max(history[:-1]):
            best = deepcopy(rewriter)
    return LearnedRewriter(best.requires_grad_(False), tuple(history))


def shuffled_batches(
    questions: Sequence[AnsweredQuestion], batch_size: int, rng: random.Random
) -> list[list[AnsweredQuestion]]:
    """Return batches in random order. The questions in a batch have equal lengths."""
    order = rng.sample(range(len(questions)), len(questions))
    shuffled = [questions[index] for index in order]
    batches = list(same_length_batches([question.query for question in shuffled], batch_size, 1 << 30))
    rng.shuffle(batches)
    return [[shuffled[row] for row in rows] for rows in batches]


def as_tensors(lm: MaskedLM, batch: Sequence[AnsweredQuestion]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids (B, T) and tails (B,)."""
    ids = torch.tensor([question.query.ids for question in batch], device=lm.device)
    return ids, torch.tensor([question.tail for question in batch], device=lm.device)


@torch.no_grad()
def accuracy(lm: MaskedLM, rewriter: Rewriter, questions: Sequence[AnsweredQuestion]) -> float:
    n_correct = 0
    for batch in shuffled_batches(questions, 256, random.Random(0)):
        ids, tails = as_tensors(lm, batch)
        n_correct += int((lm.logits(mask_vectors(lm, rewriter(ids))).argmax(1) == tails).sum())
    return n_correct / len(questions)


def mask_vectors(lm: MaskedLM, rewrites: Rewrites) -> torch.Tensor:
    """Return (B, d'), the input of `lm.logits` at the position with the largest mask share."""
    vectors = lm.vectors_everywhere(rewrites.embeddings)
    return vectors[torch.arange(len(vectors), device=vectors.device), rewrites.mask_shares.argmax(1)]


@dataclass(frozen=True)
class BerteseAnswerer:
    """Answerer that fills a prompt and lets the rewriter reword the resulting questions."""

    lm: MaskedLM
    rewriter: Rewriter
    prompt: EncodedPrompt
    batch_size: int = 256

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        """Yield (B, V), in the order of `heads`: log P(tail | head) in nats."""
        queries = [self.lm.query(self.prompt, (len(head), 1), head) for head in heads]
        vectors = torch.empty(len(queries), self.lm.output_embeddings.shape[1], device=self.lm.device)
        for rows in same_length_batches(queries, self.batch_size, 1 << 30):
            with torch.no_grad():
                ids = torch.tensor([queries[row].ids for row in rows], device=self.lm.device)
                vectors[rows] = mask_vectors(self.lm, self.rewriter(ids)).float()
            tick()
        for part in torch.split(vectors, rows_at_once(self.lm, vectors)):
            yield torch.log_softmax(self.lm.logits(part), dim=-1)
            tick()


@torch.no_grad()
def rewritten(lm: MaskedLM, rewriter: Rewriter, queries: Sequence[Query]) -> list[tuple[str, str]]:
    """Return each question and its rewrite as readable text."""
    texts = lm.tokens.texts()
    frame = set(lm.tokens.prefix) | set(lm.tokens.suffix)

    def text(ids: Sequence[int]) -> str:
        return " ".join("[MASK]" if token == lm.mask_id else texts[token] for token in ids if token not in frame)

    return [
        (text(query.ids), text(rewriter(torch.tensor([query.ids], device=lm.device)).words[0].tolist()))
        for query in queries
    ]
