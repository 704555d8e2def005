"""The prompt systems on one protocol: each learns from the same facts and is probed on the same facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import Answerer, Majority, UsableFacts
from kgharvest.engine.prompt_learning import autoprompt, bertese, lpaqa, soft_prompts
from kgharvest.engine.prompt_learning.autoprompt import TRIGGER, AutoPromptParams, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.bertese import AnsweredQuestion, BerteseAnswerer, BerteseParams
from kgharvest.engine.prompt_learning.objectives import Example, Likelihood
from kgharvest.engine.prompt_learning.soft_prompts import SoftPromptParams
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer, uniform
from kgharvest.engine.types import N_TRIGGERS, Cancelled, EngineError, OnProgress, ignore

BERTESE_EPOCHS = 3  # for each of the others: words change only after hundreds of small steps
N_ENSEMBLE = 10  # prompts of a rank ensemble
N_SHOWN = 5  # rewrites that are kept


@dataclass(frozen=True)
class ProbeTask:
    """One relation, encoded for one LM. manual: the prompt that people wrote; given: it and others."""

    relation: str
    manual: EncodedPrompt
    given: tuple[EncodedPrompt, ...]
    train: UsableFacts
    dev: UsableFacts
    test: UsableFacts


@dataclass(frozen=True)
class Learned:
    """What a method made of a task. rewrites: some questions as people read them, and what they became."""

    answerer: Answerer
    weights: tuple[float, ...] = ()
    n_parameters: int = 0
    rewrites: tuple[tuple[str, str], ...] = ()

    @property
    def effective_prompts(self) -> float:
        """exp of the weights' entropy: how many equally weighted prompts they come to."""
        return math.exp(-sum(weight * math.log(weight) for weight in self.weights if weight > 0))


@dataclass(frozen=True)
class Budget:
    """How long the methods that learn may take; small for small LMs and for tests."""

    trigger_iterations: int = 150
    epochs: int = 16
    learning_rate: float = 1e-2
    seed: int = 0
    on_progress: OnProgress = field(default=ignore, repr=False)

    def tick(self) -> None:
        """Be called between forwards."""


Start = Literal["given", "manual", "random"]
Method = Callable[[MaskedLM, ProbeTask, Budget], Learned]


def majority(lm: MaskedLM, task: ProbeTask, budget: Budget) -> Learned:
    """The baseline that knows no subject."""
    return Learned(Majority(task.train, lm.vocab_size))


def manual(lm: MaskedLM, task: ProbeTask, budget: Budget) -> Learned:
    """LAMA: the prompt that people wrote."""
    return asking(lm, uniform([task.manual]))


def lpaqa_top1(lm: MaskedLM, task: ProbeTask, budget: Budget) -> Learned:
    return asking(lm, lpaqa.top1(lm, task.given, task.train, budget.tick))


def lpaqa_rank(lm: MaskedLM, task: ProbeTask, budget: Budget) -> Learned:
    return asking(lm, lpaqa.rank_ensemble(lm, task.given, task.train, N_ENSEMBLE, budget.tick))


def lpaqa_weights(lm: MaskedLM, task: ProbeTask, budget: Budget) -> Learned:
    return asking(lm, lpaqa.optimised_ensemble(lm, task.given, task.train, budget.tick), len(task.given))


def triggers(lm: MaskedLM, task: ProbeTask, budget: Budget) -> Learned:
    """AutoPrompt: head, triggers, tail, or the manual prompt if no trigger is better on dev.

    Right answers of any part are no triggers.
    """
    gold = {fact.tail for facts in (task.train, task.dev, task.test) for fact in facts.facts}
    template = TriggerTemplate((lm.tokens.prefix, (TRIGGER,) * N_TRIGGERS, task.manual.segments[-1]), (0, 1))
    allowed = autoprompt.allowed_triggers(lm, gold)
    trigger_task = TriggerTask(Likelihood(), examples(task.train), examples(task.dev), allowed, [task.manual])
    params = AutoPromptParams(iterations=budget.trigger_iterations, seed=budget.seed)
    found = autoprompt.search_from_masks(lm, template, trigger_task, params, budget.on_progress)
    return asking(lm, uniform([found.prompt]), len(found.trigger))


