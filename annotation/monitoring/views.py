"""What researchers do while a round is judged: release statements that somebody holds."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from annotation.monitoring.assigned import release_assigned
from annotation.refusals import refusal_as_message
from annotation.rounds.views import visible_round
from kgharvest.access import Action, researcher_required
from kgharvest.pages.number_format import counted


@researcher_required
@require_POST
def round_release(request: HttpRequest, path: str) -> HttpResponse:
    """Release what the annotators named by `annotator` are assigned; what all are where none is named."""
    round = visible_round(request, path, Action.WORK)
    with refusal_as_message(request):
        n = release_assigned(round, request.POST.getlist("annotator") or None, by=request.user)
        gone = "" if n else "; they were answered or released meanwhile"
        messages.success(request, f"{counted(n, 'assigned statement')} released{gone}.")
    return redirect(round)
