"""Events of a round's log on pages."""

from __future__ import annotations

from django import template

from annotation.quality.events import sentence

register = template.Library()
register.filter("event_sentence", sentence)
