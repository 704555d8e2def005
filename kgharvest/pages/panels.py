"""Panels: page fragments that apps add to pages of apps that cannot import them (registries.PANELS).

`{% panels "region" subject %}` renders the panels of a region.
"""

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string

from kgharvest.entry_points import PANELS, entry_points


@dataclass(frozen=True)
class Panel:
    """Page fragment: a template, rendered with the context of the page and `context`."""

    template: str
    context: dict[str, Any] = field(default_factory=dict)


def button(label: str, url: str) -> Panel:
    """Return a link styled as a button."""
    return Panel("partials/_button_link.html", {"label": label, "url": url})


def panels_of(region: str, request: HttpRequest, subject: Any = None) -> list[Panel]:
    """Return the panels of a region, from apps and entry points. subject: the object of the page."""
    functions = [import_string(path) for path in settings.PANELS[region]]
    functions += [add for name, add in entry_points(PANELS).items() if name.partition(".")[0] == region]
    return [panel for add in functions for panel in add(request, subject)]
