"""LPAQA: selection and weighting of existing prompts (Jiang et al. 2020, section 4)."""

from collections.abc import Sequence
from itertools import accumulate, chain

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, Tick, TokenIds
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.probing import UsableFacts, probe, reasons_text
from kgharvest.engine.prompt_learning.objectives import Question, step_by_step
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer, prompt_vectors, uniform
from kgharvest.engine.types import EngineError

LEARNING_RATE = 0.1
BATCH_SIZE = 256
TUPLES_AT_ONCE = 64  # limits the memory of their vectors
MAX_EPOCHS = 500
PATIENCE, LEAST_GAIN = 30, 1e-3  # stop after PATIENCE epochs in which the loss falls by less than LEAST_GAIN nats


def ranked_by_accuracy(
    lm: PretrainedLM, prompts: Sequence[EncodedPrompt], train: UsableFacts
) -> list[tuple[float, EncodedPrompt]]:
    """Return pairs (P@1 on the training facts, prompt), best first. Ties are ordered by likelihood."""
    check_trainable(train)
    scores = [probe(PromptSetAnswerer(lm, uniform([prompt])), train) for prompt in prompts]
    order = sorted(
        range(len(prompts)), key=lambda index: (scores[index].precision_at(1), -(scores[index].nll or 0)), reverse=True
    )
    return [(scores[index].precision_at(1) or 0.0, prompts[index]) for index in order]


def top1(lm: PretrainedLM, prompts: Sequence[EncodedPrompt], train: UsableFacts) -> PromptSet:
    """Return the prompt with the largest P@1 on the training facts."""
    return uniform([ranked_by_accuracy(lm, prompts, train)[0][1]])


def rank_ensemble(lm: PretrainedLM, prompts: Sequence[EncodedPrompt], train: UsableFacts, n_prompts: int) -> PromptSet:
    """Return the `n_prompts` most accurate prompts, combined by averaging their log-probabilities."""
    best = [prompt for _, prompt in ranked_by_accuracy(lm, prompts, train)[:n_prompts]]
    return uniform(best, "mean_score")


def optimised_ensemble(
    lm: PretrainedLM, prompts: Sequence[EncodedPrompt], train: UsableFacts, learning_rate: float = LEARNING_RATE
) -> PromptSet:
    """Return all prompts, weighted to maximize the likelihood of the training facts under the product of experts."""
    check_trainable(train)
    vectors = prompt_vectors(lm, prompts, train.heads, BATCH_SIZE, lambda: None)
    weights = optimised_weights(lm, vectors, train.tails, learning_rate=learning_rate)
    return PromptSet(tuple(prompts), weights, "product")


