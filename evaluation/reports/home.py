"""What reports add to the start page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from evaluation.reports.models import Report
from kgharvest.access import is_researcher


def home_context(request: HttpRequest) -> dict[str, Any]:
    """Return what reports add to the start page."""
    if not is_researcher(request.user):
        return {}
    return {"n_reports": Report.objects.visible_to(request.user).count()}
