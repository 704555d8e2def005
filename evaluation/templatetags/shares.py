"""How shares and tables look on pages."""

from __future__ import annotations

from django import template

from evaluation.reports.tables import Column, Kind, short, text_of

register = template.Library()
register.filter("short", short)


@register.filter
def tenths(share: float | None) -> str:
    """Return the class that shades a cell by its share; none for an unknown one."""
    return "" if share is None else f"acc-{round(10 * share)}"


@register.filter
def reads(cell: tuple[object, Column]) -> str:
    """Return the value of a table's cell as people read it."""
    value, column = cell
    return text_of(value, column.kind)


@register.filter
def is_text(column: Column) -> bool:
    return column.kind is Kind.TEXT
