"""Pagination: numbered pages, and search filters with keyset pagination for lists too long to count.

Invalid pages, cursors, and sort keys in URLs are ignored.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import isfinite
from operator import or_
from typing import Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Expression, Q, QuerySet
from django.http import HttpRequest, QueryDict

ROWS_PER_PAGE = 50
COUNTED_UP_TO = 10_000
MOST_SCANNED = 30_000  # maximum number of rows scanned per page
MOST_LOOKED_UP = 20_000  # maximum number of rows that are looked up per filter
LARGEST_ID = 2**63 - 1  # largest id of a database row


def number_in(text: str | None) -> int | None:
    """Parse a row id or position in a URL. Returns None if it is invalid or larger than LARGEST_ID."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > len(str(LARGEST_ID)):
        return None
    number = int(text)
    return number if number <= LARGEST_ID else None


def sort_key(request: HttpRequest, sortable: Mapping[str, str], default: str) -> str:
    """Return the sort key of the query: a key of `sortable`, with a leading minus for descending order."""
    key = request.GET.get("sort", default)
    return key if key.removeprefix("-") in sortable else default


def sorted_by(queryset: QuerySet, key: str, sortable: Mapping[str, str]) -> QuerySet:
    sign = "-" if key.startswith("-") else ""
    return queryset.order_by(sign + sortable[key.removeprefix("-")], "-pk")


def containing(rows: QuerySet, text: str, columns: Iterable[str]) -> QuerySet:
    """Return the rows with `text` in one of the columns, ignoring case."""
    return rows.filter(reduce(or_, (Q(**{f"{column}__icontains": text}) for column in columns))) if text else rows


def page_of(request: HttpRequest, rows: QuerySet | Sequence[Any]) -> Page:
    return Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page"))


def bounded_count(queryset: QuerySet) -> int:
    """Return the number of rows, or COUNTED_UP_TO + 1 for larger numbers."""
    n: int = queryset.order_by().values("pk")[: COUNTED_UP_TO + 1].count()
    return n


class SearchFilter(NamedTuple):
    """A search filter in two forms. `ids` selects the ids of matching rows, possibly repeated.

    `condition` is the equivalent condition on one row.
    """

    ids: QuerySet
    condition: Expression | Q


class Filtered(NamedTuple):
    """Filtered rows. rows: matching rows. scanned: rows to scan for matches, or None if matches are looked up by id."""

    rows: QuerySet
    scanned: QuerySet | None = None


def apply_filters(rows: QuerySet, filters: Iterable[SearchFilter]) -> Filtered:
    """Return the rows that match all filters, at a cost that does not depend on the number of rows.

    If few ids match a filter, the matching rows are looked up and sorted. Otherwise, `rows` are scanned in list order,
    at most MOST_SCANNED per page. If matches are rare, a page can then be short, and the next page continues the scan.
    """
    is_looked_up, conditions = False, []
    for search_filter in filters:
        if search_filter.ids[: MOST_LOOKED_UP + 1].count() <= MOST_LOOKED_UP:
            rows = rows.filter(pk__in=search_filter.ids)
            is_looked_up = True
        else:
            conditions.append(search_filter.condition)
    return Filtered(rows.filter(*conditions), rows if conditions and not is_looked_up else None)


class Cursor(NamedTuple):
    """Position of a row in a sorted list: sort value and id. Its text is used in URLs."""

    value: float
    pk: int

    def __str__(self) -> str:
        return f"{self.value!r},{self.pk}"


class KeysetPage(NamedTuple):
    """A page of a list. rows: rows in list order.

    after, before: cursors of the next and previous page, None at the ends.

    n_scanned: number of scanned rows if the scan limit cut the page short, otherwise None.
    """

    rows: Sequence[Any]
    after: Cursor | None
    before: Cursor | None
    n_scanned: int | None = None


def keyset_page(filtered: Filtered, sort: str, query: QueryDict, n_rows: int) -> KeysetPage:
    """Return the page at the cursor `after` or `before` in the query string, or the first page if there is no cursor.

    sort: numeric column without NULLs, with a leading minus for descending order.
    """
    after, before = _parse_cursor(query.get("after")), _parse_cursor(query.get("before"))
    if before is None:
        rows, end, n_scanned = _rows_after(filtered, sort, after, n_rows)
        first = _cursor_at(rows[0], sort) if rows else after
        return KeysetPage(rows, end, first if after else None, n_scanned)
    backwards = sort.removeprefix("-") if sort.startswith("-") else f"-{sort}"
    rows, end, n_scanned = _rows_after(filtered, backwards, before, n_rows)
    rows = rows[::-1]
    return KeysetPage(rows, _cursor_at(rows[-1], sort) if rows else before, end, n_scanned)


def _parse_cursor(text: str | None) -> Cursor | None:
    value, _, number = (text or "").partition(",")
    try:
        position = float(value)
    except ValueError:
        return None
    pk = number_in(number)
    return Cursor(position, pk) if pk is not None and isfinite(position) else None


def _cursor_at(row: Any, sort: str) -> Cursor:
    return Cursor(getattr(row, sort.removeprefix("-")), row.pk)


def _rows_after(
    filtered: Filtered, sort: str, start: Cursor | None, n_rows: int
) -> tuple[list[Any], Cursor | None, int | None]:
    """Return the rows of the page after `start`, the cursor of the next page, and `n_scanned` for the KeysetPage."""
    end = _end_of_scan(filtered.scanned, sort, start)
    rows: list[Any] = []
    for index_range in _index_ranges(filtered.rows, sort, start, end):
        rows += index_range[: n_rows + 1 - len(rows)]
        if len(rows) > n_rows:
            return rows[:n_rows], _cursor_at(rows[n_rows - 1], sort), None
    return rows, end, MOST_SCANNED if end else None


def _end_of_scan(scanned: QuerySet | None, sort: str, start: Cursor | None) -> Cursor | None:
    """Return the position of the last row that one page may scan, or None if the list ends before it."""
    if scanned is None:
        return None
    n_left = MOST_SCANNED
    for index_range in _index_ranges(scanned.values_list(sort.removeprefix("-"), "pk"), sort, start, None):
        if last := index_range[n_left - 1 : n_left].first():
            return Cursor(*last)
        n_left -= index_range[:n_left].count()
    return None


def _index_ranges(queryset: QuerySet, sort: str, start: Cursor | None, end: Cursor | None) -> list[QuerySet]:
    """Return the ordered rows after `start`, up to and including `end`, as ranges of the index on `sort`.

    With a single condition instead of ranges, the database would read all rows with the same sort value as `start` or
    `end`.
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
