"""Keyset pagination of API lists: each page starts after the last row of the previous page."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from django.core.exceptions import ValidationError as FieldError
from django.db.models import Q, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

ROWS_PER_PAGE = 100
MOST_ROWS = 500
LONGEST_CURSOR = 2000  # maximum number of characters of a cursor
BAD_CURSOR = "Invalid cursor for this list. Use the URL in `next` of the previous page."


def cursor_of(values: list[Any]) -> str:
    """Encode the position after a row with these values of the ordering columns."""
    return urlsafe_b64encode(json.dumps(values, default=str).encode()).decode().rstrip("=")


def values_of(cursor: str, n: int) -> list[Any]:
    """Decode the `n` values of a cursor. Raises ValidationError for invalid cursors."""
    try:
        padded = cursor[:LONGEST_CURSOR] + "=" * (-len(cursor) % 4)
        values = json.loads(urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, RecursionError):
        values = None
    if not (isinstance(values, list) and len(values) == n) or not all(
        isinstance(value, int | float) or (isinstance(value, str) and value.isprintable()) for value in values
    ):
        raise ValidationError({"after": [BAD_CURSOR]})
    return values


def rows_limit(request: Request) -> int:
    """Return the page size. Raises ValidationError."""
    text = request.query_params.get("limit", str(ROWS_PER_PAGE))
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MOST_ROWS):
        raise ValidationError({"limit": [f"Invalid limit. Use a number from 1 to {MOST_ROWS}."]})
    return int(text)


class CursorPagination(BasePagination):
    """Pages of rows in the view's `order`. Its columns are all ascending or all descending, and unique in combination.

    The query parameters are `limit` (page size) and `after` (cursor). "next" is the URL of the next page, null at the
    end.
    """

    fields = {"limit", "after"}

    def paginate_queryset(self, queryset: QuerySet, request: Request, view) -> list[Any]:
        self._request = request
        self._order = view.order
        limit = rows_limit(request)
        if "after" in request.query_params:
            queryset = queryset.filter(self._condition(queryset, request.query_params["after"]))
        rows = list(queryset.order_by(*self._order)[: limit + 1])
        self._last = rows[limit - 1] if len(rows) > limit else None
        return rows[:limit]

    def _condition(self, queryset: QuerySet, cursor: str) -> Q:
        """Return the condition that selects rows after a cursor. It compares the columns lexicographically."""
        names = [name.removeprefix("-") for name in self._order]
        meta = queryset.model._meta
        try:
            values = [
                (meta.pk if name == "pk" else meta.get_field(name)).to_python(value)
                for name, value in zip(names, values_of(cursor, len(names)), strict=True)
            ]
        except (FieldError, OverflowError, TypeError):
            raise ValidationError({"after": [BAD_CURSOR]}) from None
        beyond = "lt" if self._order[0].startswith("-") else "gt"
        after, equal = Q(), Q()
        for name, value in zip(names, values, strict=True):
            after |= equal & Q(**{f"{name}__{beyond}": value})
            equal &= Q(**{name: value})
        # This condition is redundant, but it is a range and lets the database use an index on the first column. The OR
        # alone is not a range.
        return after & Q(**{f"{names[0]}__{beyond}e": values[0]})

    def get_paginated_response(self, data: list[Any]) -> Response:
        next_page = None
        if self._last is not None:
            cursor = cursor_of([getattr(self._last, name.removeprefix("-")) for name in self._order])
            next_page = replace_query_param(self._request.build_absolute_uri(), "after", cursor)
        return Response({"next": next_page, "results": data})

    def get_schema_operation_parameters(self, view) -> list[dict[str, Any]]:
        limit = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS_PER_PAGE}
        cursor = 'Cursor from "next" of the previous page.'
        return [
            {"name": "limit", "in": "query", "description": "Rows per page.", "schema": limit},
            {"name": "after", "in": "query", "description": cursor, "schema": {"type": "string"}},
        ]

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["next", "results"],
            "properties": {
                "next": {
                    "type": ["string", "null"],
                    "format": "uri",
                    "description": "URL of the next page; null at the end of the list.",
                    "example": None,
                },
                "results": schema,
            },
        }
