"""The start page, and what this app adds to it and to the navigation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from kgharvest.access import is_researcher
from kgharvest.harvests.launches import progress_of
from kgharvest.models import HarvestJob, Launch, Project, Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import Panel, panels_of

N_UNDER_WAY = 5  # launches, and harvests that belong to none


def home(request: HttpRequest) -> HttpResponse:
    """The start page: steps of the work and running harvests for researchers, rounds to judge for annotators."""
    if not is_researcher(request.user):
        return render(request, "kgharvest/pages/home.html", {"work": panels_of("home_work", request)})
    context = {
        "steps": panels_of("home_steps", request),
        "next_steps": panels_of("home_next", request)[:1],
        "under_way": panels_of("home_under_way", request),
        "results": panels_of("home_results", request),
    }
    return render(request, "kgharvest/pages/home.html", context)


def home_step(noun: str, url: str, description: str, **context: Any) -> Panel:
    """Return a step of the work. n: how much there is of it."""
    return Panel("kgharvest/pages/_step.html", {"noun": noun, "url": url, "description": description, **context})


def next_step(heading: str, text: str, label: str, url: str, is_post: bool = False) -> Panel:
    """Return what the start page proposes to do next: a link, or a button that does it."""
    context = {"heading": heading, "text": text, "label": label, "url": url, "is_post": is_post}
    return Panel("kgharvest/pages/_next_step.html", context)


def navigation_item(noun: str, url: str) -> Panel:
    return Panel("partials/_navigation_item.html", {"noun": noun, "url": url})


def navigation(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield navigation_item("Relations", reverse("kgharvest:relation_list"))
    yield navigation_item("Harvests", reverse("kgharvest:harvest_list"))
    yield navigation_item("Knowledge", reverse("kgharvest:tuple_list"))


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield project_step("Relations", reverse("kgharvest:relation_list"), project, project.relation_sets.count(), "set")
    n_harvests = HarvestJob.objects.filter(project=project).count()
    yield project_step("Harvests", reverse("kgharvest:harvest_list"), project, n_harvests, "harvest")


def project_step(noun: str, url: str, project: Project, n: int, what: str) -> Panel:
    """Return what the project's page says of its own: `n` of `what`, listed at `url`."""
    return home_step(noun, f"{url}?project={project.slug}", f"{counted(n, what)} of this project.")


def home_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield home_step(
        "Relations",
        reverse("kgharvest:relation_list"),
        "What is asked: a statement with slots, prompts and seed tuples.",
        n=Relation.objects.visible_to(request.user).count(),
    )
    yield home_step(
        "Harvests",
        reverse("kgharvest:harvest_list"),
        "What an LM says: scored tuples of one relation in one setting.",
        n=HarvestJob.objects.visible_to(request.user).count(),
    )
    yield home_step(
        "Knowledge", reverse("kgharvest:tuple_list"), "What all harvests found: search, compare, hide or correct."
    )


def next_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the first of relations and harvests that there is none of."""
    if not Relation.objects.visible_to(request.user).exists():
        yield Panel("kgharvest/pages/_first_relation.html")
    elif not HarvestJob.objects.visible_to(request.user).exists():
        text = "Choose relations, an LM and settings; a worker finds the tuples."
        yield next_step("Next, a harvest", text, "New harvests", reverse("kgharvest:harvest_new"))


def harvests_under_way(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the launches that are unfinished with the time that they have left, and harvests that belong to none."""
    now = timezone.now()
    launches = Launch.objects.visible_to(request.user).unfinished()[:N_UNDER_WAY]
    progress = [(launch, progress_of(launch, now)) for launch in launches]
    unfinished = HarvestJob.objects.visible_to(request.user).with_cell().unfinished()
    alone = unfinished.exclude(launch__in=[launch for launch, _ in progress]).under_way_first()[:N_UNDER_WAY]
    if progress or alone:
        yield Panel("kgharvest/pages/_harvests_under_way.html", {"launches": progress, "jobs": alone})
