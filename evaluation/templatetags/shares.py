"""How shares look in tables."""

from __future__ import annotations

from django import template

from evaluation.reports.tables import short

register = template.Library()
register.filter("short", short)


@register.filter
def tenths(share: float | None) -> str:
    """Return the class that shades a cell by its share; none for an unknown one."""
    return "" if share is None else f"acc-{round(10 * share)}"
