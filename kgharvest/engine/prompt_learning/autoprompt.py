"""AutoPrompt: gradient-guided search of trigger tokens (Shin et al. 2020), for any objective.

Supported objectives: the likelihood of a tail (fact retrieval), the likelihood of label tokens (text classification),
and the compatibility of a relation's seed tuples (BertNet baseline).
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
from kgharvest.engine.language_models.masked import MaskFillingLM, SoftWords
from kgharvest.engine.prompt_learning.objectives import Example, Objective, differentiable_scores, scores
from kgharvest.engine.types import AutoPromptParams, EngineError, OnProgress, Progress, ignore

TRIGGER = -1  # placeholder of a trigger token in a TriggerTemplate


@dataclass(frozen=True)
class TriggerTemplate:
    """A prompt whose `segments` can contain TRIGGER placeholders. `slots` has the same meaning as in EncodedPrompt."""

    segments: tuple[TokenIds, ...]
    slots: tuple[int, ...]

    @property
    def n_triggers(self) -> int:
        return sum(segment.count(TRIGGER) for segment in self.segments)

    def fill(self, trigger: Sequence[int]) -> EncodedPrompt:
        """Return the prompt with the tokens of `trigger`, in reading order."""
        tokens = iter(trigger)
        segments = [
            tuple(next(tokens) if token == TRIGGER else token for token in segment) for segment in self.segments
        ]
        return EncodedPrompt(tuple(segments), self.slots)


@dataclass(frozen=True)
class TriggerTask:
    """Objective and data of a search. Raises EngineError if there are no training examples or no dev examples.

    allowed: bool (V,), the tokens allowed as triggers.
    baselines: prompts that the triggers must beat on dev, for example handwritten prompts.
    """

    objective: Objective
    train: Sequence[Example]
    dev: Sequence[Example]
    allowed: NDArray[np.bool_]
    baselines: Sequence[EncodedPrompt] = ()

    def __post_init__(self) -> None:
        if not self.train or not self.dev:
            raise EngineError("Triggers require at least one training example and one dev example.")


@dataclass(frozen=True)
class LearnedTrigger:
    """The best prompt on dev.

    prompt: contains `trigger`, or is a baseline if `trigger` is empty. dev_score: mean score on dev in nats.
    history: best dev score at the start and after each iteration; minus infinity while the trigger contains masks.
    n_forwards, n_gradients: number of sequences that the LM evaluated without and with gradients.
    """

    prompt: EncodedPrompt
    trigger: TokenIds
    dev_score: float
    history: tuple[float, ...] = ()
    n_forwards: int = 0
    n_gradients: int = 0


def search_trigger(
    lm: MaskFillingLM,
    template: TriggerTemplate,
    start: Sequence[int],
    task: TriggerTask,
    params: AutoPromptParams,
    on_progress: OnProgress = ignore,
) -> LearnedTrigger:
    """Return the best prompt by mean score on dev, among the baselines, `start`, and the trigger after each iteration.

    Each iteration ranks replacements of single tokens by a first-order estimate of their gain (HotFlip; Shin et al.,
    Eq. 2) and tries the best replacements on other examples. The search continues with the best of them if it has a
    better score than the current trigger on these examples. Masks in `start` are replaced first, one per iteration.
    Raises EngineError for the same reasons as `AutoPromptParams.check`.
    """
    search = _TriggerSearch(lm, template, task, params, random.Random(params.seed))
    current = tuple(start)
    params.check(len(current), current.count(lm.mask_id))
    best = search.evaluate(current)
    history = [best.dev_score]
    n_without_gain = 0
    while len(history) <= params.iterations and n_without_gain < params.patience:
        on_progress(Progress("triggers", len(history) - 1, params.iterations))
        next_trigger = search.step(current)
        n_without_gain += 1
        if next_trigger != current:
            current, result = next_trigger, search.evaluate(next_trigger)
            if result.dev_score > best.dev_score:
                best, n_without_gain = result, 0
        history.append(best.dev_score)
    best = max([*search.baselines(), best], key=lambda result: result.dev_score)
    return replace(best, history=tuple(history), n_forwards=search.n_forwards, n_gradients=search.n_gradients)


def search_from_masks(
    lm: MaskFillingLM,
    template: TriggerTemplate,
    task: TriggerTask,
    params: AutoPromptParams,
    on_progress: OnProgress = ignore,
) -> LearnedTrigger:
    """Run `search_trigger` from masks and from `restarts` draws of random tokens. Return the best result on dev.

    With few triggers, a search quickly reaches a local optimum that single replacements cannot leave.
    """
    rng, n = random.Random(params.seed), template.n_triggers
    tokens = np.flatnonzero(task.allowed).tolist()
    starts = [(lm.mask_id,) * n, *(tuple(rng.choices(tokens, k=n)) for _ in range(params.restarts))]
    searches = [search_trigger(lm, template, start, task, params, on_progress) for start in starts]
    best = max(searches, key=lambda result: result.dev_score)
    return replace(
        best,
        n_forwards=sum(result.n_forwards for result in searches),
        n_gradients=sum(result.n_gradients for result in searches),
    )


class _TriggerSearch:
    """The steps of one search, and counters of their cost."""

    def __init__(
        self,
        lm: MaskFillingLM,
        template: TriggerTemplate,
        task: TriggerTask,
        params: AutoPromptParams,
        rng: random.Random,
    ) -> None:
        self._lm, self._template, self._task, self._params, self._rng = lm, template, task, params, rng
        self._allowed = torch.from_numpy(task.allowed).to(lm.device)  # (V,)
        self.n_forwards = self.n_gradients = 0

    def baselines(self) -> list[LearnedTrigger]:
        prompts = self._task.baselines
        dev_scores = self._mean_scores(prompts, self._task.dev).tolist() if prompts else []
        return [LearnedTrigger(prompt, (), score) for prompt, score in zip(prompts, dev_scores, strict=True)]

    def evaluate(self, trigger: TokenIds) -> LearnedTrigger:
        prompt = self._template.fill(trigger)
        if self._lm.mask_id in trigger:
            return LearnedTrigger(prompt, trigger, -float("inf"))
        return LearnedTrigger(prompt, trigger, float(self._mean_scores([prompt], self._task.dev)[0]))

    def step(self, current: TokenIds) -> TokenIds:
        """Return the next trigger: the best candidate, or `current` if it is better and contains no masks."""
        gradient = self.gradient(current, self._batch())  # (n, d)
        words = self._lm.word_embeddings.float()  # (V, d)
        current_ids = torch.tensor(current, device=words.device)
        # First-order estimate of each replacement's gain, (n, V), in nats
        gains = gradient @ words.T - (gradient * words[current_ids]).sum(1, keepdim=True)
        gains[:, ~self._allowed] = -torch.inf
        gains[torch.arange(len(current), device=words.device), current_ids] = -torch.inf
        if self._lm.mask_id in current:
            gains[current_ids != self._lm.mask_id] = -torch.inf
        best = gains.flatten().topk(min(self._params.n_candidates, int((gains > -torch.inf).sum()))).indices
        positions, tokens = best // gains.shape[1], best % gains.shape[1]
        candidates = [
            (*current[:position], token, *current[position + 1 :])
            for position, token in zip(positions.tolist(), tokens.tolist(), strict=True)
        ]
        contenders = candidates if self._lm.mask_id in current else [current, *candidates]
        prompts = [self._template.fill(trigger) for trigger in contenders]
        return contenders[int(self._mean_scores(prompts, self._batch()).argmax())]

    def gradient(self, trigger: TokenIds, batch: Sequence[Example]) -> torch.Tensor:
        """Return (n, d): the gradient of the mean score with respect to the vectors of the trigger's tokens."""
        vectors = self._lm.word_embeddings[list(trigger)].float().clone().requires_grad_()
        prompt = self._template.fill(range(self._lm.vocab_size, self._lm.vocab_size + len(trigger)))
        reader = self._lm.with_soft_words(SoftWords(vectors))
        score = differentiable_scores(reader, self._task.objective, [prompt], batch).mean()
        self.n_gradients += len(batch)
        return torch.autograd.grad(score, vectors)[0]

    def _mean_scores(self, prompts: Sequence[EncodedPrompt], examples: Sequence[Example]) -> torch.Tensor:
        """Return (C,): the mean score of each prompt, evaluated in shared forward passes."""
        self.n_forwards += len(prompts) * len(examples)
        return scores(self._lm, self._task.objective, prompts, examples, lambda: None).mean(dim=1)

    def _batch(self) -> list[Example]:
        return self._rng.sample(self._task.train, min(self._params.batch_size, len(self._task.train)))


def allowed_triggers(lm: MaskFillingLM, forbidden: Collection[int]) -> NDArray[np.bool_]:
    """Return bool (V,): `allowed_tokens` without capitalized tokens, which are often the names of entities."""
    allowed = allowed_tokens(lm, forbidden)
    allowed &= ~np.array([text[:1].isupper() for text in lm.tokens.texts()])
    return allowed


def allowed_tokens(lm: MaskFillingLM, forbidden: Collection[int]) -> NDArray[np.bool_]:
    """Return bool (V,): all tokens except special tokens and `forbidden`, the correct answers."""
    allowed: NDArray[np.bool_] = lm.continues_entity.copy()
    allowed[list(forbidden)] = False
    return allowed
