"""Sample-size planning: statements and relations needed for an interval width or for a difference between sides."""

import math
from bisect import bisect_left
from collections.abc import Callable

from scipy.special import ndtri, stdtrit

from kgharvest.statistics.paired_tests import smallest_p
from kgharvest.statistics.rates import SIGNIFICANCE

POWER = 0.8
MOST_RELATIONS = 10_000


def relations_for_interval(n_relations: int, shrink: float) -> int:
    """Return the relations for which Student's interval is `shrink` times as wide as with `n_relations`."""

    def width(n: int) -> float:
        return float(stdtrit(n - 1, 0.975)) / math.sqrt(n)

    target = shrink * width(n_relations)
    return _smallest(lambda n: width(n) <= target, n_relations)


def statements_to_shrink(n: int, population: int, shrink: float) -> int:
    """Return the statements of a stratum for a standard error `shrink` times that of `n`; at most all.

    population: 0 if infinite. The variance is proportional to 1 / n - 1 / N (Cochran 1977, section 2.6).
    """
    if not n or not population:
        return math.ceil(n / shrink**2)
    return min(population, math.ceil(1 / (shrink**2 * (1 / n - 1 / population) + 1 / population) - 1e-9))


def fewest_relations(n_comparisons: int) -> int:
    """Return the minimum number of relations with which a sign-flip test can be significant after Holm's adjustment."""
    return next(n for n in range(2, MOST_RELATIONS) if smallest_p(n) * n_comparisons < SIGNIFICANCE)


def relations_to_tell_apart(difference: float, spread: float, n_comparisons: int = 1) -> int | None:
    """Return the relations with which a paired comparison detects `difference` with probability POWER; None if >
    10,000.

    spread: standard deviation of the difference over relations, > 0. Student's paired test, two-sided, level .05
    divided by the number of comparisons, as Holm does for the smallest p. It approximates the sign-flip test except for
    few relations. The noncentral t distribution is approximated by a shifted central one.
    """
    start = fewest_relations(n_comparisons)
    n = _smallest(lambda n: difference_over_relations(spread, n, n_comparisons) <= abs(difference), start)
    return n if n < MOST_RELATIONS else None


def difference_over_relations(spread: float, n_relations: int, n_comparisons: int = 1) -> float:
    """Return the difference that a comparison over relations detects with probability POWER; inverse of
    `relations_to_tell_apart`."""
    quantiles = stdtrit(n_relations - 1, 1 - _tail(n_comparisons)) + stdtrit(n_relations - 1, POWER)
    return float(quantiles) * spread / math.sqrt(n_relations)


def difference_by_statements(standard_error: float, n_comparisons: int = 1) -> float:
    """Return the difference that a comparison by statements detects with probability POWER (normal approximation)."""
    return float(ndtri(1 - _tail(n_comparisons)) + ndtri(POWER)) * standard_error


def _tail(n_comparisons: int) -> float:
    """Return the one-sided level at which Holm tests the smallest p."""
    return SIGNIFICANCE / n_comparisons / 2


def _smallest(is_enough: Callable[[int], bool], start: int) -> int:
    """Return the smallest n >= `start` for which `is_enough`, or at least MOST_RELATIONS if there is none below it."""
    return start + bisect_left(range(start, MOST_RELATIONS), True, key=is_enough)
