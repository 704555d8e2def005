"""Registry of prompt-learning methods. Does not import torch, because entries name their code by import path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kgharvest.engine.types import N_TRIGGERS, EngineError

LEARNERS = "kgharvest.contrib.probing.prompt_learning.learners"

# Default parameters by system, or by method if the methods of a system differ. "small" suits the embedded LMs and 100
# facts. "paper" contains the published values for BERT-base and 1,000 facts (40,000 facts for BERTese).
PRESETS: dict[str, dict[str, dict[str, float]]] = {
    "small": {
        "LPAQA": {"learning_rate": 0.1},
        "AutoPrompt": {"triggers": N_TRIGGERS, "iterations": 150, "batch_size": 56, "candidates": 10, "patience": 100},
        "soft prompts": {"learning_rate": 1e-2, "batch_size": 64, "epochs": 16},
        # Words change only after hundreds of small steps. A large rate or a small distance weight changes many words
        # at once, mostly for the worse. Vectors can improve gradually.
        "BERTese": {"learning_rate": 3e-5, "batch_size": 16, "epochs": 48, "distance_weight": 3.0, "mask_weight": 0.5},
        "bertese-continuous": {"learning_rate": 3e-4, "distance_weight": 0.3},
        "fine-tuning": {"learning_rate": 1e-4, "batch_size": 16, "epochs": 16},
    },
    "paper": {
        "LPAQA": {"learning_rate": 0.1},
        "AutoPrompt": {"triggers": 5, "iterations": 1000, "batch_size": 56, "candidates": 10, "patience": 1000},
        "soft prompts": {"learning_rate": 1e-3, "batch_size": 64, "epochs": 16},
        "BERTese": {"learning_rate": 1e-5, "batch_size": 64, "epochs": 5, "distance_weight": 0.3, "mask_weight": 0.5},
        "fine-tuning": {"learning_rate": 1e-5, "batch_size": 64, "epochs": 5},
    },
}


def _option(least: float, most: float) -> Any:
    """Declare an option with its minimum and maximum, shared by forms, API, and commands."""
    return field(default=None, metadata={"min": least, "max": most})


@dataclass(frozen=True)
class LearningBudget:
    """Parameters of learning methods. None: use the value of `preset`.

    triggers, candidates, patience: AutoPrompt's number of trigger tokens, of replacements tried per iteration, and of
        iterations without a gain on dev after which it stops.
    distance_weight, mask_weight: lambda 1 and 2 of the BERTese losses.
    """

    iterations: int | None = _option(1, 10_000)
    epochs: int | None = _option(1, 1000)
    seed: int = field(default=0, metadata={"min": 0, "max": 2**31 - 1})
    triggers: int | None = _option(1, 50)
    candidates: int | None = _option(1, 10_000)
    patience: int | None = _option(1, 10_000)
    batch_size: int | None = _option(1, 10_000)
    learning_rate: float | None = _option(0.0, 10.0)
    distance_weight: float | None = _option(0.0, 1000.0)
    mask_weight: float | None = _option(0.0, 1000.0)
    preset: str = "small"

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise EngineError(f"Unknown preset {self.preset!r}. Choose from {', '.join(PRESETS)}.")

    def of(self, method: PromptMethod) -> dict[str, Any]:
        preset = PRESETS[self.preset]
        values: dict[str, Any] = {"seed": self.seed, **preset.get(method.label, {}), **preset.get(method.name, {})}
        explicit = {name: getattr(self, name) for name in method.parameters if getattr(self, name) is not None}
        return {name: value for name, value in (values | explicit).items() if name in method.parameters}


@dataclass(frozen=True)
class PromptMethod:
    """A method to obtain prompts.

    label: the system that the method belongs to. help: description of the resulting prompts.
    learner: dotted path to a function of (lm, task, **options), or of (lm, tasks, **options) if `is_joint` (learns from
        all relations together). Its options are `options` and the `parameters` from the budget.
    needs: pairs of parameters; the first must not be less than the second.
    baseline: the method that this method is compared with, fact by fact. Deep prompts are compared with soft prompts,
        soft prompts with their initial prompts, and other methods with the manual prompts.
    needs_mask: True if the method requires an LM with a mask token. needs_encoder: True if it requires a masked LM, and
        not an encoder-decoder. is_default: True if probes that name no methods use it.
    """

    name: str
    label: str
    help: str
    learner: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    baseline: str = "manual"
    is_joint: bool = False
    needs_mask: bool = True
    needs_encoder: bool = False
    is_default: bool = False


def _mixture(name: str, prompts: str, start: str) -> PromptMethod:
    question, is_random = f"{prompts} with equal weights, nothing learned", start == "random"
    options, parameters = {"start": start}, ("seed",) if is_random else ()
    learner = f"{LEARNERS}.mixture"
    return PromptMethod(name, "soft prompts", question, learner, options, parameters, needs_mask=is_random)


def _soft(name: str, question: str, baseline: str = "mixture", start: str = "given", **options: Any) -> PromptMethod:
    parameters = ("learning_rate", "batch_size", "epochs", "seed")
    options["start"] = start
    return PromptMethod(name, "soft prompts", question, f"{LEARNERS}.soft", options, parameters, baseline=baseline)


def _from_start(start: str, prompts: str) -> Iterator[PromptMethod]:
    """Yield the methods of one row of Qin & Eisner (2021), Table 5: before learning, soft, and deep."""
    initial, soft, phrase = f"mixture-{start}", f"soft-{start}", f"initialized with {prompts} only"
    if start == "manual":
        initial = start
    else:
        yield _mixture(initial, prompts, start)
    yield _soft(soft, f"like soft, {phrase}", initial, start)
    yield _soft(f"soft-deep-{start}", f"like soft-deep, {phrase}", soft, start, site="deep")


def _bertese(name: str, question: str, **options: Any) -> PromptMethod:
    parameters = ("learning_rate", "batch_size", "epochs", "distance_weight", "mask_weight", "seed")
    return PromptMethod(
        name, "BERTese", question, f"{LEARNERS}.bertese", options, parameters, is_joint=True, needs_encoder=True
    )


METHODS: dict[str, PromptMethod] = {
    method.name: method
    for method in (
        PromptMethod(
            "majority",
            "majority",
            "the most frequent objects, regardless of the subject",
            f"{LEARNERS}.majority",
            needs_mask=False,
            is_default=True,
        ),
        PromptMethod(
            "manual",
            "manual",
            "the relation's first, handwritten prompt",
            f"{LEARNERS}.manual",
            needs_mask=False,
            is_default=True,
        ),
        PromptMethod(
            "lpaqa-top1", "LPAQA", "the best of the given prompts", f"{LEARNERS}.lpaqa_top1", needs_mask=False
        ),
        PromptMethod(
            "lpaqa-rank", "LPAQA", "the average of the best given prompts", f"{LEARNERS}.lpaqa_rank", needs_mask=False
        ),
        PromptMethod(
            "lpaqa",
            "LPAQA",
            "the given prompts, with learned weights",
            f"{LEARNERS}.lpaqa_weights",
            parameters=("learning_rate",),
            needs_mask=False,
            is_default=True,
        ),
        PromptMethod(
            "autoprompt",
            "AutoPrompt",
            "trigger tokens, found by gradients",
            f"{LEARNERS}.autoprompt_triggers",
            parameters=("triggers", "candidates", "patience", "batch_size", "iterations", "seed"),
            needs={"iterations": "triggers"},  # each trigger starts as a mask, and one is filled per iteration
        ),
        _mixture("mixture", "the given prompts", "given"),
        _soft("soft", "the given prompts, their words learned as vectors"),
        *_from_start("manual", "the manual prompt"),
        *_from_start("mined", "mined prompts"),
        *_from_start("paraphrased", "paraphrased prompts"),
        *_from_start("random", "random vectors"),
        _soft(
            "soft-data-dependent",
            "like soft, with prompts weighted by how well they predict the subject",
            is_data_dependent=True,
        ),
        _soft("soft-weights", "the given prompts, only their weights learned", learned="weights"),
        _soft("soft-vectors", "like soft, with equal prompt weights", learned="vectors"),
        _soft("soft-deep", "like soft, with an additional change in every layer", "soft", site="deep"),
        PromptMethod(
            "fine-tuned",
            "fine-tuning",
            "the manual prompt, with all weights of the LM trained",
            f"{LEARNERS}.fine_tuned",
            parameters=("learning_rate", "batch_size", "epochs", "seed"),
            is_joint=True,
            needs_encoder=True,
        ),
        _bertese("bertese", "one rewriter for all questions, output as words"),
        _bertese("bertese-continuous", "one rewriter for all questions, output as vectors", reads_words=False),
    )
}
DEFAULT_METHODS = tuple(method.name for method in METHODS.values() if method.is_default)
# The numeric parameters, without `preset`.
BUDGET_FIELDS = {field.name: field for field in fields(LearningBudget) if field.metadata}


def systems_with(parameter: str) -> str:
    """Return a phrase that lists the systems that use `parameter`, for example "soft prompts and BERTese"."""
    *systems, last = dict.fromkeys(method.label for method in METHODS.values() if parameter in method.parameters)
    return f"{', '.join(systems)}{',' * (len(systems) > 1)} and {last}" if systems else last


def preset_values(parameter: str) -> str:
    """Return the values of `parameter` in each preset, for example "small: 150; paper: 1000", or "" if none sets it."""
    phrases = []
    for preset, systems in PRESETS.items():
        values = dict.fromkeys(f"{options[parameter]:g}" for options in systems.values() if parameter in options)
        phrases += [f"{preset}: {' or '.join(values)}"] if values else []
    return "; ".join(phrases)
