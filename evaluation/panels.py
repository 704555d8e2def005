"""What reports and comparisons add to pages of harvests and of rounds (settings.PANELS)."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest
from django.urls import reverse

from annotation.models import Round
from evaluation.reports.models import Report
from kgharvest.models import HarvestJob, Relation
from kgharvest.pages.home import home_step, navigation_item
from kgharvest.pages.panels import Panel, button


def navigation(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield navigation_item("Reports", reverse("evaluation:report_list"))


def home_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield home_step(
        "Reports",
        reverse("evaluation:report_list"),
        "How much is true: accuracy, intervals, agreement, comparisons.",
        n=Report.objects.visible_to(request.user).count(),
    )


def compare_relation(request: HttpRequest, relation: Relation) -> Iterator[Panel]:
    yield button("Compare two of them", f"{reverse('evaluation:compare_harvests')}?relation={relation.pk}")


def compare_harvest(request: HttpRequest, job: HarvestJob) -> Iterator[Panel]:
    if job.n_tuples:
        yield button("Compare", f"{reverse('evaluation:compare_harvests')}?a={job.pk}")


def make_report(request: HttpRequest, round: Round) -> Iterator[Panel]:
    yield Panel("evaluation/reports/_make_report.html", {"round": round})
