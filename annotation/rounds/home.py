"""What rounds add to the start page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from annotation.judging.session_annotator import annotators_here
from annotation.models import Round
from kgharvest.access import is_researcher


def home_context(request: HttpRequest) -> dict[str, Any]:
    """Return what rounds add to the start page."""
    if is_researcher(request.user):
        return {"n_rounds": Round.objects.visible_to(request.user).count()}
    mine = annotators_here(request).filter(round__status=Round.Status.OPEN).select_related("round")
    return {
        "my_rounds": [
            {
                "name": annotator.round.name,
                "n_done": annotator.n_judged,
                "judge_url": reverse("annotation:judge", args=[annotator.round.name]),
            }
            for annotator in mine
        ]
    }
