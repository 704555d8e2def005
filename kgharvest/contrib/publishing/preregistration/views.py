"""Pages of preregistrations: the form of a new version, and what was frozen."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from annotation.rounds.views import visible_round
from kgharvest.access import Action, researcher_required
from kgharvest.audit.tables import canonical_json
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.forms import PlanForm, first_words
from kgharvest.contrib.publishing.preregistration.markdown import (
    as_markdown,
    comparisons_in_words,
    hypotheses_in_words,
    texts_of,
    values_of,
)
from kgharvest.contrib.publishing.preregistration.plan import TEXTS, PlanSerializer, pairs_compared
from kgharvest.contrib.publishing.preregistration.services import check_unjudged, freeze_preregistration, parts_of
from kgharvest.errors import DomainError
from kgharvest.tables.downloads import download

FILE_FORMATS = ("json", "md")


@researcher_required
def preregister(request: HttpRequest, path: str) -> HttpResponse:
    """Freeze the round as it is now, with what people say; refused from the first judgment on."""
    round = visible_round(request, path, Action.WORK)
    try:
        check_unjudged(round)
        parts = parts_of(round, request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(round)
    last = round.preregistrations.order_by("-version").first()
    words = first_words(round, parts.limits.sentence)
    if last:
        words |= {name: last.document["plan"][name] for name in TEXTS}
    form = PlanForm(request.POST or None, pairs=pairs_compared(parts.cells), initial=words)
    if form.is_valid():
        try:
            plan = PlanSerializer(data=form.document())
            if not plan.is_valid():
                raise DomainError("BadPlan", f"The plan cannot be read: {plan.errors}")
            frozen = freeze_preregistration(round, plan.validated_data, timezone.now(), request.user)
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, "Frozen. Quote its SHA-256 where you announce the study.")
            return redirect(frozen)
    return render(request, "publishing/preregistration/preregister.html", {"round": round, "form": form, "last": last})


def find_preregistration(request: HttpRequest, path: str, version: int) -> Preregistration:
    versions = visible_round(request, path).preregistrations.select_related("round__project")
    frozen: Preregistration = get_object_or_404(versions, version=version)
    return frozen


@researcher_required
def preregistration(request: HttpRequest, path: str, version: int) -> HttpResponse:
    frozen = find_preregistration(request, path, version)
    document = frozen.document
    context = {
        "frozen": frozen,
        "round": frozen.round,
        "document": document,
        "hypotheses": hypotheses_in_words(document["plan"]),
        "comparisons": comparisons_in_words(document["plan"]),
        "texts": texts_of(document["plan"]),
        "values": list(values_of(document["state"])),
        "versions": frozen.round.preregistrations.defer("document"),
    }
    return render(request, "publishing/preregistration/preregistration.html", context)


@researcher_required
def preregistration_file(request: HttpRequest, path: str, version: int, file_format: str) -> HttpResponse:
    return preregistration_download(find_preregistration(request, path, version), file_format)


def preregistration_download(frozen: Preregistration, file_format: str) -> HttpResponse:
    """Return the file, whose SHA-256 is the one recorded if it is JSON. Raises Http404 for what there is not."""
    if file_format not in FILE_FORMATS:
        raise Http404(f"Preregistrations come as {', '.join(FILE_FORMATS)}.")
    text = canonical_json(frozen.document) if file_format == "json" else as_markdown(frozen)
    name = f"{frozen.round.name}-preregistration-{frozen.version}.{file_format}"
    return download(text, name)
