"""Statistics that pages of rounds show and evaluation computes; settings name the functions: imports go one way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

Pattern = Sequence[int]  # how often True, False and Unjudgeable were said, and of how many tasks


def agreement(patterns: Iterable[Pattern]) -> dict[str, Any]:
    """Return percent_agreement and Krippendorff's alpha without interval, n_units, and reason where alpha is None."""
    return import_string(settings.ROUND_STATISTICS["agreement"])(patterns)


def share(n_hits: int, n: int) -> dict[str, float | None]:
    """Return the value of a share with low and high, its 95 % Wilson interval; all None if n is 0."""
    rate = import_string(settings.ROUND_STATISTICS["rate"])(n_hits, n)
    return {"value": rate.value, "low": rate.low, "high": rate.high}
