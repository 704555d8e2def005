"""Training by gradient descent, with the choice of the best weights on dev."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class TrainingParams:
    """Parameters of AdamW. warmup: share of the steps with a rising rate, which then falls to 0; None: constant."""

    learning_rate: float = 2e-5
    batch_size: int = 16
    epochs: int = 5
    seed: int = 0
    warmup: float | None = None


def train_best(
    weights: Sequence[torch.Tensor],
    batches: Callable[[random.Random], Sequence[Batch]],
    loss: Callable[[Batch], torch.Tensor],
    dev_score: Callable[[], float],
    params: TrainingParams,
) -> tuple[float, ...]:
    """Train `weights` in place and leave the best ones on dev. The candidates include the initial weights.

    batches: returns the batches of one epoch, in random order. Returns the dev scores, at the start and after each
    epoch. Only `weights` receive gradients; other parameters in the same graph do not.
    """
    rng, history = random.Random(params.seed), [dev_score()]
    best = [weight.detach().clone() for weight in weights]
    optimiser = torch.optim.AdamW(weights, lr=params.learning_rate)
    n_steps = params.epochs * len(batches(random.Random(params.seed)))
    for epoch in range(params.epochs):
        epoch_batches = batches(rng)
        for step, batch in enumerate(epoch_batches, start=epoch * len(epoch_batches)):
            gradients = torch.autograd.grad(loss(batch), weights, allow_unused=True)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.param_groups[0]["lr"] = params.learning_rate * rate_factor(step, n_steps, params.warmup)
            optimiser.step()
        history.append(dev_score())
        if history[-1] > max(history[:-1]):
            best = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight, best_weight in zip(weights, best, strict=True):
            weight.copy_(best_weight)
    return tuple(history)


def rate_factor(step: int, n_steps: int, warmup: float | None) -> float:
    """Return the factor of the learning rate at `step`: rises linearly to 1, then falls to 0 (Mosbach et al. 2020)."""
    if warmup is None:
        return 1.0
    n_rising = max(1, round(warmup * n_steps))
    return min((step + 1) / n_rising, (n_steps - step) / max(1, n_steps - n_rising + 1))
