"""Pages of replication packages."""

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from evaluation.models import Report
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404
from kgharvest.contrib.publishing.models import PaperPack
from kgharvest.contrib.publishing.packs.pack_jobs import has_file, open_file, queue_pack
from kgharvest.errors import NotFound
from kgharvest.jobs import ledger, workers
from kgharvest.operations.files import FilesUnavailable
from kgharvest.pages.refusals import refusal_as_message


@researcher_required
def pack(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the report's newest package, or request a new one."""
    report = visible_or_404(request.user, Report.objects.for_list(), pk=pk)
    if request.method == "POST":
        queue_pack(report, request.user)
        return redirect("publishing:pack", pk)
    packs = report.packs.select_related("created_by").order_by("-pk")
    latest, done = packs.first(), packs.exclude(sha256="").first()
    has_stored_file, storage_error = False, ""
    try:
        has_stored_file = bool(done and has_file(done))
    except FilesUnavailable as reason:
        storage_error = str(reason)
    context = {
        "report": report,
        "pack": latest,
        "done": done,
        "has_file": has_stored_file,
        "away": storage_error,
        "may": allowed_actions(request.user, report.project),
        "lacks_worker": latest and workers.lacking_for(latest, timezone.now()),
    }
    return render(request, "publishing/packs/pack.html", context)


def pack_of(request: HttpRequest, pk: int, number: int, action: Action = Action.VIEW) -> PaperPack:
    report = visible_or_404(request.user, Report.objects.for_list(), action, pk=pk)
    return get_object_or_404(report.packs.select_related("report__round__project"), pk=number)


@researcher_required
@require_POST
def pack_cancel(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    pack = pack_of(request, pk, number, Action.WORK)
    with refusal_as_message(request):
        ledger.cancel(pack, request.user)
    return redirect("publishing:pack", pk)


@researcher_required
@require_GET
def pack_file(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    pack = pack_of(request, pk, number)
    with refusal_as_message(request):
        return pack_download(pack)
    return redirect("publishing:pack", pk)


def pack_download(pack: PaperPack) -> FileResponse:
    """Return the file as a download. Raises FilesUnavailable, or Http404 for a package without a file."""
    try:
        file = open_file(pack)
    except NotFound as reason:
        raise Http404(str(reason)) from None
    response = FileResponse(file, as_attachment=True, filename=pack.name, content_type="application/zip")
    response["Cache-Control"] = "private, no-store"
    return response
