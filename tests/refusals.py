"""Assertions on domain errors by their code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kgharvest.errors import DomainError


@contextmanager
def refused(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[DomainError]]:
    """Assert that the block raises a DomainError with this code; match: a pattern of its message."""
    with pytest.raises(DomainError, match=match) as refusal:
        yield refusal
    assert refusal.value.code == code
