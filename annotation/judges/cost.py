"""Cost of reaching a target interval width with people alone, or with people and a judge that labels all tuples."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from annotation.judges.allocation import JUDGE_STRATA, LEAST_PER_STRATUM, OTHER, allocate
from annotation.judges.runs import usage_of
from annotation.models import Label, Round

# Assumed for a judge that has not been measured. The values are typical of instruction-tuned LMs that judge facts.
ASSUMED_SENSITIVITY, ASSUMED_SPECIFICITY = 0.9, 0.8
WANTED_HALF_WIDTH = 0.05


class Wish(NamedTuple):
    """Planning target. half_width: half-width of each cell's 95 % interval, as a share."""

    half_width: float = WANTED_HALF_WIDTH
    pay_per_hour: float | None = None


class StratumPlan(NamedTuple):
    """Stratum of a cell: number of tuples, number of statements to judge, and expected accuracy and design effect."""

    population: int
    n: int
    accuracy: float
    effect: float = 1.0


class Way(NamedTuple):
    """Work required for the target width. judge: the LM judge that labels all tuples first; empty for people alone.

    pay: None if no hourly pay is given. judge_cost: None if the judge has not run yet.
    """

    judge: str
    n_statements: int
    n_judgments: int
    hours: float
    pay: float | None
    judge_cost: float | None

    @property
    def cost(self) -> float | None:
        if self.pay is None or (self.judge and self.judge_cost is None):
            return None
        return self.pay + (self.judge_cost or 0)


def variance(strata: Sequence[StratumPlan]) -> float:
    """Return the variance of a cell's accuracy under stratified sampling without replacement.

    Sum of W_h^2 p_h (1 - p_h) (1 / n_h - 1 / N_h): Cochran (1977, section 5.9) without the factor N_h / (N_h - 1). The
    design effect is a factor of each term.
    """
    population = sum(stratum.population for stratum in strata)
    return sum(
        (stratum.population / population) ** 2
        * stratum.accuracy
        * (1 - stratum.accuracy)
        * (1 / stratum.n - 1 / stratum.population)
        * stratum.effect
        for stratum in strata
    )


def accuracy_of(strata: Sequence[StratumPlan]) -> float:
    return sum(part.population * part.accuracy for part in strata) / sum(part.population for part in strata)


def assumed_strata(population: int, accuracy: float) -> list[StratumPlan]:
    """Return the expected strata of a judge with ASSUMED_SENSITIVITY and ASSUMED_SPECIFICITY in a cell."""
    true_share = accuracy * ASSUMED_SENSITIVITY + (1 - accuracy) * (1 - ASSUMED_SPECIFICITY)
    accuracy_of_label = {
        Label.TRUE.value: accuracy * ASSUMED_SENSITIVITY / true_share,
        Label.FALSE.value: accuracy * (1 - ASSUMED_SENSITIVITY) / (1 - true_share),
        OTHER: 0.5,
    }
    n_true = round(population * true_share)
    sizes = {Label.TRUE.value: n_true, Label.FALSE.value: population - n_true}
    return [StratumPlan(sizes[label], 0, accuracy_of_label[label]) for label in JUDGE_STRATA if sizes.get(label)]


def statements_for(strata: Sequence[StratumPlan], half_width: Callable[[float, float], float], wanted: float) -> int:
    """Return the minimum number of statements for a half-width of at most `wanted` (at most the population).

    half_width: maps (variance, accuracy) to the expected half-width of the interval.
    """
    sizes, accuracy = [part.population for part in strata], accuracy_of(strata)
    spreads = [(part.accuracy * (1 - part.accuracy)) ** 0.5 for part in strata]

    def is_enough(n: int) -> bool:
        shares = allocate(n, sizes, "optimal", spreads, LEAST_PER_STRATUM)
        sampled = [part._replace(n=share) for part, share in zip(strata, shares, strict=True)]
        return half_width(variance(sampled), accuracy) <= wanted

    return len(strata) + bisect_left(range(len(strata), sum(sizes)), True, key=is_enough)


def judge_of(round: Round) -> tuple[str, float | None]:
    """Return the name and current cost of the round's judge.

    If there is none, describe an assumed judge, with None as cost.
    """
    run = round.judge_runs.filter(name=round.judge).first() if round.judge and round.pk else None
    if run is None:
        return f"a judge with sensitivity {ASSUMED_SENSITIVITY:g} and specificity {ASSUMED_SPECIFICITY:g}", None
    return str(run), float(usage_of(run).cost)
