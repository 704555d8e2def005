"""Parameters of the trigger search. Does not import torch."""

from dataclasses import dataclass

from kgharvest.engine.types import EngineError


@dataclass(frozen=True)
class AutoPromptParams:
    """Search parameters. The defaults are the values in Shin et al.'s code.

    n_candidates: replacements tried per iteration. batch_size: examples per gradient and per comparison.
    patience: number of iterations without a better dev score after which the search ends.
    restarts: number of additional searches in `search_from_masks`.
    """

    n_candidates: int = 10
    batch_size: int = 56
    iterations: int = 1000
    patience: int = 100
    seed: int = 0
    restarts: int = 0

    def check(self, n_triggers: int, n_masks: int) -> None:
        """Raise EngineError if there is no trigger, or if there are too few iterations to fill `n_masks` triggers."""
        if not n_triggers:
            raise EngineError("The template has no trigger. Add at least one [T].")
        if n_masks > self.iterations:
            raise EngineError(f"{self.iterations} iterations cannot fill {n_masks} triggers. Use more iterations.")
