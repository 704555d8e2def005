"""Home page, and the panels that this app adds to the home page and the project page."""

from collections.abc import Iterator
from typing import Any

from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from kgharvest.access import Action, may_anywhere
from kgharvest.harvests.launches import progress_of
from kgharvest.models import HarvestJob, Launch, Project, Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import Panel, panels_of

MAX_UNFINISHED = 5  # launches, and harvests without a launch


def home(request: HttpRequest) -> HttpResponse:
    """Home page: workflow steps and unfinished harvests for researchers, open rounds for annotators."""
    if not may_anywhere(request.user, Action.VIEW):
        return render(request, "kgharvest/pages/home.html", {"work": panels_of("home_work", request)})
    context = {
        "steps": panels_of("home_steps", request),
        "next_steps": panels_of("home_next", request)[:1],
        "under_way": panels_of("home_under_way", request),
        "results": panels_of("home_results", request),
    }
    return render(request, "kgharvest/pages/home.html", context)


def home_step(noun: str, url: str, description: str, **context: Any) -> Panel:
    """Return a workflow step. context: more template context, for example `n`, the number of existing objects."""
    return Panel("kgharvest/pages/_step.html", {"noun": noun, "url": url, "description": description, **context})


def next_step(heading: str, text: str, label: str, url: str, is_post: bool = False) -> Panel:
    """Return the suggested next step: a link or, if `is_post`, a button."""
    context = {"heading": heading, "text": text, "label": label, "url": url, "is_post": is_post}
    return Panel("kgharvest/pages/_next_step.html", context)


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield project_step("Relations", reverse("kgharvest:relation_list"), project, project.relation_sets.count(), "set")
    n_harvests = HarvestJob.objects.filter(project=project).count()
    yield project_step("Harvests", reverse("kgharvest:harvest_list"), project, n_harvests, "harvest")


def project_step(noun: str, url: str, project: Project, n: int, unit: str) -> Panel:
    """Return a step of the project page. n: number of objects listed at `url`."""
    return home_step(noun, f"{url}?project={project.slug}", f"{counted(n, unit)} in this project.")


def home_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield home_step(
        "Relations",
        reverse("kgharvest:relation_list"),
        "Statements with slots, prompts, and seed tuples.",
        n=Relation.objects.visible_to(request.user).count(),
    )
    yield home_step(
        "Harvests",
        reverse("kgharvest:harvest_list"),
        "Scored tuples of one relation from one LM in one setting.",
        n=HarvestJob.objects.visible_to(request.user).count(),
    )
    yield home_step(
        "Knowledge base",
        reverse("kgharvest:tuple_list"),
        "Tuples of all harvests: search, compare, hide, or correct them.",
    )


def next_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the next step: add relations or, if there are relations, launch the first harvest."""
    if not Relation.objects.visible_to(request.user).exists():
        yield Panel("kgharvest/pages/_first_relation.html")
    elif not HarvestJob.objects.visible_to(request.user).exists():
        text = "Select relations, an LM, and settings. A worker harvests the tuples."
        yield next_step("Next step: launch a harvest", text, "New harvests", reverse("kgharvest:harvest_new"))


def harvests_under_way(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield unfinished launches with their progress, and unfinished harvests without a launch."""
    now = timezone.now()
    launches = Launch.objects.visible_to(request.user).unfinished()[:MAX_UNFINISHED]
    progress = [(launch, progress_of(launch, now)) for launch in launches]
    unfinished = HarvestJob.objects.visible_to(request.user).with_cell().unfinished()
    jobs = unfinished.exclude(launch__in=[launch for launch, _ in progress])
    jobs = jobs.order_by(F("started_at").desc(nulls_last=True), "pk")[:MAX_UNFINISHED]
    if progress or jobs:
        yield Panel("kgharvest/pages/_harvests_under_way.html", {"launches": progress, "jobs": jobs})
