"""Sample-size planning: statements and relations that make an interval narrower, or tell two sides apart."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from scipy.special import ndtri, stdtrit

from kgharvest.statistics.paired_tests import smallest_p
from kgharvest.statistics.rates import SIGNIFICANCE

POWER = 0.8
MOST_RELATIONS = 10_000


def relations_for_interval(n_relations: int, shrink: float) -> int:
    """Return how many relations make Student's interval over relations `shrink` times as wide as that over these."""
    width_now = _width(n_relations)
    return _smallest(lambda n: _width(n) <= shrink * width_now, n_relations)


def _width(n: int) -> float:
    return float(stdtrit(n - 1, 0.975)) / math.sqrt(n)


def statements_to_shrink(n: int, population: int, shrink: float) -> int:
    """Return how many statements of a stratum make its rate `shrink` times as uncertain as `n` do; at most all.

    population: 0 for an endless one. The variance is proportional to 1 / n - 1 / N (Cochran 1977, section 2.6).
    """
    if not n or not population:
        return math.ceil(n / shrink**2)
    return min(population, math.ceil(1 / (shrink**2 * (1 / n - 1 / population) + 1 / population) - 1e-9))


def fewest_relations(n_comparisons: int) -> int:
    """Return the fewest relations with which a sign-flip test can be significant after Holm, whichever comparison."""
    return next(n for n in range(2, MOST_RELATIONS) if smallest_p(n) * n_comparisons < SIGNIFICANCE)


def relations_to_tell_apart(difference: float, spread: float, n_comparisons: int = 1) -> int | None:
    """Return the relations at which a paired comparison finds `difference` in POWER of rounds; None beyond 10,000.

    spread: standard deviation of the difference over relations, > 0. Student's paired test, two-sided .05 divided by
    the number of comparisons, as Holm does for the smallest p. The sign-flip test over relations matches it but for few
    relations; the noncentral t distribution is taken as the central one moved.
    """
    start = fewest_relations(n_comparisons)
    n = _smallest(lambda n: difference_over_relations(spread, n, n_comparisons) <= abs(difference), start)
    return n if n < MOST_RELATIONS else None


def difference_over_relations(spread: float, n_relations: int, n_comparisons: int = 1) -> float:
    """Return the difference that a comparison over relations finds in POWER of rounds; as `relations_to_tell_apart`."""
    tail = _tail(n_comparisons)
    return float(stdtrit(n_relations - 1, 1 - tail) + stdtrit(n_relations - 1, POWER)) * spread / math.sqrt(n_relations)


def difference_by_statements(standard_error: float, n_comparisons: int = 1) -> float:
    """Return the difference that a comparison of two sides by their statements finds in POWER of rounds; normal."""
    return float(ndtri(1 - _tail(n_comparisons)) + ndtri(POWER)) * standard_error


def _tail(n_comparisons: int) -> float:
    """Return the level on either side at which Holm tests the smallest p."""
    return SIGNIFICANCE / n_comparisons / 2


def _smallest(is_enough: Callable[[int], bool], start: int) -> int:
    """Return the smallest n from `start` on that is enough, MOST_RELATIONS if none below is."""
    return start + bisect_left(range(start, MOST_RELATIONS), True, key=is_enough)
