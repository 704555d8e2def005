"""Pages on which researchers create and revoke share links, and on which recipients read the report."""

import re

from django import forms
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from evaluation.models import Report, ReportShare
from evaluation.rendering.evidence_page import policy, write_evidence_page
from evaluation.reports.evidence_rows import gather_rows, without_annotators
from evaluation.reports.files import write_html
from evaluation.sharing import services
from kgharvest import code_version
from kgharvest.access import Action, researcher_required, visible_or_404
from kgharvest.accounts.throttle import TooManyAttempts, count_wrong_link, network_of
from kgharvest.errors import DomainError
from kgharvest.pages.refusals import refusal_in_form
from kgharvest.tables.formats import FORMATS

PAGE_CACHE_S, STATEMENTS_CACHE_S = 3600, 60
STATEMENTS_MISSING = {
    "RowsChanged": "The statements are not shown because judgments of this report were excluded, withdrawn, or deleted "
    "after it was created. Ask the sender for a link to a new report.",
    "TooManyRows": "The statements are not shown because the report has too many rows for a page.",
}  # sentences by code of the error
OWN_CODE = re.compile(r"<(?:style|script)>(.*?)</(?:style|script)>", re.DOTALL)


class ShareForm(forms.Form):
    name = forms.CharField(
        label="Recipient", max_length=100, initial="Reviewers", help_text="Visible to project members only."
    )
    days = forms.IntegerField(label="Valid for (days)", min_value=1, max_value=services.LONGEST_DAYS, initial=90)
    password = forms.CharField(
        label="Password",
        required=False,
        strip=False,
        max_length=services.LONGEST_PASSWORD,
        help_text="At least eight characters. Send it separately from the link. Without a password, anyone with the "
        "link can read the report.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    with_statements = ReportShare._meta.get_field("with_statements").formfield(initial=True)


@researcher_required
@sensitive_variables()
@sensitive_post_parameters()
def shares(request: HttpRequest, pk: int) -> HttpResponse:
    """List the links to a report. A new link is shown only once, because only its hash is stored."""
    report = visible_or_404(request.user, Report.objects.for_list(), Action.WORK, pk=pk)
    form = ShareForm(request.POST or None)
    link = None
    if form.is_valid():
        with refusal_in_form(form):
            share = services.share_report(report, **form.cleaned_data, now=timezone.now(), by=request.user)
            link, form = link_of(request, share), ShareForm()
    now = timezone.now()
    rows = [(share, share.status(now)) for share in report.shares.select_related("created_by")]
    return render(
        request, "evaluation/sharing/shares.html", {"report": report, "form": form, "link": link, "shares": rows}
    )


def link_of(request: HttpRequest, new_share: ReportShare) -> str:
    return request.build_absolute_uri(reverse("evaluation:shared_report", args=[new_share.secret]))


@researcher_required
@require_POST
def share_revoke(request: HttpRequest, pk: int, share: int) -> HttpResponse:
    report = visible_or_404(request.user, Report.objects.for_list(), Action.WORK, pk=pk)
    services.revoke_share(get_object_or_404(report.shares, pk=share), timezone.now(), request.user)
    return redirect("evaluation:shares", pk)


@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_variables()
@sensitive_post_parameters()
def shared_report(request: HttpRequest, secret: str) -> HttpResponse:
    """Show the frozen report of a link, without access to the rest of the installation."""
    now = timezone.now()
    share = services.find_share(secret, now)
    if share is None:
        status = 429 if count_wrong_link(request, now) else 404
        return closed(request, {"refusal": "This link is not valid. Ask the sender for a new link."}, status)
    if share.password:
        if request.method != "POST":
            return closed(request, {})
        try:
            services.open_share(share, request.POST.get("password", ""), network_of(request), now)
        except services.WrongPassword as refusal:
            return closed(request, {"error": refusal}, 403)
        except TooManyAttempts as refusal:
            return closed(request, {"refusal": refusal}, 429)
    report = share.report
    parts = share.with_statements, share.with_annotators
    key = f"shared-report-{report.pk}-{report.created_at.timestamp()}-{parts[0]}-{parts[1]}-{code_version()}"
    timeout = STATEMENTS_CACHE_S if share.with_statements else PAGE_CACHE_S  # tuples can be hidden at any time
    content = cache.get_or_set(key, lambda: shared_page(report, *parts), timeout)
    response = HttpResponse(content, content_type=FORMATS["html"].content_type)
    response["Content-Security-Policy"] = f"{policy(*OWN_CODE.findall(content))}; frame-ancestors 'none'"
    return kept_out_of_sight(response)


def shared_page(report: Report, with_statements: bool, with_annotators: bool) -> str:
    """Return the page of a link, without statements if they have changed since the report or are too many."""
    note = ""
    if with_statements:
        try:
            rows = without_annotators(gather_rows(report, with_judge=False))
            return write_evidence_page(report.document, rows, with_annotators)
        except DomainError as refusal:
            note = STATEMENTS_MISSING[refusal.code]
    return write_html(report.document, note, with_annotators)


def closed(request: HttpRequest, context: dict, status: int = 200) -> HttpResponse:
    context |= {"is_researcher": False}  # hide the navigation, even for researchers
    return kept_out_of_sight(render(request, "evaluation/sharing/closed.html", context, status=status))


def kept_out_of_sight(response: HttpResponse) -> HttpResponse:
    """Return the response with headers against caching, indexing, and referrers to other sites."""
    response["Cache-Control"] = "no-store"
    response["X-Robots-Tag"] = "noindex, nofollow"
    # With no-referrer, browsers send `Origin: null`, which fails the CSRF check.
    response["Referrer-Policy"] = "same-origin"
    return response
