"""Panels that this app shows on pages of reports and rounds. They are registered in PANELS of kgharvest.registries."""

from collections.abc import Iterator

from django.http import HttpRequest
from django.urls import reverse

from annotation.models import Round
from evaluation.models import Report
from kgharvest.contrib.publishing.preregistration.report_section import in_a_badge
from kgharvest.pages.panels import Panel, button


def paper(request: HttpRequest, report: Report) -> Iterator[Panel]:
    yield button("Replication package", reverse("publishing:pack", args=[report.pk]))
    yield button("Paper metadata", reverse("publishing:paper_statements", args=[report.pk]))


def preregister_round(request: HttpRequest, round: Round) -> Iterator[Panel]:
    """Yield a link to the preregistration form until the first judgment."""
    is_draft, is_closed = round.status == Round.Status.DRAFT, round.status == Round.Status.CLOSED
    if is_draft or not (is_closed or round.is_judged):
        yield button("Preregister", reverse("publishing:preregister", args=[round.path]))


def versions(request: HttpRequest, round: Round) -> Iterator[Panel]:
    """Yield a section with all versions of the preregistration, if there are any."""
    if frozen := list(round.preregistrations.defer("document").order_by("-version")):
        yield Panel("publishing/preregistration/_versions.html", {"round": round, "versions": frozen})


def badge(request: HttpRequest, round: Round) -> Iterator[Panel]:
    """Yield a badge with the date of the last preregistration and the number of deviations in the newest report."""
    last = round.preregistrations.defer("document").order_by("-version").first()
    if last is None:
        return
    newest = Report.objects.for_list().filter(round=round).order_by("-created_at", "-pk").first()
    n_deviations = newest and newest.headline.get("n_deviations")
    text = in_a_badge(f"{last.frozen_at:%Y-%m-%d}", n_deviations)
    last.round = round  # fetched with its project, because the URL contains the project
    yield Panel("publishing/preregistration/_badge.html", {"text": text, "url": last.get_absolute_url()})
