"""Assertions on domain errors by their code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from kgharvest.errors import DomainError


@contextmanager
def refused(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[DomainError]]:
    """Assert that the block raises a DomainError with this code; match: a pattern of its message."""
    with pytest.raises(DomainError, match=match) as refusal:
        yield refusal
    assert refusal.value.code == code


def codes_of(outcomes: Iterable[object]) -> list[str]:
    """Return the codes of the domain errors among the outcomes of calls."""
    return [outcome.code for outcome in outcomes if isinstance(outcome, DomainError)]
