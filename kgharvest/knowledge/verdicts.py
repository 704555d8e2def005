"""What people judged about tuples, from the app that knows it (settings.HOOKS)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from django.db.models import QuerySet

from kgharvest.pages.panels import hook


class TupleVerdicts(Protocol):
    """The judged tuples that one user may know of. choices: verdicts with their names."""

    choices: list[tuple[str, str]]

    def __init__(self, user) -> None: ...

    def with_verdict(self, verdict: str) -> QuerySet:
        """Return rows with a `knowledge_tuple`, those that got the verdict in some round."""

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[Any]]:
        """Return the tasks of each tuple, with `round`, `verdict`, `n_true`, `n_false` and `n_unjudgeable`."""


def verdicts_known_to(user) -> TupleVerdicts:
    return hook("tuple_verdicts")(user)
