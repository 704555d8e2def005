"""Soft prompts: words of existing prompts as trainable vectors, and trainable prompt weights (Qin & Eisner 2021)."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.masked import MaskFillingLM, SoftWords
from kgharvest.engine.probing import UsableFacts, probe
from kgharvest.engine.prompt_learning.objectives import (
    Example,
    HeadLikelihood,
    Likelihood,
    TokenLikelihoods,
    differentiable_scores,
)
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer
from kgharvest.engine.scoring import Encoded
from kgharvest.engine.types import EngineError, OnProgress, Progress, ignore


@dataclass(frozen=True)
class SoftPromptParams:
    """Training parameters.

    site: the tensors to learn: the vectors of the soft words ("word"), a change to them after the first normalization
        ("hidden0"), or the vectors and a change at every level ("deep", as in the paper).
    learned: whether to learn both these tensors and the prompt weights, or only one of the two (the paper's ablation).
    is_data_dependent: if true, a prompt has a larger weight for heads that are likely in it.
    batch_size: facts per batch, each in every prompt. patience: number of epochs without a better dev score after which
        training ends.
    """

    site: Literal["word", "hidden0", "deep"] = "word"
    learned: Literal["both", "weights", "vectors"] = "both"
    is_data_dependent: bool = False
    learning_rate: float = 1e-3
    batch_size: int = 64
    epochs: int = 16
    patience: int = 4
    seed: int = 0


@dataclass(frozen=True)
class LearnedSoftPrompts:
    """Learned prompts. history: P@1 and mean log-likelihood (nats) on dev, at the start and after each epoch."""

    prompt_set: PromptSet
    history: tuple[tuple[float, float], ...]
    n_parameters: int


def soften(lm: MaskFillingLM, prompts: Sequence[EncodedPrompt]) -> tuple[list[EncodedPrompt], torch.Tensor]:
    """Replace all tokens except special tokens with soft words. Return the prompts and the tokens' vectors (S, d)."""
    words: list[int] = []

    def softened(token: int) -> int:
        if not lm.continues_entity[token]:
            return token
        words.append(token)
        return lm.vocab_size + len(words) - 1

    segments = [tuple(tuple(map(softened, ids)) for ids in prompt.segments) for prompt in prompts]
    if not words:
        raise EngineError("The prompts contain no words to learn. Add a prompt with words between its slots.")
    soft = [EncodedPrompt(ids, prompt.slots) for ids, prompt in zip(segments, prompts, strict=True)]
    return soft, lm.word_embeddings[words].float().clone()


def random_vectors(lm: MaskFillingLM, n: int, seed: int) -> torch.Tensor:
    """Return (n, d), drawn from a normal distribution with the mean and standard deviation of the word embeddings."""
    words = lm.word_embeddings.float()
    noise = torch.randn(n, words.shape[1], generator=torch.Generator().manual_seed(seed)).to(words.device)
    return words.mean(dim=0) + noise * words.std(dim=0)


def learn_soft_prompts(
    lm: MaskFillingLM,
    prompts: Sequence[EncodedPrompt],
    vectors: torch.Tensor,
    train: UsableFacts,
    dev: UsableFacts,
    params: SoftPromptParams,
) -> LearnedSoftPrompts:
    """Return the soft prompts with the best P@1 on dev. The initial prompts are candidates as well.

    Ties are broken by likelihood. `prompts` come from `soften`, `vectors` (S, d) from `soften` or `random_vectors`.
    Training maximizes the likelihood of the training facts under the mixture of the prompts. Raises EngineError if
    there are no training facts or no dev facts.
    """
    if not train.facts or not dev.facts:
        raise EngineError("Soft prompts require at least one training fact and one dev fact.")
    learner = _Learner(lm, prompts, vectors, params)
    best = learner.prompt_set()
    history = [dev_score(lm, best, dev)]
    n_without_gain = 0
    rng = random.Random(params.seed)
    for _ in range(params.epochs):
        examples = [Example((fact.head,), (fact.tail,)) for fact in train.facts]
        rng.shuffle(examples)
        for start in range(0, len(examples), params.batch_size):
            learner.step(-learner.log_likelihoods(examples[start : start + params.batch_size]).mean())
        score = dev_score(lm, learner.prompt_set(), dev)
        n_without_gain += 1
        if score > max(history):
            best, n_without_gain = learner.prompt_set(), 0
        history.append(score)
        if n_without_gain >= params.patience:
            break
    return LearnedSoftPrompts(best, tuple(history), learner.n_parameters)


def learn_on_tuples(
    lm: MaskFillingLM,
    prompts: Sequence[EncodedPrompt],
    vectors: torch.Tensor,
    tuples: Sequence[Encoded],
    params: SoftPromptParams,
    on_progress: OnProgress = ignore,
) -> PromptSet:
    """Return the soft prompts whose mixture maximizes the token-by-token likelihood of whole `tuples`.

    The initial prompts are candidates as well. There is no dev set because a relation has few seed tuples.
    """
    learner = _Learner(lm, prompts, vectors, params)
    best, best_likelihood = learner.prompt_set(), -math.inf
    for epoch in range(params.epochs + 1):
        on_progress(Progress("soft prompts", epoch, params.epochs))
        likelihood = learner.tuple_log_likelihood(tuples)
        if likelihood.item() > best_likelihood:
            best, best_likelihood = learner.prompt_set(), likelihood.item()
        learner.step(-likelihood)
    return best


def dev_score(lm: MaskFillingLM, prompt_set: PromptSet, dev: UsableFacts) -> tuple[float, float]:
    scores = probe(PromptSetAnswerer(lm, prompt_set), dev)
    return scores.precision_at(1) or 0.0, -(scores.nll or 0.0)


class _Learner:
    def __init__(
        self, lm: MaskFillingLM, prompts: Sequence[EncodedPrompt], vectors: torch.Tensor, params: SoftPromptParams
    ) -> None:
        self._lm, self._prompts, self._params = lm, prompts, params
        learns_words, learns_weights = params.learned != "weights", params.learned != "vectors"
        self._vectors = vectors.clone().requires_grad_(learns_words and params.site != "hidden0")
        self._deltas = None
        if params.site != "word":
            shape = (len(vectors), 1 if params.site == "hidden0" else lm.n_levels, vectors.shape[1])
            self._deltas = torch.zeros(shape, device=vectors.device, requires_grad=learns_words)
        self._logits = torch.zeros(len(prompts), device=vectors.device, requires_grad=learns_weights)  # prompt weights
        self._log_temperature = torch.zeros((), device=vectors.device, requires_grad=params.is_data_dependent)
        tensors = (self._vectors, self._deltas, self._logits, self._log_temperature)
        self._learned = [tensor for tensor in tensors if tensor is not None and tensor.requires_grad]
        self._optimiser = torch.optim.Adam(self._learned, lr=params.learning_rate)
        self.n_parameters = sum(tensor.numel() for tensor in self._learned)

    def prompt_set(self) -> PromptSet:
        """Return a copy of the current state."""
        deltas = None if self._deltas is None else self._deltas.detach().clone()
        soft_words = SoftWords(self._vectors.detach().clone(), deltas)
        weights = tuple(self._logits.detach().softmax(0).tolist())
        temperature = math.exp(self._log_temperature.item()) if self._params.is_data_dependent else None
        return PromptSet(tuple(self._prompts), weights, "mixture", soft_words, temperature)

    def step(self, loss: torch.Tensor) -> None:
        for parameter, gradient in zip(self._learned, torch.autograd.grad(loss, self._learned), strict=True):
            parameter.grad = gradient
        self._optimiser.step()

    def log_likelihoods(self, examples: Sequence[Example]) -> torch.Tensor:
        """Return (B,): log sum_t p(t | r, x) p(y | t, x)."""
        reader = self._lm.with_soft_words(SoftWords(self._vectors, self._deltas))
        tails = differentiable_scores(reader, Likelihood(), self._prompts, examples)  # (K, B)
        log_weights = self._logits.log_softmax(0)[:, None]
        if self._params.is_data_dependent:
            heads = differentiable_scores(reader, HeadLikelihood(), self._prompts, examples)  # (K, B)
            log_weights = (log_weights + heads / self._log_temperature.exp()).log_softmax(0)
        return torch.logsumexp(tails + log_weights, dim=0)

    def tuple_log_likelihood(self, tuples: Sequence[Encoded]) -> torch.Tensor:
        """Return the mean, over the tokens of `tuples`, of log sum_t p(t | r) p(token | t, preceding tokens)."""
        reader = self._lm.with_soft_words(SoftWords(self._vectors, self._deltas))
        examples = [Example(entities) for entities in tuples]
        tokens = differentiable_scores(reader, TokenLikelihoods(), self._prompts, examples)  # (K, Q)
        return torch.logsumexp(tokens + self._logits.log_softmax(0)[:, None], dim=0).mean()
