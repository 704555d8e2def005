"""Home page, and the panels that this app adds to the home page and the project page."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db.models import Count, F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from kgharvest.access import Action, may_anywhere
from kgharvest.harvests.launches import progress_of
from kgharvest.jobs import workers
from kgharvest.models import HarvestJob, Job, Launch, Project, Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import Panel, panels_of
from kgharvest.registries import hook

Counts = Iterable[tuple[int, str, str]]

MAX_UNFINISHED = 5  # launches, and harvests without a launch


def home(request: HttpRequest) -> HttpResponse:
    """Home page: the stages of the study and the next action for researchers, and the rounds of annotators."""
    context: dict[str, Any] = {"work": panels_of("home_work", request)}
    if may_anywhere(request.user, Action.VIEW):
        context |= {"stages": panels_of("home_stages", request), "next_action": hook("next_action")(request.user)}
    return render(request, "kgharvest/pages/home.html", context)


def stage(noun: str, url: str, counts: Counts, description: str, parts: Sequence[Panel] = ()) -> Panel:
    """Return a stage of the study on the home page.

    counts: rows of number, text, and query string of the list at `url`; zeros are not shown. description: shown if all
    counts are zero. parts: unfinished work and results.
    """
    shown = [count for count in counts if count[0]]
    context = {"noun": noun, "url": url, "counts": shown, "description": description, "parts": parts}
    return Panel("kgharvest/pages/_stage.html", context)


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield project_step("Relations", reverse("kgharvest:relation_list"), project, project.relation_sets.count(), "set")
    n_harvests = HarvestJob.objects.filter(project=project).count()
    yield project_step("Harvests", reverse("kgharvest:harvest_list"), project, n_harvests, "harvest")


def project_step(noun: str, url: str, project: Project, n: int, *unit: str) -> Panel:
    """Return a step of the project page. n: number of objects listed at `url`. unit: singular and irregular plural."""
    context = {"noun": noun, "url": f"{url}?project={project.slug}", "contents": counted(n, *unit)}
    return Panel("kgharvest/pages/_step.html", context)


def home_stages(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the stages of relations, and of harvests with the progress of unfinished ones."""
    n, now = Relation.objects.visible_to(request.user).count(), timezone.now()
    description = (
        "A relation is a statement with slots, such as “<ENT0> is the capital of <ENT1>.”, and a few true tuples."
    )
    yield stage("Relations", reverse("kgharvest:relation_list"), [(n, f"relation{'s' * (n != 1)}", "")], description)
    harvests = HarvestJob.objects.visible_to(request.user)
    n_jobs = dict(harvests.order_by().values_list("status").annotate(Count("pk")))
    launches = Launch.objects.visible_to(request.user).unfinished()[:MAX_UNFINISHED]
    progress = [(launch, progress_of(launch, now)) for launch in launches]
    jobs = harvests.with_cell().unfinished().exclude(launch__in=[launch for launch, _ in progress])
    jobs = jobs.order_by(F("started_at").desc(nulls_last=True), "pk")[:MAX_UNFINISHED]
    context = {"launches": progress, "jobs": jobs, "lacks_worker": workers.lacking(now)}
    parts = [Panel("kgharvest/pages/_harvests_under_way.html", context)] if progress or jobs else []
    counts = [(n_jobs.get(status, 0), label.lower(), f"?status={status}") for status, label in Job.Status.choices]
    description = "A harvest extracts tuples with scores from an LM, best first."
    yield stage("Harvests", reverse("kgharvest:harvest_list"), counts, description, parts)
