"""How shares, times and events look on pages of rounds."""

from __future__ import annotations

from django import template
from django.contrib.humanize.templatetags.humanize import intcomma

from annotation.quality.events import sentence

register = template.Library()
NONE = "–"


@register.filter
def share(value: float | None) -> str:
    """Return a share or an alpha as tables print it: .87, 1.00, -.05."""
    if value is None:
        return NONE
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.2f}"


@register.filter
def number(value: int | None) -> str:
    return NONE if value is None else intcomma(value)


@register.filter
def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f} s"


@register.filter
def hours(value: float | None) -> str:
    """Return a length of time in the unit that people would use."""
    if value is None:
        return NONE
    if value < 1:
        return f"{max(1, round(60 * value))} min"
    return f"{value:.0f} h" if value < 48 else f"{value / 24:.0f} days"


register.filter("sentence", sentence)
