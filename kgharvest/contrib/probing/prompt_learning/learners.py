"""Learners of the registry: functions that learn from the training and dev facts of a relation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from kgharvest.contrib.probing.prompt_learning.bertese import (
    AnsweredQuestion,
    BerteseAnswerer,
    BerteseParams,
    as_tensors,
    learn_rewriter,
    questions,
    shuffled_batches,
)
from kgharvest.contrib.probing.prompt_learning.registry import METHODS, LearningBudget
from kgharvest.engine.language_models.base import EncodedPrompt, Tick, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM, MaskFillingLM, SoftWords
from kgharvest.engine.probing import Answerer, Majority, UsableFacts, probe
from kgharvest.engine.prompt_learning import autoprompt, lpaqa, soft_prompts
from kgharvest.engine.prompt_learning.autoprompt import TRIGGER, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import Example, Likelihood
from kgharvest.engine.prompt_learning.soft_prompts import SoftPromptParams
from kgharvest.engine.prompt_learning.training import TrainingParams, train_best
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer, uniform
from kgharvest.engine.types import AutoPromptParams, Cancelled, EngineError

N_ENSEMBLE = 10  # prompts of a rank ensemble


@dataclass(frozen=True)
class ProbeTask:
    """A relation encoded for an LM.

    manual: the handwritten prompt. given: the handwritten prompt and other prompts. origins: given prompts by origin.
    """

    relation: str
    manual: EncodedPrompt
    given: tuple[EncodedPrompt, ...]
    train: UsableFacts
    dev: UsableFacts
    test: UsableFacts
    origins: Mapping[str, tuple[EncodedPrompt, ...]] = field(default_factory=dict)

    def start(self, name: str) -> Sequence[EncodedPrompt]:
        """Return the prompts of a start: "manual", "given", an origin, or "random" (their shapes).

        Raises EngineError if the relation has no such prompts.
        """
        if name == "manual":
            return [self.manual]
        if name == "random":  # the shapes of mined prompts, as in Qin & Eisner (2021), section 4.4
            return self.origins.get("mined", self.given)
        prompts = self.given if name == "given" else self.origins.get(name)
        if not prompts:
            raise EngineError(f"The relation has no {name} prompts. Add them, or omit the method.")
        return prompts


@dataclass(frozen=True)
class Learned:
    """Result of a method for a task.

    originals: for each prompt whose words were learned as vectors, the prompt before learning.
    """

    answerer: Answerer
    weights: tuple[float, ...] = ()
    n_parameters: int = 0
    originals: tuple[EncodedPrompt, ...] = ()

    @property
    def effective_prompts(self) -> float:
        """Exponential of the weights' entropy: the equivalent number of equally weighted prompts."""
        return math.exp(-sum(weight * math.log(weight) for weight in self.weights if weight > 0))


def learn(lm: MaskFillingLM, method: str, tasks: Sequence[ProbeTask], budget: LearningBudget) -> list[Learned]:
    """Return the result of `method` for each task. Raises EngineError with a message that names the relation."""
    if method not in METHODS:
        raise EngineError(f"Unknown method {method!r}. Choose from {', '.join(METHODS)}.")
    entry = METHODS[method]
    learner, options = resolve_name(entry.learner), {**entry.options, **budget.of(entry)}
    results: list[Learned] = []
    if entry.is_joint:
        results += learner(lm, tasks, **options)
        return results
    for task in tasks:
        try:
            results.append(learner(lm, task, **options))
        except Cancelled:
            raise
        except EngineError as error:
            raise type(error)(f"{task.relation}, {method}: {error}") from error
    return results


def prompt_set_learned(lm: MaskFillingLM, prompt_set: PromptSet, n_parameters: int = 0) -> Learned:
    return Learned(PromptSetAnswerer(lm, prompt_set), prompt_set.weights, n_parameters)


# Baselines


def majority(lm: MaskFillingLM, task: ProbeTask) -> Learned:
    """Baseline that ignores the subject."""
    return Learned(Majority(task.train, lm.vocab_size))


def manual(lm: MaskFillingLM, task: ProbeTask) -> Learned:
    """LAMA: the handwritten prompt (Petroni et al. 2019)."""
    return prompt_set_learned(lm, uniform([task.manual]))


def mixture(lm: MaskFillingLM, task: ProbeTask, start: str, **options: Any) -> Learned:
    """Soft prompts before learning: the mixture of their initial prompts with equal weights. options: as in `soft`."""
    prompts = uniform(task.start(start), "mixture")
    if start == "random":
        softened, vectors = initial_soft_prompts(lm, task, start, options["seed"])
        prompts = replace(prompts, prompts=tuple(softened), soft_words=SoftWords(vectors))
    return prompt_set_learned(lm, prompts)


# One relation at a time


def lpaqa_top1(lm: MaskFillingLM, task: ProbeTask) -> Learned:
    return prompt_set_learned(lm, lpaqa.top1(lm, task.given, task.train))


