"""Sample-size planning: how many relations make an interval narrower, or tell two sides apart."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from scipy.special import stdtr, stdtrit

POWER = 0.8
MOST_RELATIONS = 10_000


def relations_for_interval(n_relations: int, shrink: float) -> int:
    """Return how many relations make Student's interval over relations `shrink` times as wide as that over these."""
    width_now = _width(n_relations)
    return _smallest(lambda n: _width(n) <= shrink * width_now, n_relations)


def _width(n: int) -> float:
    return float(stdtrit(n - 1, 0.975)) / math.sqrt(n)


def relations_to_tell_apart(difference: float, spread: float) -> int | None:
    """Return the relations at which a paired comparison finds `difference` in POWER of rounds; None beyond 10,000.

    spread: standard deviation of the difference over relations, > 0. Student's paired test, two-sided .05, which the
    sign-flip test over relations matches but for few relations; the noncentral t distribution is taken as the central
    one moved.
    """
    effect = abs(difference) / spread
    n = _smallest(lambda n: _power(effect, n) >= POWER, 2)
    return n if n < MOST_RELATIONS else None


def _power(effect: float, n: int) -> float:
    return float(stdtr(n - 1, effect * math.sqrt(n) - stdtrit(n - 1, 0.975)))


def _smallest(is_enough: Callable[[int], bool], start: int) -> int:
    """Return the smallest n from `start` on that is enough, MOST_RELATIONS if none below is."""
    return start + bisect_left(range(start, MOST_RELATIONS), True, key=is_enough)
