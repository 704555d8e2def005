"""Durations and paces as people say them."""

from __future__ import annotations

from math import ceil

from django import template

register = template.Library()


@register.filter
def duration(seconds: float | None) -> str:
    """Return "45 s", "12 min" or "3 h 20 min", rounded up; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{ceil(seconds)} s"
    hours, minutes = divmod(ceil(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


@register.filter
def pace(per_minute: float | None) -> str:
    """Return "12 a minute" or, below one a minute, "30 an hour"; nothing for None."""
    if per_minute is None:
        return ""
    return f"{per_minute:.0f} a minute" if per_minute >= 1 else f"{60 * per_minute:.0f} an hour"
