"""The start page, and what this app adds to it and to the navigation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from kgharvest.access import is_researcher
from kgharvest.models import HarvestJob, Launch, Project, Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import Panel, panels_of


def home(request: HttpRequest) -> HttpResponse:
    """The start page: steps of the work and running harvests for researchers, rounds to judge for annotators."""
    if not is_researcher(request.user):
        return render(request, "kgharvest/pages/home.html", {"work": panels_of("home_work", request)})
    steps = panels_of("home_steps", request)
    unfinished_jobs = HarvestJob.objects.visible_to(request.user).with_cell().unfinished().under_way_first()[:5]
    context = {
        "steps": steps,
        "next_step": None if unfinished_jobs else next((step for step in steps if _is_next(step)), None),
        "launches": Launch.objects.visible_to(request.user).unfinished()[:3],
        "unfinished_jobs": unfinished_jobs,
    }
    return render(request, "kgharvest/pages/home.html", context)


def _is_next(step: Panel) -> bool:
    return step.context.get("n") == 0 and "how_to_begin" in step.context


def home_step(noun: str, url: str, description: str, **context: Any) -> Panel:
    """Return a step of the work. n: how much there is of it; how_to_begin: a template for where there is nothing."""
    return Panel("kgharvest/pages/_step.html", {"noun": noun, "url": url, "description": description, **context})


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
        how_to_begin="kgharvest/pages/_first_relation.html",
    )
    yield home_step(
        "Harvests",
        reverse("kgharvest:harvest_list"),
        "What an LM says: scored tuples of one relation in one setting.",
        n=HarvestJob.objects.visible_to(request.user).count(),
        how_to_begin="kgharvest/pages/_first_harvest.html",
    )
    yield home_step(
        "Knowledge", reverse("kgharvest:tuple_list"), "What all harvests found: search, compare, hide or correct."
    )
