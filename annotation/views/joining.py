"""How a person becomes an annotator of a round."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from annotation.forms import DEFAULT_INSTRUCTIONS
from annotation.models import Round
from annotation.services.joining import join_round
from kgharvest.errors import DomainError


@login_required
def join(request: HttpRequest, token: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.exclude(status=Round.Status.DRAFT), join_token=token)
    if request.method == "POST":
        try:
            join_round(round, request.user)
        except DomainError as refusal:
            messages.error(request, str(refusal))
        else:
            return redirect("annotation:judge", round.name)
    context = {"round": round, "instructions": round.instructions or DEFAULT_INSTRUCTIONS}
    return render(request, "annotation/join.html", context)
