"""The registry of prompt-learning methods, one entry each. Loads no torch: an entry names the code that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any

from kgharvest.engine.types import N_TRIGGERS

LEARNERS = "kgharvest.engine.prompt_learning.learners"


@dataclass(frozen=True)
class LearningBudget:
    """How long the methods that learn may take, and the seed of their random draws.

    The bounds in the fields' metadata are those of the pages; a command takes any number from the least one on.
    """

    iterations: int = field(default=150, metadata={"min": 1, "max": 10_000})
    epochs: int = field(default=16, metadata={"min": 1, "max": 1000})
    seed: int = field(default=0, metadata={"min": 0, "max": 2**31 - 1})


@dataclass(frozen=True)
class PromptMethod:
    """A way to obtain the prompts that an LM is asked with; all of them work on masked LMs.

    label: the system that it belongs to. help: what the LM is asked, in a phrase. learner: dotted path to the function
    of (lm, task, budget, **options), or of all tasks where one thing is learned for all relations (`is_joint`).
    parameters: what of the budget it obeys; needs: and how much it needs at least. is_default: in a probe that names
    no methods.
    """

    name: str
    label: str
    help: str
    learner: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    needs: Mapping[str, int] = field(default_factory=dict)
    is_joint: bool = False
    is_default: bool = False

    def load_learner(self) -> Callable[..., Any]:
        """Import the learner, and torch with it."""
        module, _, name = self.learner.rpartition(".")
        learner: Callable[..., Any] = getattr(import_module(module), name)
        return learner


def _soft(name: str, question: str, **options: Any) -> PromptMethod:
    return PromptMethod(name, "soft prompts", question, f"{LEARNERS}.soft", options, ("epochs", "seed"))


def _bertese(name: str, question: str, **options: Any) -> PromptMethod:
    return PromptMethod(name, "BERTese", question, f"{LEARNERS}.bertese", options, ("epochs", "seed"), is_joint=True)


METHODS: dict[str, PromptMethod] = {
    method.name: method
    for method in (
        PromptMethod(
            "majority",
            "majority",
            "the objects that occur most, whatever the subject",
            f"{LEARNERS}.majority",
            is_default=True,
        ),
        PromptMethod(
            "manual",
            "manual",
            "the relation's first prompt, as people wrote it",
            f"{LEARNERS}.manual",
            is_default=True,
        ),
        PromptMethod("lpaqa-top1", "LPAQA", "the best of the given prompts", f"{LEARNERS}.lpaqa_top1"),
        PromptMethod("lpaqa-rank", "LPAQA", "the average of the best given prompts", f"{LEARNERS}.lpaqa_rank"),
        PromptMethod(
            "lpaqa", "LPAQA", "the given prompts, with learned weights", f"{LEARNERS}.lpaqa_weights", is_default=True
        ),
        PromptMethod(
            "autoprompt",
            "AutoPrompt",
            "trigger tokens, found by gradients",
            f"{LEARNERS}.autoprompt_triggers",
            parameters=("iterations", "seed"),
            needs={"iterations": N_TRIGGERS},  # each starts as a mask and takes one to be filled
        ),
        _soft("soft", "the given prompts, their words learned as vectors"),
        _soft("soft-manual", "as soft, from the manual prompt alone", start="manual"),
        _soft("soft-random", "as soft, from random vectors", start="random"),
        _soft(
            "soft-data-dependent",
            "as soft, a prompt counting more where it expects the subject",
            is_data_dependent=True,
        ),
        _soft("soft-deep", "as soft, and a change in every layer", site="deep"),
        _bertese("bertese", "one rewriter of all questions, into words"),
        # Vectors, unlike words, need not jump to be better, so that distance may count less and the rate be higher.
        _bertese(
            "bertese-continuous",
            "one rewriter of all questions, into vectors",
            reads_words=False,
            distance_weight=0.3,
            learning_rate=3e-4,
        ),
    )
}
DEFAULT_METHODS = tuple(method.name for method in METHODS.values() if method.is_default)
BUDGET_FIELDS = {field.name: field for field in fields(LearningBudget)}


def systems_with(parameter: str) -> str:
    """Return the systems that obey `parameter`, as a phrase: "soft prompts and BERTese"."""
    *others, last = dict.fromkeys(method.label for method in METHODS.values() if parameter in method.parameters)
    return f"{', '.join(others)} and {last}" if others else last
