"""Pages of launches: many harvests asked for and watched together."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.core.paginator import Page
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from kgharvest.access import researcher_required
from kgharvest.bulk.lists import page_of
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError
from kgharvest.harvests.forms import LaunchForm
from kgharvest.harvests.launches import plan_launch, progress_of, start_launch
from kgharvest.harvests.views import lacks_worker
from kgharvest.models import Job, Launch

FAILURES_SHOWN = 20


@researcher_required
def launch_new(request: HttpRequest) -> HttpResponse:
    """Ask for harvests: the button "preview" shows what a launch would do, any other starts it."""
    chosen = {"relations": request.GET.getlist("relation"), "sets": request.GET.getlist("set")}
    form = LaunchForm(request.POST or None, initial=chosen)
    plan = None
    if form.is_valid():
        try:
            plan = plan_launch(form.requests(), timezone.now(), form.cleaned_data["again"])
            if "preview" not in request.POST:
                return redirect(_page_of_launch(start_launch(plan, request.user)))
        except (DomainError, EngineError) as refusal:
            form.add_error(None, str(refusal))
    context = {"form": form, "plan": plan, "sets": form.choices_by_set()}
    return render(request, "kgharvest/harvests/launch_new.html", context)


def _page_of_launch(launch: Launch):
    jobs = launch.jobs.all()[:2]
    return jobs[0] if len(jobs) == 1 else launch


@researcher_required
def launch_list(request: HttpRequest) -> HttpResponse:
    launches = Launch.objects.with_counts().select_related("created_by")
    return render(request, "kgharvest/harvests/launch_list.html", {"page_obj": page_of(request, launches)})


@researcher_required
def launch_detail(request: HttpRequest, pk: int) -> HttpResponse:
    launch = get_object_or_404(Launch.objects.select_related("created_by"), pk=pk)
    failed = launch.jobs.with_cell().filter(status=Job.Status.FAILED).order_by("-finished_at")
    progress = progress_of(launch, timezone.now())
    context = {
        "launch": launch,
        "progress": progress,
        "page_obj": shown_jobs(request, launch),
        "status": request.GET.get("status", ""),
        "failures": failed[:FAILURES_SHOWN] if progress.counts[Job.Status.FAILED] else [],
        "lacks_worker": progress.n_unfinished and lacks_worker(),
    }
    return render(request, "kgharvest/harvests/launch_detail.html", context)


def shown_jobs(request: HttpRequest, launch: Launch) -> Page:
    """Return the page of the launch's harvests that the address asks for."""
    jobs = launch.jobs.with_cell().order_by("pk")
    status = request.GET.get("status")
    return page_of(request, jobs.filter(status=status) if status in Job.Status.values else jobs)


@researcher_required
@require_POST
def launch_change(request: HttpRequest, pk: int, change: Callable[[Launch], int], done: str) -> HttpResponse:
    """Cancel or retry many: `change` is the service's function, `done` says what became of the harvests."""
    launch = get_object_or_404(Launch, pk=pk)
    n = change(launch)
    messages.success(request, f"{n} harvest{'' if n == 1 else 's'} {done}.")
    return redirect(launch)
