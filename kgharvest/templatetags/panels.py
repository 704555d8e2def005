"""`{% panels "place" subject %}`: what apps add to a page (kgharvest.pages.panels)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import template
from django.template.context import RequestContext
from django.utils.safestring import SafeString, mark_safe

from kgharvest.pages.panels import Panel, panels_of

register = template.Library()


@register.simple_tag(takes_context=True)
def panels(context: RequestContext, place: str, subject: Any = None) -> SafeString:
    return rendered(context, panels_of(place, context["request"], subject))


@register.simple_tag(takes_context=True)
def rendered(context: RequestContext, parts: Iterable[Panel]) -> SafeString:
    """Render panels that the view has asked for already."""
    html = []
    for panel in parts:
        with context.push(**panel.context):
            html.append(context.template.engine.get_template(panel.template).render(context))
    return mark_safe("".join(html))  # noqa: S308  templates escape what they print
