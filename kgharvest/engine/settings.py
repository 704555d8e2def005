"""Prompt settings: ways to obtain the prompts of a harvest. The engine, forms, pages, and commands use this list.

This module must not import torch, so it names strategies by import path. Installed distributions can add settings
through the entry point group `kgharvest.prompt_settings` (docs/extending.md).
"""

from dataclasses import dataclass
from typing import Literal

from kgharvest.engine.types import EngineError
from kgharvest.entry_points import PROMPT_SETTINGS as PROMPT_SETTINGS_GROUP
from kgharvest.entry_points import Registry


@dataclass(frozen=True)
class Setting:
    """One way to obtain prompts.

    label: text of the form choice. help: description of the prompt source, shown with harvest results.
    strategy: function that obtains the prompts, as "module:name".
    takes_ready_prompts: True if existing prompts of the relation are used, not only the initial prompts.
    learns: part of the prompts that is learned from the seed tuples. "tokens" and "vectors" require an LM with a
        mask token. Learning can take minutes.
    asks_chat: True if a chat model lists the tuples. An LM then scores them with the prompts instead of searching.
    """

    name: str
    label: str
    help: str
    strategy: str
    takes_ready_prompts: bool = True
    learns: Literal["weights", "tokens", "vectors"] | None = None
    asks_chat: bool = False


STRATEGIES = "kgharvest.engine.prompts.strategies"
BUILT_IN_SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "human",
            "the initial prompts",
            "The initial prompts, weighted by how well the seed tuples fit them.",
            f"{STRATEGIES}:initial_prompts",
            takes_ready_prompts=False,
        ),
        Setting(
            "top1",
            "the prompt with the largest weight",
            "The prompt that fits the seed tuples best.",
            f"{STRATEGIES}:best_prompt",
        ),
        Setting(
            "multi",
            "all prompts, weighted",
            "All prompts, weighted by how well the seed tuples fit them.",
            f"{STRATEGIES}:all_prompts",
        ),
        Setting(
            "lpaqa",
            "all prompts, weights learned from the seed tuples",
            "All prompts, with weights that maximize the likelihood of the seed tuples under the weighted product.",
            f"{STRATEGIES}:all_prompts_with_learned_weights",
            learns="weights",
        ),
        Setting(
            "autoprompt",
            "trigger tokens learned from the seed tuples",
            "Tokens chosen by a search for the best fit to the seed tuples. They may not form meaningful text.",
            f"{STRATEGIES}:learned_triggers",
            takes_ready_prompts=False,
            learns="tokens",
        ),
        Setting(
            "soft",
            "all prompts, their words learned as vectors from the seed tuples",
            "The words of all prompts were replaced by vectors learned from the seed tuples. Each ‹word› is the "
            "nearest word to a learned vector; the LM may interpret the vector differently.",
            f"{STRATEGIES}:learned_soft_prompts",
            learns="vectors",
        ),
        Setting(
            "llm",
            "a chat model lists tuples",
            "A chat model listed the tuples. An LM scored them with these prompts, weighted by how well the seed "
            "tuples fit them.",
            f"{STRATEGIES}:all_prompts",
            asks_chat=True,
        ),
    )
}
SETTINGS = Registry(PROMPT_SETTINGS_GROUP, BUILT_IN_SETTINGS)
# Settings that prompt an LM to fill in blanks.
PROMPT_SETTINGS = Registry(PROMPT_SETTINGS_GROUP, BUILT_IN_SETTINGS, lambda setting: not setting.asks_chat)
WITHOUT_LEARNING = ("human", "top1", "multi")


def find_setting(name: str) -> Setting:
    """Return the setting named `name`. Raises EngineError."""
    if name not in SETTINGS:
        raise EngineError(f"Unknown setting {name!r}. Choose one of {', '.join(SETTINGS)}.")
    return SETTINGS[name]
