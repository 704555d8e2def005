"""Pages of reports: they only render what was frozen."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from annotation.models import Round
from evaluation.models import Report
from evaluation.reports.tables import agreement_in_words, agreement_matrix, cell_table, footnotes
from evaluation.reports.writers import FORMATS
from evaluation.services.reports import create_report
from kgharvest.access import researcher_required
from kgharvest.views.lists import page_of, sort_key, sorted_by

REPORT_COLUMNS = {"round": "round__name", "study": "round__study__name", "made": "created_at"}


@researcher_required
def report_list(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("q", "").strip()
    reports = Report.objects.visible_to(request.user).for_list()
    if asked:
        reports = reports.filter(round__name__icontains=asked)
    sort = sort_key(request, REPORT_COLUMNS, "-made")
    context = {"page_obj": page_of(request, sorted_by(reports, sort, REPORT_COLUMNS)), "asked": asked, "sort": sort}
    return render(request, "evaluation/report_list.html", context)


@researcher_required
@require_POST
def report_new(request: HttpRequest, name: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    return redirect(create_report(round, by=request.user))


@researcher_required
def report_detail(request: HttpRequest, pk: int) -> HttpResponse:
    reports = Report.objects.visible_to(request.user).select_related("round", "created_by")
    report = get_object_or_404(reports, pk=pk)
    document = report.document
    context = {
        "report": report,
        "document": document,
        "table": cell_table(document),
        "footnotes": footnotes(document),
        "alpha": agreement_in_words(document["alpha"]),
        "alpha_without_unjudgeable": agreement_in_words(document["alpha_without_unjudgeable"]),
        "agreement_matrix": agreement_matrix(document),
        "formats": FORMATS,
    }
    return render(request, "evaluation/report_detail.html", context)


@researcher_required
def report_file(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    report = get_object_or_404(Report.objects.visible_to(request.user), pk=pk)
    if file_format not in FORMATS:
        raise Http404(f"Reports come as {', '.join(FORMATS)}.")
    asked = FORMATS[file_format]
    response = HttpResponse(asked.write(report.document), content_type=asked.content_type)
    response["Content-Disposition"] = f'attachment; filename="{report.document["round"]}-report.{file_format}"'
    return response
