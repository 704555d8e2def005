"""The settings: the ways to obtain the prompts of a harvest. One entry each, for the engine, forms, pages and commands.

Imports no torch: an entry only names the code that needs it. Installed distributions add settings by the entry points
`kgharvest.prompt_settings` (docs/extending.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kgharvest.engine.types import EngineError
from kgharvest.entry_points import PROMPT_SETTINGS as PROMPT_SETTINGS_GROUP
from kgharvest.entry_points import Registry


@dataclass(frozen=True)
class Setting:
    """One way to obtain prompts. The strategies of this project are in `kgharvest.engine.prompts.strategies`.

    label: what a form says of it. help: where a harvest's prompts came from, for those who look at them.
    strategy: the function that obtains the prompts, as "module:name".
    takes_ready_prompts: it asks a relation's ready prompts where there are some, not only the initial ones.
    asks_chat: a chat model is asked to list tuples, no LM is searched; the prompts are for an LM that scores them.
    learns: what it learns from the seed tuples, which takes up to minutes and, but for weights, a masked LM; None if
    nothing.
    """

    name: str
    label: str
    help: str
    strategy: str
    takes_ready_prompts: bool = True
    learns: Literal["weights", "tokens", "vectors"] | None = None
    asks_chat: bool = False

    @property
    def learns_prompts(self) -> bool:
        return self.learns in ("tokens", "vectors")


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
            "Of all prompts the one that the seed tuples fit best.",
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
            "All prompts, with the weights under which their product makes the seed tuples likeliest.",
            f"{STRATEGIES}:all_prompts_with_learned_weights",
            learns="weights",
        ),
        Setting(
            "autoprompt",
            "trigger tokens learned from the seed tuples",
            "Tokens found by a search for those that fit the seed tuples best; they need make no sense.",
            f"{STRATEGIES}:learned_triggers",
            takes_ready_prompts=False,
            learns="tokens",
        ),
        Setting(
            "soft",
            "all prompts, their words learned as vectors from the seed tuples",
            "The words of all prompts were taken for vectors and learned from the seed tuples: each ‹word› is the one "
            "whose own vector is nearest to a learned one, so that the LM may read something else there.",
            f"{STRATEGIES}:learned_soft_prompts",
            learns="vectors",
        ),
        Setting(
            "llm",
            "a chat model lists tuples",
            "A chat model listed the tuples. An LM has scored them with these prompts, weighted by how well the seed "
            "tuples fit them.",
            f"{STRATEGIES}:all_prompts",
            asks_chat=True,
        ),
    )
}
SETTINGS = Registry(PROMPT_SETTINGS_GROUP, BUILT_IN_SETTINGS)
# Those that prompt an LM to fill in blanks.
PROMPT_SETTINGS = Registry(PROMPT_SETTINGS_GROUP, BUILT_IN_SETTINGS, lambda setting: not setting.asks_chat)
WITHOUT_LEARNING = ("human", "top1", "multi")


def find_setting(name: str) -> Setting:
    """Return the setting of this name. Raises EngineError."""
    if name not in SETTINGS:
        raise EngineError(f"There is no setting {name!r}; choose one of {', '.join(SETTINGS)}.")
    return SETTINGS[name]