def lpaqa_rank(lm: MaskFillingLM, task: ProbeTask) -> Learned:
    return prompt_set_learned(lm, lpaqa.rank_ensemble(lm, task.given, task.train, N_ENSEMBLE))


def lpaqa_weights(lm: MaskFillingLM, task: ProbeTask, learning_rate: float) -> Learned:
    prompt_set = lpaqa.optimised_ensemble(lm, task.given, task.train, learning_rate)
    return prompt_set_learned(lm, prompt_set, len(task.given))


def autoprompt_triggers(lm: MaskFillingLM, task: ProbeTask, triggers: int, candidates: int, **options: Any) -> Learned:
    """AutoPrompt: the prompt "head, triggers, tail", or the manual prompt if no trigger is better on dev.

    Correct answers in train, dev, and test are not allowed as triggers. options: fields of AutoPromptParams.
    """
    gold = {fact.tail for facts in (task.train, task.dev, task.test) for fact in facts.facts}
    train, dev = ([Example((fact.head,), (fact.tail,)) for fact in facts.facts] for facts in (task.train, task.dev))
    template = TriggerTemplate((lm.tokens.prefix, (TRIGGER,) * triggers, task.manual.segments[-1]), (0, 1))
    trigger_task = TriggerTask(Likelihood(), train, dev, autoprompt.allowed_triggers(lm, gold), [task.manual])
    result = autoprompt.search_from_masks(lm, template, trigger_task, AutoPromptParams(candidates, **options))
    return prompt_set_learned(lm, uniform([result.prompt]), len(result.trigger))


def initial_soft_prompts(
    lm: MaskFillingLM, task: ProbeTask, start: str, seed: int
) -> tuple[list[EncodedPrompt], torch.Tensor]:
    softened, vectors = soft_prompts.soften(lm, task.start(start))
    return softened, soft_prompts.random_vectors(lm, len(vectors), seed) if start == "random" else vectors


def soft(lm: MaskFillingLM, task: ProbeTask, start: str, **options: Any) -> Learned:
    """Soft prompts, initialized with the prompts of `start`. options: fields of SoftPromptParams."""
    softened, vectors = initial_soft_prompts(lm, task, start, options["seed"])
    params = SoftPromptParams(**options)
    result = soft_prompts.learn_soft_prompts(lm, softened, vectors, task.train, task.dev, params)
    originals = () if start == "random" else tuple(task.start(start))
    return replace(prompt_set_learned(lm, result.prompt_set, result.n_parameters), originals=originals)


# All relations at once


def bertese(lm: MaskedLM, tasks: Sequence[ProbeTask], **options: Any) -> list[Learned]:
    """Train one rewriter for all relations and return its result for each task. options: fields of BerteseParams."""
    train, dev = questions_of(lm, tasks)
    result = learn_rewriter(lm, train, dev, BerteseParams(**options))
    return [Learned(BerteseAnswerer(lm, result.rewriter, task.manual), (1.0,), result.n_parameters) for task in tasks]


def fine_tuned(lm: MaskedLM, tasks: Sequence[ProbeTask], **options: Any) -> list[Learned]:
    """Fine-tune all weights of a copy of the LM on the manual prompts of all relations. options: TrainingParams."""
    params, tuned = TrainingParams(**options), lm.trainable_copy()
    train, _ = questions_of(lm, tasks)
    answerers = [TunedAnswerer(tuned, task.manual) for task in tasks]

    def loss(batch: Sequence[AnsweredQuestion]) -> torch.Tensor:
        ids, tails = as_tensors(lm, batch)
        positions = torch.tensor([question.query.position for question in batch], device=ids.device)
        return cross_entropy(tuned.logits_at(ids, positions), tails)

    def n_right() -> int:
        pairs = zip(answerers, tasks, strict=True)
        return sum(int((probe(answerer, task.dev).ranks == 1).sum()) for answerer, task in pairs)

    train_best(tuned.parameters(), lambda rng: shuffled_batches(train, params.batch_size, rng), loss, n_right, params)
    n_parameters = sum(weights.requires_grad_(False).numel() for weights in tuned.parameters())
    return [Learned(answerer, (1.0,), n_parameters) for answerer in answerers]


@dataclass(frozen=True)
class TunedAnswerer:
    """Answerer with changed weights. It is not a PromptSetAnswerer, because its prompt alone is not its result."""

    lm: MaskedLM
    prompt: EncodedPrompt

    def scores(self, heads: Sequence[TokenIds], tick: Tick) -> Iterator[torch.Tensor]:
        """Yield (B, V), in the order of `heads`: log P(tail | head) in nats."""
        return PromptSetAnswerer(self.lm, uniform([self.prompt])).scores(heads, tick)


def questions_of(lm: MaskedLM, tasks: Sequence[ProbeTask]) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion]]:
    """Return the train and the dev facts of all tasks as questions in the manual prompts."""
    train = [question for task in tasks for question in questions(lm, task.manual, task.train.facts)]
    return train, [question for task in tasks for question in questions(lm, task.manual, task.dev.facts)]
