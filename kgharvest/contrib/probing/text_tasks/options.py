"""Methods and options of text tasks. Does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgharvest.engine.types import AutoPromptParams

METHODS = {
    "majority": "the most frequent label of the training texts",
    "manual": "the manual template, with selected or given label tokens",
    "autoprompt": "trigger tokens, found by gradients",
    "linear-probe": "a linear classifier of the LM's averaged output vectors",
    "fine-tuned": "a copy of the LM with all weights trained, and a linear classifier",
    "bilstm": "a bidirectional LSTM on the LM's word embeddings, without the LM's layers",
}
EXTRACT_METHODS = {
    "majority": "the most frequent object of the training facts",
    "manual": "the context and the relation's first prompt",
    "lpaqa-top1": "the context and the relation's prompt with the best P@1 on the training facts",
    "autoprompt": "trigger tokens, found by gradients",
}
EXTRACT_TEMPLATE = "{context} {subject} [T] [T] [T] [T] [T] [P] ."  # Shin et al. 2020, Table 3
DEFAULT_METHODS = ("majority", "manual", "autoprompt")


@dataclass(frozen=True)
class Grid:
    """Values among which AutoPrompt is chosen by dev accuracy (Shin et al. 2020, Figure 3). Empty: one given value."""

    triggers: Sequence[int] = ()
    label_tokens: Sequence[int] = ()
    candidates: Sequence[int] = ()


@dataclass(frozen=True)
class LearningCurve:
    """Sizes of random subsets of the training texts, and the number of subsets of each size (Figure 2)."""

    sizes: Sequence[int] = ()
    n_subsets: int = 10


NO_GRID, NO_CURVE = Grid(), LearningCurve()


METHODS_OF = {"classify": METHODS, "extract": EXTRACT_METHODS}


class Number(NamedTuple):
    """A numeric option with its bounds. default: for classify; extract: default for extract if it differs."""

    default: float
    minimum: float
    maximum: float
    help: str
    extract: int | None = None

    def default_of(self, task: str) -> float:
        return self.default if self.extract is None or task != "extract" else self.extract


NUMBERS = {
    "iterations": Number(180, 1, 10_000, "iterations of the trigger search", 500),
    "restarts": Number(0, 0, 100, "additional searches from random triggers"),
    "candidates": Number(10, 1, 10_000, "candidates per iteration"),
    "patience": Number(100, 1, 10_000, "iterations without a gain on dev before it stops"),
    "batch_size": Number(24, 1, 10_000, "texts or facts per iteration", 32),
    "seed": Number(0, 0, 2**31 - 1, "random seed"),
    "label_tokens": Number(3, 1, 1000, "tokens to select per label"),
    "epochs": Number(20, 1, 1000, "epochs of fine-tuned and bilstm"),
    "learning_rate": Number(2e-5, 0.0, 1.0, "learning rate of fine-tuned"),
    "subsets": Number(10, 1, 1000, "random subsets of each size"),
}
SEARCH_NUMBERS = ("iterations", "restarts", "candidates", "patience", "batch_size", "seed")
LISTS = {
    "grid_triggers": "numbers of triggers to try",
    "grid_label_tokens": "numbers of tokens per label to try",
    "grid_candidates": "numbers of candidates to try",
    "train_sizes": "sizes of random training subsets",
}


def default_options(task: str) -> dict[str, Any]:
    """Return all options of the pages and the API, with the defaults of a task."""
    return {
        "template": "",
        "manual": "",
        "label_words": {},
        "only_labels": [],
        "balance": False,
        "perturbed": False,
        "methods": list(DEFAULT_METHODS),
        **{name: number.default_of(task) for name, number in NUMBERS.items()},
        **{name: [] for name in LISTS},
    }


def search_params(options: Mapping[str, Any]) -> AutoPromptParams:
    """Return the parameters of the trigger search for options of a text task."""
    names = [name for name in SEARCH_NUMBERS if name != "candidates"]
    return AutoPromptParams(options["candidates"], **{name: options[name] for name in names})


def check_triggers(options: Mapping[str, Any], counts: Sequence[int]) -> None:
    """Raise EngineError if autoprompt cannot search for one of these numbers of triggers."""
    if "autoprompt" in options["methods"]:
        for n_triggers in counts:
            search_params(options).check(n_triggers, n_triggers)
