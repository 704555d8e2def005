"""Precision of a harvest from an embedded LM, measured by the facts of its world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgharvest.embedded_lm.world import Relation
from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.types import HarvestParams, HarvestSpec

TOP = 50
N_SEEDS = 5


@dataclass(frozen=True)
class HarvestQuality:
    """n_true, n_misconceptions: facts and planted misconceptions among the `TOP` best harvested tuples.

    warning: the harvest's warning about its quality, or None.
    """

    n_true: int
    n_misconceptions: int
    warning: str | None = None

    @property
    def precision(self) -> float:
        return self.n_true / TOP


def harvest_quality(
    lm: LanguageModel, relation: Relation, prompts: Sequence[str], params: HarvestParams, setting: str = "multi"
) -> HarvestQuality:
    """Harvest `relation` with `prompts`, of which the first is the initial one. True tuples are facts of the world."""
    seeds = relation.facts[:: len(relation.facts) // N_SEEDS][:N_SEEDS]
    spec = HarvestSpec(relation.name, tuple(prompts[:1]), seeds, setting, tuple(prompts), params)
    result = harvest(spec, lm)
    best = {scored.entities for scored in result.tuples[:TOP]}
    return HarvestQuality(len(best & set(relation.facts)), len(best & set(relation.misconceptions)), result.warning)
