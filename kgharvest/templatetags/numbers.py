"""Numbers on pages; see kgharvest.pages.number_format for how each reads."""

from __future__ import annotations

from django import template

from kgharvest.pages.number_format import count, duration, hours, pace, percent, points, seconds, share

register = template.Library()
for number_filter in (count, duration, hours, pace, percent, points, seconds, share):
    register.filter(number_filter.__name__, number_filter)
