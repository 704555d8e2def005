"""What a round will cost and tell, before anybody judges: judgments, hours, widths of intervals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

Z_95 = 1.959964  # 97.5 % point of the normal distribution
ASSUMED_SECONDS = 6.0  # per judgment where nobody has judged yet
ASSUMED_ACCURACY = 0.5  # gives the widest intervals


class StratumSize(NamedTuple):
    population: int
    sample_size: int


@dataclass(frozen=True)
class Workload:
    """What people will do. Two numbers of judgments differ where a third person is asked only after a split.

    n_gold_shown: gold statements that the annotators together see beside those that count.
    """

    n_drawn: int
    n_tasks: int
    n_judgments_least: int
    n_judgments: int
    n_gold_shown: int
    seconds_per_judgment: float
    is_measured: bool

    @property
    def n_shared(self) -> int:
        """Draws that cost nothing, because another cell drew the same tuple."""
        return self.n_drawn - self.n_tasks

    @property
    def hours(self) -> float:
        return (self.n_judgments + self.n_gold_shown) * self.seconds_per_judgment / 3600


def workload(
    sizes: Iterable[int],
    n_tasks: int,
    judgments_per_task: int,
    *,
    third_only_if_split: bool = False,
    gold_share: float = 0,
    seconds_per_judgment: float | None = None,
) -> Workload:
    """Return the work of a round whose samples have `sizes` and share tuples, so that `n_tasks` are left."""
    n_judgments = n_tasks * judgments_per_task
    return Workload(
        n_drawn=sum(sizes),
        n_tasks=n_tasks,
        n_judgments_least=2 * n_tasks if third_only_if_split else n_judgments,
        n_judgments=n_judgments,
        n_gold_shown=round(n_judgments * gold_share / (1 - gold_share)),
        seconds_per_judgment=seconds_per_judgment or ASSUMED_SECONDS,
        is_measured=seconds_per_judgment is not None,
    )


def effective_size(strata: Sequence[StratumSize]) -> float:
    """Return the size of the simple sample that is as exact, if all strata are alike: 1 / sum of W_h^2 / n_h."""
    population = sum(stratum.population for stratum in strata)
    return 1 / sum((stratum.population / population) ** 2 / stratum.sample_size for stratum in strata)


def half_width(n: float, accuracy: float = ASSUMED_ACCURACY) -> float:
    """Return half the width of the 95 % Wilson interval that a simple sample of `n` gives at this accuracy."""
    spread = accuracy * (1 - accuracy) / n + Z_95**2 / (4 * n**2)
    return Z_95 * sqrt(spread) / (1 + Z_95**2 / n)


def macro_half_width(effective_sizes: Sequence[float], accuracy: float = ASSUMED_ACCURACY) -> float:
    """Return half the width of the 95 % interval of the mean over cells, each with its own sample.

    Normal, and of sampling only: how far relations differ comes on top where one wants to speak of further ones.
    """
    variance = sum(accuracy * (1 - accuracy) / n for n in effective_sizes)
    return Z_95 * sqrt(variance) / len(effective_sizes)