def soft(lm: MaskedLM, task: ProbeTask, budget: Budget, params: SoftPromptParams, start: Start = "given") -> Learned:
    """Soft prompts that start as the given prompts, as the manual one alone, or at random in the given ones' shapes."""
    softened, vectors = soft_prompts.soften(lm, [task.manual] if start == "manual" else task.given)
    if start == "random":
        vectors = soft_prompts.random_vectors(lm, len(vectors), budget.seed)
    params = replace(params, learning_rate=budget.learning_rate, epochs=budget.epochs, seed=budget.seed)
    learned = soft_prompts.learn_soft_prompts(lm, softened, vectors, task.train, task.dev, params, budget.on_progress)
    return asking(lm, learned.prompt_set, learned.n_parameters)


METHODS: dict[str, Method] = {
    "majority": majority,
    "manual": manual,
    "lpaqa-top1": lpaqa_top1,
    "lpaqa-rank": lpaqa_rank,
    "lpaqa": lpaqa_weights,
    "autoprompt": triggers,
    "soft": partial(soft, params=SoftPromptParams()),
    "soft-manual": partial(soft, params=SoftPromptParams(), start="manual"),
    "soft-random": partial(soft, params=SoftPromptParams(), start="random"),
    "soft-data-dependent": partial(soft, params=SoftPromptParams(is_data_dependent=True)),
    "soft-deep": partial(soft, params=SoftPromptParams("deep")),
}
FOR_ALL_RELATIONS = {  # methods that learn of all at once
    "bertese": BerteseParams(),
    "bertese-continuous": BerteseParams(in_words=False, distance_weight=0.3, learning_rate=3e-4),
}


def learn_bertese(lm: MaskedLM, tasks: Sequence[ProbeTask], budget: Budget, params: BerteseParams) -> list[Learned]:
    """Return what the rewriter of all relations makes of each task."""
    train, dev = ([one for task in tasks for one in questions(lm, task, part)] for part in ("train", "dev"))
    params = replace(params, epochs=BERTESE_EPOCHS * budget.epochs, seed=budget.seed)
    learned = bertese.learn_rewriter(lm, train, dev, params, budget.on_progress)
    shown = [[one.query for one in questions(lm, task, "dev")[:N_SHOWN]] for task in tasks]
    rewrites = [bertese.rewritten(lm, learned.rewriter, queries) for queries in shown]
    return [
        Learned(
            BerteseAnswerer(lm, learned.rewriter, task.manual),
            (1.0,),
            learned.n_parameters,
            tuple(some),
        )
        for task, some in zip(tasks, rewrites, strict=True)
    ]


def learn(lm: MaskedLM, method: str, tasks: Sequence[ProbeTask], budget: Budget) -> list[Learned]:
    """Return what `method` makes of each task. Raises EngineError, with the relation's name in it."""
    if method in FOR_ALL_RELATIONS:
        return learn_bertese(lm, tasks, budget, FOR_ALL_RELATIONS[method])
    if method not in METHODS:
        raise EngineError(f"There is no method {method!r}; choose from {', '.join([*METHODS, *FOR_ALL_RELATIONS])}.")
    return [learn_one(lm, method, task, budget) for task in tasks]


def learn_one(lm: MaskedLM, method: str, task: ProbeTask, budget: Budget) -> Learned:
    try:
        return METHODS[method](lm, task, budget)
    except Cancelled:
        raise
    except EngineError as error:
        raise type(error)(f"{task.relation}, {method}: {error}") from error


def examples(facts: UsableFacts) -> list[Example]:
    return [Example((fact.head,), (fact.tail,)) for fact in facts.facts]


def questions(lm: MaskedLM, task: ProbeTask, part: str) -> list[AnsweredQuestion]:
    facts: UsableFacts = getattr(task, part)
    return [AnsweredQuestion(lm.query(task.manual, (len(fact.head), 1), fact.head), fact.tail) for fact in facts.facts]


def asking(lm: MaskedLM, prompt_set: PromptSet, n_parameters: int = 0) -> Learned:
    return Learned(PromptSetAnswerer(lm, prompt_set), prompt_set.weights, n_parameters)
