"""The start page of everybody."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.module_loading import import_string

from kgharvest.access import is_researcher
from kgharvest.models import HarvestJob, Launch, Relation


def home(request: HttpRequest) -> HttpResponse:
    """The start page of each role. The apps to the right of this one in settings.HOME_CONTEXT add what is theirs."""
    context: dict[str, Any] = {}
    if is_researcher(request.user):
        context = {
            "n_relations": Relation.objects.count(),
            "n_harvests": HarvestJob.objects.count(),
            "launches": Launch.objects.unfinished()[:3],
            "unfinished_jobs": HarvestJob.objects.with_cell().unfinished().under_way_first()[:5],
        }
    for path in settings.HOME_CONTEXT:
        context |= import_string(path)(request)
    return render(request, "kgharvest/home/home.html", context)
