"""Panels: page fragments that an app adds to pages of other apps, which cannot import that app (registries.PANELS).

`{% panels "region" subject %}` renders the panels of a region. `{% panels list %}` renders panels from the view.
Templates do not need to load the tag (settings.TEMPLATES).
"""

from dataclasses import dataclass, field
from typing import Any

from django import template
from django.conf import settings
from django.http import HttpRequest
from django.template.context import RequestContext
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString, mark_safe

from kgharvest.entry_points import PANELS, entry_points

register = template.Library()


@dataclass(frozen=True)
class Panel:
    """Page fragment: a template, rendered with the context of the page and `context`."""

    template: str
    context: dict[str, Any] = field(default_factory=dict)


def button(label: str, url: str, is_primary: bool = False) -> Panel:
    """Return a link styled as a button."""
    return Panel("partials/_button_link.html", {"label": label, "url": url, "is_primary": is_primary})


def panels_of(region: str, request: HttpRequest, subject: Any = None) -> list[Panel]:
    """Return the panels of a region, from apps and entry points. subject: the object of the page."""
    functions = [import_string(path) for path in settings.PANELS[region]]
    functions += [add for name, add in entry_points(PANELS).items() if name.partition(".")[0] == region]
    return [panel for add in functions for panel in add(request, subject)]


@register.simple_tag(takes_context=True)
def panels(context: RequestContext, panels: str | list[Panel], subject: Any = None) -> SafeString:
    """Render the panels of a list, or of the region with this name."""
    parts = panels_of(panels, context["request"], subject) if isinstance(panels, str) else panels
    html = []
    for panel in parts:
        with context.push(**panel.context):
            html.append(context.template.engine.get_template(panel.template).render(context))
    return mark_safe("".join(html))  # noqa: S308  templates escape what they print
