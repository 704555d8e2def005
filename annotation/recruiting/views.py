"""The researchers' page of a round's single-use invites."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from annotation.models import Invite, Round
from annotation.recruiting.forms import InvitesForm
from annotation.recruiting.invites import make_invites, revoke_invites
from kgharvest.access import researcher_required
from kgharvest.bulk.file_writing import csv_lines
from kgharvest.bulk.lists import page_of

COLUMNS = ("link", "status", "ends", "used", "annotator")


@never_cache
@researcher_required
def round_invites(request: HttpRequest, name: str) -> HttpResponse:
    """List the invites and make more. Links are secrets: only those who manage the round see them."""
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    form = InvitesForm(request.POST or None)
    if form.is_valid():
        expires_at = timezone.now() + timedelta(days=form.cleaned_data["days"])
        made = make_invites(round, form.cleaned_data["n"], expires_at, request.user)
        messages.success(request, f"{len(made)} invites are ready; download them as CSV and send one to each person.")
        return redirect("annotation:round_invites", round.name)
    invites = round.invites.select_related("annotator").order_by("-pk")
    page = page_of(request, invites)
    now = timezone.now()
    context = {
        "round": round,
        "form": form,
        "page_obj": page,
        "invites": [described(request, invite, now) for invite in page],
        "n_usable": round.invites.usable(now).count(),
    }
    return render(request, "annotation/recruiting/round_invites.html", context)


@researcher_required
def invites_revoke(request: HttpRequest, name: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    if request.method == "POST":
        n = revoke_invites(round, request.POST.getlist("token"), timezone.now())
        messages.success(request, f"{n} invite{'' if n == 1 else 's'} taken back.")
    return redirect("annotation:round_invites", round.name)


@never_cache
@researcher_required
def invites_csv(request: HttpRequest, name: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    lines = csv_lines(COLUMNS, _csv_rows(request, round))
    response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{round.name}-invites.csv"'
    return response


def _csv_rows(request: HttpRequest, round: Round) -> Iterator[dict[str, str]]:
    now = timezone.now()
    for invite in round.invites.select_related("annotator").iterator(chunk_size=2000):
        shown = described(request, invite, now)
        yield {
            "link": shown["link"],
            "status": shown["status"],
            "ends": invite.expires_at.isoformat(),
            "used": invite.used_at.isoformat() if invite.used_at else "",
            "annotator": invite.annotator.code if invite.annotator else "",
        }


def described(request: HttpRequest, invite: Invite, now) -> dict:
    return {
        "invite": invite,
        "link": request.build_absolute_uri(invite.get_absolute_url()),
        "status": invite.status(now),
    }
