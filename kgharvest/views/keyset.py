"""Pages of lists that are too long to count and to skip through: each page starts where another one ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.http import QueryDict

from kgharvest.views.lists import ROWS_PER_PAGE

COUNTED_UP_TO = 10_000


class Place(NamedTuple):
    """A row's place in the order of a list: the value that it is sorted by, and its id."""

    value: float
    pk: int

    def __str__(self) -> str:
        return f"{self.value!r},{self.pk}"


class KeysetPage(NamedTuple):
    """rows: in the order of the list. after, before: the places to go on from, None at an end of the list."""

    rows: Sequence[Any]
    after: Place | None
    before: Place | None


def keyset_page(queryset: QuerySet, sort: str, address: QueryDict) -> KeysetPage:
    """Return the page that `address` asks for with "after" or "before", else the first.

    sort: a numeric column that is never NULL, with a minus if the largest comes first.
    """
    column, is_descending = sort.removeprefix("-"), sort.startswith("-")
    after, before = _place(address.get("after")), _place(address.get("before"))
    if before is not None:
        rows = _rows_from(queryset, column, not is_descending, before)
        has_before, rows = len(rows) > ROWS_PER_PAGE, rows[:ROWS_PER_PAGE][::-1]
        has_after = True
    else:
        rows = _rows_from(queryset, column, is_descending, after)
        has_after, rows = len(rows) > ROWS_PER_PAGE, rows[:ROWS_PER_PAGE]
        has_before = after is not None
    places = [Place(getattr(row, column), row.pk) for row in rows]
    return KeysetPage(rows, places[-1] if rows and has_after else None, places[0] if rows and has_before else None)


def _rows_from(queryset: QuerySet, column: str, is_descending: bool, place: Place | None) -> list[Any]:
    """Return up to a page and one row beyond `place`."""
    sign, beyond = ("-", "lt") if is_descending else ("", "gt")
    ordered = queryset.order_by(f"{sign}{column}", f"{sign}pk")
    if place is None:
        return list(ordered[: ROWS_PER_PAGE + 1])
    # Two ranges of the index; one condition for both would walk through all rows of equal value.
    ties = list(ordered.filter(**{column: place.value, f"pk__{beyond}": place.pk})[: ROWS_PER_PAGE + 1])
    rest = ordered.filter(**{f"{column}__{beyond}": place.value})
    return ties + list(rest[: ROWS_PER_PAGE + 1 - len(ties)])


def _place(text: str | None) -> Place | None:
    value, _, pk = (text or "").partition(",")
    try:
        return Place(float(value), int(pk))
    except ValueError:
        return None


def bounded_count(queryset: QuerySet) -> int:
    """Return how many rows there are; COUNTED_UP_TO + 1 stands for more than COUNTED_UP_TO."""
    return queryset.order_by().values("pk")[: COUNTED_UP_TO + 1].count()
