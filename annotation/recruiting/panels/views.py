"""Researchers' pages of panels: a round's list, the form, one panel with its people, and their CSV."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from annotation.models import Panel
from annotation.recruiting.panels.presets import entry_link
from annotation.recruiting.views import managed_round
from kgharvest.access import researcher_required
from kgharvest.bulk.pagination import page_of


@never_cache
@researcher_required
def panel_list(request: HttpRequest, path: str) -> HttpResponse:
    round = managed_round(request, path)
    context = {"round": round, "page_obj": page_of(request, round.panels.order_by("-pk"))}
    return render(request, "annotation/recruiting/panels/panel_list.html", context)


@never_cache
@researcher_required
def panel_new(request: HttpRequest, path: str) -> HttpResponse:
    return render(request, "annotation/recruiting/panels/panel_form.html", {"round": managed_round(request, path)})


def managed_panel(request: HttpRequest, path: str, name: str) -> Panel:
    """Return the panel that an address names, for who works in its project. Raises Http404, NotAllowed."""
    round = managed_round(request, path)
    return get_object_or_404(round.panels.select_related("round__project"), name=name)


@never_cache
@researcher_required
def panel(request: HttpRequest, path: str, name: str) -> HttpResponse:
    panel = managed_panel(request, path, name)
    address = request.build_absolute_uri(reverse("annotation:panel_enter", args=[panel.token]))
    context = {"round": panel.round, "panel": panel, "entry_link": entry_link(panel, address)}
    return render(request, "annotation/recruiting/panels/panel.html", context)
