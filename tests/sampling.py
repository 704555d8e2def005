"""Samples of parametrized cases: some run by default, all with `-m exhaustive`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def only(default: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Mark all cases as exhaustive except those in `default`."""
    return [pytest.param(case, marks=() if case in default else pytest.mark.exhaustive) for case in cases]


def every(step: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Mark all cases as exhaustive except every `step`-th.

    For a product of lists, choose a step that is coprime to the length of each list, so that every value is used.
    """
    return [
        pytest.param(*case, marks=pytest.mark.exhaustive if number % step else ()) for number, case in enumerate(cases)
    ]
