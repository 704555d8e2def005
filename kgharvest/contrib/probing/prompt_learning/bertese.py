"""BERTese: a rewriter that learns to reword questions so that the LM answers them correctly (Haviv et al. 2021).

A single rewriter serves all relations. Its input is a question, which is a filled prompt with one mask. Its output is
one vector per token. The frozen LM reads the nearest words (as in the paper) or the vectors (as in the paper's code)
and answers at the mask.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from kgharvest.engine.language_models.base import EncodedPrompt, Query, Tick, TokenIds
from kgharvest.engine.language_models.batching import same_length_batches
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import EncodedFact
from kgharvest.engine.prompt_learning.training import TrainingParams, train_best
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.types import EngineError

DISTANCES_AT_ONCE = 1 << 25  # distances between vectors and words computed at a time; 128 MB


class AnsweredQuestion(NamedTuple):
    """A question with its correct token `tail`."""

    query: Query
    tail: int


@dataclass(frozen=True)
class BerteseParams(TrainingParams):
    """Training parameters. The defaults suit small LMs and few facts.

    reads_words: True if the LM reads words (also in training), False if it reads vectors.
    distance_weight, mask_weight: lambda 1 and 2 of the losses; 0.3 and 0.5 in the paper.
    learning_rate, batch_size: 1e-5 and 64 in the paper, for BERT-base and 40,000 facts. If the LM reads words, a large
        rate or a small distance weight changes many words at once, mostly for the worse. Vectors allow larger rates.
    """

    learning_rate: float = 3e-5
    reads_words: bool = True
    distance_weight: float = 3.0
    mask_weight: float = 0.5


@dataclass(frozen=True)
class Losses:
    """Training losses.

    answer: cross-entropy at the mask, in nats.
    distance: mean squared distance to the nearest word (f1).
    mask: negative of the largest mask share in a question (f2; see Rewrites), in [-1, 0).
    """

    answer: torch.Tensor
    distance: torch.Tensor
    mask: torch.Tensor


class Rewrites(NamedTuple):
    """Rewritten questions.

    embeddings: (B, T, d), input of the LM.
    words: (B, T), the words nearest to the rewriter's vectors. distances: (B, T), the squared distances to these words.
    mask_shares: (B, T), closeness of each position's vector to the mask token, as shares that sum to 1 per question.
    """

    embeddings: torch.Tensor
    words: torch.Tensor
    distances: torch.Tensor
    mask_shares: torch.Tensor


class Rewriter(nn.Module):
    """A copy of all layers of the LM. Its projected output is added to the word embeddings.

    The projection starts at zero, so an untrained rewriter returns every question unchanged. Special tokens at the
    start and end are never changed. reads_words: True if the LM reads words.
    """

    _words: torch.Tensor  # (V, d)

    def __init__(self, lm: MaskedLM, reads_words: bool = True) -> None:
        super().__init__()
        self._encoder = lm.trainable_encoder()
        shape = (lm.hidden_size, lm.word_embeddings.shape[1])  # the two sizes differ in ALBERT
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

    def loss(batch: list[AnsweredQuestion]) -> torch.Tensor:
        parts = losses(lm, rewriter, *as_tensors(lm, batch))
        return parts.answer + params.distance_weight * parts.distance + params.mask_weight * parts.mask

    history = train_best(
        list(rewriter.parameters()),
        lambda rng: shuffled_batches(train, params.batch_size, rng),
        loss,
        lambda: accuracy(lm, rewriter, dev),
        params,
    )
    return LearnedRewriter(rewriter.requires_grad_(False), history)


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


def accuracy(lm: MaskedLM, rewriter: Rewriter, questions: Sequence[AnsweredQuestion]) -> float:
    rewrites = rewritten(lm, rewriter, questions)
    return sum(rewrite.is_right for rewrite in rewrites) / len(rewrites)


def mask_vectors(lm: MaskedLM, rewrites: Rewrites) -> torch.Tensor:
    """Return (B, d'), the input of `lm.logits` at the position with the largest mask share."""
    vectors = lm.vectors_everywhere(rewrites.embeddings)
    return vectors[torch.arange(len(vectors), device=vectors.device), rewrites.mask_shares.argmax(1)]


def question_about(lm: MaskedLM, prompt: EncodedPrompt, head: TokenIds) -> Query:
    return lm.query(prompt, (len(head), 1), head)


def questions(lm: MaskedLM, prompt: EncodedPrompt, facts: Sequence[EncodedFact]) -> list[AnsweredQuestion]:
    """Return the facts as questions in `prompt`."""
    return [AnsweredQuestion(question_about(lm, prompt, fact.head), fact.tail) for fact in facts]


@dataclass(frozen=True)
class BerteseAnswerer:
    """Answerer that fills a prompt and lets the rewriter reword the resulting questions."""

    lm: MaskedLM
    rewriter: Rewriter
    prompt: EncodedPrompt
    batch_size: int = 256

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        """Yield (B, V), in the order of `heads`: log P(tail | head) in nats."""
        queries = [question_about(self.lm, self.prompt, head) for head in heads]
        vectors = torch.empty(len(queries), self.lm.output_embeddings.shape[1], device=self.lm.device)
        for rows in same_length_batches(queries, self.batch_size, 1 << 30):
            with torch.no_grad():
                ids = torch.tensor([queries[row].ids for row in rows], device=self.lm.device)
                vectors[rows] = mask_vectors(self.lm, self.rewriter(ids)).float()
            tick()
        for part in torch.split(vectors, rows_at_once(self.lm, vectors)):
            yield torch.log_softmax(self.lm.logits(part), dim=-1)
            tick()


class Rewrite(NamedTuple):
    """Token texts of a question before and after rewriting, without special tokens at the start and end.

    is_right: True if the LM answers the rewritten question correctly.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    is_right: bool


@torch.no_grad()
def rewritten(lm: MaskedLM, rewriter: Rewriter, questions: Sequence[AnsweredQuestion]) -> list[Rewrite]:
    """Return the rewrites of the questions, in order."""
    frame, texts = slice(len(lm.tokens.prefix), -len(lm.tokens.suffix) or None), lm.tokens.texts()
    texts[lm.mask_id] = "[MASK]"
    rewrites: dict[int, Rewrite] = {}
    for rows in same_length_batches([question.query for question in questions], 256, 1 << 30):
        ids, tails = as_tensors(lm, [questions[row] for row in rows])
        output = rewriter(ids)
        is_right = lm.logits(mask_vectors(lm, output)).argmax(1) == tails
        columns = ids[:, frame].tolist(), output.words[:, frame].tolist(), is_right.tolist()
        for row, before, after, right in zip(rows, *columns, strict=True):
            before, after = (tuple(texts[token] for token in side) for side in (before, after))
            rewrites[row] = Rewrite(before, after, right)
    return [rewrites[row] for row in range(len(questions))]
