"""How sentences with slots look on pages."""

from __future__ import annotations

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from kgharvest.engine.prompts.template import SLOT

register = template.Library()


@register.filter
def slots(text: str) -> SafeString:
    """Set off the slots of a prompt or statement."""
    pieces = SLOT.split(text)
    marked = [
        f'<code class="slot">&lt;ENT{piece}&gt;</code>' if index % 2 else escape(piece)
        for index, piece in enumerate(pieces)
    ]
    return mark_safe("".join(marked))  # noqa: S308  every piece is escaped or a number
