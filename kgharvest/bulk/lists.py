"""What lists have in common: columns to sort by, and pages."""

from __future__ import annotations

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest

from kgharvest.harvests.scores import RankedTuples

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