def question_vectors(
    lm: PretrainedLM, questions: Sequence[Sequence[Question]], batch_size: int, tick: Tick
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs (Q, K, d) of `lm.project` and the target tokens (Q,). questions: (K, Q), by prompt."""
    queries = [question.query for same_step in zip(*questions, strict=True) for question in same_step]
    vectors = lm.vectors(queries, batch_size, tick)
    targets = torch.tensor([question.targets[0] for question in questions[0]])
    return vectors.view(len(targets), len(questions), -1), targets


def tail_questions(lm: PretrainedLM, prompt: EncodedPrompt, entities: Sequence[TokenIds]) -> list[Question]:
    """Return a question for every token of the last entity, given the other entities."""
    parts = [ids + lm.entity_end for ids in entities]
    return step_by_step(lm, prompt, parts, tuple(map(len, entities)))[-len(parts[-1]) :]


def tail_ensemble(
    lm: PretrainedLM, prompts: Sequence[EncodedPrompt], train: Sequence[Sequence[TokenIds]], tick: Tick
) -> PromptSet:
    """Return the prompts, weighted to maximize the likelihood of the last entities of `train`, given the others."""
    questions = [[part for entities in train for part in tail_questions(lm, prompt, entities)] for prompt in prompts]
    return PromptSet(tuple(prompts), optimised_weights(lm, *question_vectors(lm, questions, BATCH_SIZE, tick), tick))


def tail_logprobs(
    lm: PretrainedLM, prompt_set: PromptSet, tuples: Sequence[Sequence[TokenIds]], tick: Tick
) -> NDArray[np.float64]:
    """Return log P(last entity | other entities), (E,), in nats, under the weighted product of the prompts."""
    sums = [np.zeros(0)]
    for start in range(0, len(tuples), TUPLES_AT_ONCE):
        part = tuples[start : start + TUPLES_AT_ONCE]
        asked = [[tail_questions(lm, prompt, entities) for entities in part] for prompt in prompt_set.prompts]
        vectors, targets = question_vectors(
            lm, [[*chain.from_iterable(by_tuple)] for by_tuple in asked], BATCH_SIZE, tick
        )
        weights = torch.tensor(prompt_set.weights, device=vectors.device)
        starts = [0, *accumulate(map(len, asked[0]))][:-1]
        logprobs = product_logprobs(lm, vectors, weights, targets).double().cpu().numpy()
        sums.append(np.add.reduceat(logprobs, starts))
    return np.concatenate(sums)


def optimised_weights(
    lm: PretrainedLM,
    vectors: torch.Tensor,
    targets: torch.Tensor,
    tick: Tick = lambda: None,
    learning_rate: float = LEARNING_RATE,
) -> tuple[float, ...]:
    """Return the weights (K,) that maximize the likelihood of `targets` (N,) for the prompts' `vectors` (N, K, d).

    The loss is convex in the weights, so the result does not depend on the start. The product is normalized over the
    whole vocabulary. Without normalization, the loss would be linear in the weights and would select a single prompt.
    """
    vectors = vectors.clone()  # inference-mode tensors do not support gradients
    theta = torch.zeros(vectors.shape[1], device=vectors.device, requires_grad=True)
    optimiser = torch.optim.Adam([theta], lr=learning_rate)
    min_loss, best, n_without_gain = float("inf"), theta.detach().softmax(0), 0
    for _ in range(MAX_EPOCHS):
        loss = product_nll(lm, vectors, theta.softmax(0), targets)
        n_without_gain = 0 if loss.item() < min_loss - LEAST_GAIN else n_without_gain + 1
        if loss.item() < min_loss:
            min_loss, best = loss.item(), theta.detach().softmax(0)
        if n_without_gain > PATIENCE:
            break
        theta.grad = torch.autograd.grad(loss, theta)[0]
        optimiser.step()
        tick()
    return tuple(best.tolist())


def product_nll(lm: PretrainedLM, vectors: torch.Tensor, weights: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
    """Return the mean negative log-likelihood, in nats, of `tails` (N,) under the product of the prompts."""
    return -product_logprobs(lm, vectors, weights, tails).mean()


def product_logprobs(
    lm: PretrainedLM, vectors: torch.Tensor, weights: torch.Tensor, tails: torch.Tensor
) -> torch.Tensor:
    """Return the log-probabilities (N,) of `tails` (N,), in nats, under the product of the prompts.

    If the LM head is affine, projecting the weighted mean of `vectors` (N, K, d) gives the product of the K experts.
    """
    if lm.is_affine:
        logits = lm.project(torch.einsum("nkd,k->nd", vectors, weights))  # (N, V)
    else:
        logits = torch.einsum("nkv,k->nv", lm.project(vectors), weights)
    return -torch.nn.functional.cross_entropy(logits, tails.to(logits.device), reduction="none")


def check_trainable(train: UsableFacts) -> None:
    """Raise EngineError if there are no training facts."""
    if not train.facts:
        reasons = reasons_text(train.left_out) or "no facts"
        raise EngineError(
            f"No training fact is usable with this LM ({reasons}). "
            "Add facts with objects that are single tokens of the LM, or use the manual prompt."
        )
