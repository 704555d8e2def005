"""Statistics that pages of rounds show and evaluation computes; settings.HOOKS names the functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kgharvest.pages.panels import hook

Pattern = Sequence[int]  # how often True, False and Unjudgeable were said, and of how many tasks


def agreement(patterns: Iterable[Pattern]) -> dict[str, Any]:
    """Return percent_agreement and Krippendorff's alpha without interval, n_units, and reason where alpha is None."""
    return hook("agreement")(patterns)


def share(n_hits: int, n: int) -> dict[str, float | None]:
    """Return the value of a share with low and high, its 95 % Wilson interval; all None if n is 0."""
    rate = hook("rate")(n_hits, n)
    return {"value": rate.value, "low": rate.low, "high": rate.high}
