"""Pages of lists that are too long to count and to skip through: each page starts where another one ended."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, QueryDict

from kgharvest.bulk.search_filters import Narrowed
from kgharvest.harvests.cuts import RankedTuples

COUNTED_UP_TO = 10_000
SOUGHT = 30_000  # tuples that are asked one by one for a page


class Place(NamedTuple):
    """A row's place in the order of a list: the value that it is sorted by, and its id."""

    value: float
    pk: int

    def __str__(self) -> str:
        return f"{self.value!r},{self.pk}"


class KeysetPage(NamedTuple):
    """rows: in the order of the list. after, before: the places to go on from, None at an end of the list.

    n_sought: of a page that is short because no more rows fit among so many, None of another one.
    """

    rows: Sequence[Any]
    after: Place | None
    before: Place | None
    n_sought: int | None = None


def keyset_page(narrowed: Narrowed, sort: str, address: QueryDict, n_rows: int) -> KeysetPage:
    """Return the page that `address` asks for with "after" or "before", else the first.

    sort: a numeric column that is never NULL, with a minus if the largest comes first.
    """
    after, before = _place(address.get("after")), _place(address.get("before"))
    if before is None:
        rows, goes_on, n_sought = _rows_beyond(narrowed, sort, after, n_rows)
        return KeysetPage(rows, goes_on, _first(rows, sort) or after if after else None, n_sought)
    backwards = sort.removeprefix("-") if sort.startswith("-") else f"-{sort}"
    rows, goes_on, n_sought = _rows_beyond(narrowed, backwards, before, n_rows)
    rows = rows[::-1]
    return KeysetPage(rows, _place_of(rows[-1], sort) if rows else before, goes_on, n_sought)


def _first(rows: Sequence[Any], sort: str) -> Place | None:
    return _place_of(rows[0], sort) if rows else None


def _place_of(row: Any, sort: str) -> Place:
    return Place(getattr(row, sort.removeprefix("-")), row.pk)


def _rows_beyond(
    narrowed: Narrowed, sort: str, start: Place | None, n_rows: int
) -> tuple[list[Any], Place | None, int | None]:
    """Return a page of rows beyond `start`, where to go on from, and the number sought in if that cut it short."""
    end = _end_of_search(narrowed.sought_in, sort, start)
    rows = _between(narrowed.tuples, sort, start, end, n_rows + 1)
    if len(rows) > n_rows:
        return rows[:n_rows], _place_of(rows[n_rows - 1], sort), None
    return rows, end, SOUGHT if end else None


def _end_of_search(sought_in: QuerySet | None, sort: str, start: Place | None) -> Place | None:
    """Return the last place that one page looks at; None if the list ends before."""
    if sought_in is None:
        return None
    column = sort.removeprefix("-")
    n_passed = 0
    for part in _parts(sought_in.values_list(column, "pk"), sort, start, None):
        if last := part[SOUGHT - n_passed - 1 : SOUGHT - n_passed].first():
            return Place(*last)
        n_passed += part[: SOUGHT - n_passed].count()
    return None


def _between(queryset: QuerySet, sort: str, start: Place | None, end: Place | None, n: int) -> list[Any]:
    rows: list[Any] = []
    for part in _parts(queryset, sort, start, end):
        rows += part[: n - len(rows)]
        if len(rows) == n:
            break
    return rows


def _parts(queryset: QuerySet, sort: str, start: Place | None, end: Place | None) -> list[QuerySet]:
    """Return the ordered rows after `start` up to and with `end`, as ranges of the index by `sort`.

    One condition for all of them would walk through the rows of equal value.
    """
    column, pk = sort.removeprefix("-"), "-pk" if sort.startswith("-") else "pk"
    beyond, until = ("lt", "gte") if sort.startswith("-") else ("gt", "lte")
    ordered = queryset.order_by(sort, pk)
    after = Q(**{f"pk__{beyond}": start.pk}) if start else Q()
    upto = Q(**{f"pk__{until}": end.pk}) if end else Q()
    if start and end and start.value == end.value:
        return [ordered.filter(after, upto, **{column: start.value})]
    inner = Q(**{f"{column}__{beyond}": start.value}) if start else Q()
    inner &= Q(**{f"{column}__{until.removesuffix('e')}": end.value}) if end else Q()
    first = [ordered.filter(after, **{column: start.value})] if start else []
    last = [ordered.filter(upto, **{column: end.value})] if end else []
    return [*first, ordered.filter(inner), *last]


def _place(text: str | None) -> Place | None:
    value, _, pk = (text or "").partition(",")
    try:
        place = Place(float(value), int(pk))
    except ValueError:
        return None
    return place if isfinite(place.value) else None


def bounded_count(queryset: QuerySet) -> int:
    """Return how many rows there are; COUNTED_UP_TO + 1 stands for more than COUNTED_UP_TO."""
    return queryset.order_by().values("pk")[: COUNTED_UP_TO + 1].count()


ROWS_PER_PAGE = 50


def sort_key(request: HttpRequest, sortable: dict[str, str], default: str) -> str:
    """Return the key of `sortable`, perhaps with a minus, that the address asks to sort by."""
    asked = request.GET.get("sort", default)
    return asked if asked.removeprefix("-") in sortable else default


def sorted_by(queryset: QuerySet, key: str, sortable: dict[str, str]) -> QuerySet:
    sign = "-" if key.startswith("-") else ""
    return queryset.order_by(sign + sortable[key.removeprefix("-")], "-pk")


def page_of(request: HttpRequest, rows: QuerySet | RankedTuples) -> Page:
    return Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page"))
