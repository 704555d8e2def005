"""Pages of harvests and launches."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from django.contrib import messages
from django.core.paginator import Page
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.bulk.pagination import page_of
from kgharvest.chat_models.services import summary_of as chat_summary_of
from kgharvest.engine.filters import filter_label
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import HarvestParams
from kgharvest.errors import DomainError
from kgharvest.harvests import cuts
from kgharvest.harvests.api import HarvestFilters
from kgharvest.harvests.forms import LaunchForm
from kgharvest.harvests.language_models import LOADING
from kgharvest.harvests.launches import plan_launch, progress_of, start_launch
from kgharvest.harvests.tuple_files import FILE_FORMATS, export_tuples
from kgharvest.jobs import workers
from kgharvest.knowledge.search import verdicts_visible_to
from kgharvest.models import HarvestJob, Job, LanguageModel, Launch
from kgharvest.pages.lists import ListPage
from kgharvest.pages.number_format import counted, duration, pace
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS

MAX_SHOWN_ANSWERS = 20
MAX_SHOWN_FAILURES = 20


class HarvestList(ListPage):
    template_name = "kgharvest/harvests/harvest_list.html"
    filters = HarvestFilters
    searched = ("relation__name",)
    columns = {
        "relation": "relation__name",
        "model": "language_model__name",
        "setting": "setting",
        "status": "status",
        "tuples": "n_tuples",
        "created": "created_at",
    }
    order = "-created"

    def rows(self):
        return HarvestJob.objects.visible_to(self.request.user).with_cell()

    def context(self, page):
        jobs = HarvestJob.objects.visible_to(self.request.user)
        return {
            "statuses": Job.Status.choices,
            "models": LanguageModel.objects.filter(jobs__in=jobs).distinct(),
            "settings": jobs.order_by("setting").values_list("setting", flat=True).distinct(),
            "lacks_worker": workers.lacking(timezone.now()),
        }


@researcher_required
def harvest_detail(request: HttpRequest, pk: int) -> HttpResponse:
    job = visible_or_404(request.user, HarvestJob.objects.with_cell().select_related("launch", "project"), pk=pk)
    # PostgreSQL does not preserve the order of JSON keys, so durations are sorted by size and parameters by
    # declaration.
    seconds = _largest_first(job.summary.get("seconds", {}))
    params = job.payload.get("spec", {}).get("params", {})
    declared_names = [field.name for field in fields(HarvestParams)]
    params = {name: params[name] for name in dict.fromkeys([*declared_names, *params]) if name in params}
    context = {
        "job": job,
        "may": allowed_actions(request.user, job.project),
        "prompts": job.job_prompts.select_related("prompt"),
        "setting": SETTINGS.get(job.setting),
        "lacks_worker": workers.lacking_for(job, timezone.now()),
        "params": params,
        "rejected": [(filter_label(name), n) for name, n in _largest_first(job.summary.get("rejected", {})).items()],
        "stages": seconds,
        "lm_seconds": sum(duration for stage, duration in seconds.items() if stage != LOADING),
        **(_ranking(request, job) if job.n_tuples else {}),
    }
    if "chat" in job.payload:
        answers = job.chat_answers.order_by("position", "pk")[:MAX_SHOWN_ANSWERS]
        context |= {"chat": chat_summary_of(job), "chat_answers": answers}
    return render(request, "kgharvest/harvests/harvest_detail.html", context)


def _largest_first(numbers: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(numbers.items(), key=lambda pair: (-pair[1], pair[0])))


def _ranking(request: HttpRequest, job: HarvestJob) -> dict[str, Any]:
    """Return the template context of the tuples up to the cut in the URL."""
    scores = cuts.StoredScores(job)
    cut = request.GET.get("cut", "").strip()
    cut_size, cut_error = None, ""
    try:
        cut_size = cuts.size_of(cuts.parse_cut(cut), scores) if cut else None
    except DomainError as refusal:
        cut_error = str(refusal)
    n_kept = cut_size.size if cut_size else job.n_tuples
    page = page_of(request, cuts.RankedTuples(job, n_kept))
    tasks = verdicts_visible_to(request.user).of([harvested.knowledge_tuple_id for harvested in page])
    n_excluded = job.tuples.filter(rank__lte=n_kept).count_unpresentable()
    return {
        "cut": cut,
        "cut_size": cut_size,
        "cut_error": cut_error,
        "n_kept": n_kept,
        "n_exported": n_kept - n_excluded,
        "n_excluded": n_excluded,
        "export_formats": {name: FORMATS[name].title for name in FILE_FORMATS},
        "predefined_cuts": cuts.sizes_of([cuts.parse_cut(cut) for cut in cuts.PREDEFINED_CUTS], scores),
        "curve": cuts.draw_curve(cuts.score_curve(job), cut_size.size if cut_size else None) if job.is_scored else None,
        "page_obj": page,
        "rows": [(harvested, tasks.get(harvested.knowledge_tuple_id, [])) for harvested in page],
    }


@researcher_required
@require_POST
def harvest_change(request: HttpRequest, pk: int, change: Callable[[Job, Any], None]) -> HttpResponse:
    """Cancel or retry a harvest, and redirect to the page of the harvest or its launch.

    change: the service function to call.
    """
    jobs = HarvestJob.objects.select_related("launch", "project")
    job = visible_or_404(request.user, jobs, Action.WORK, pk=pk)
    with refusal_as_message(request):
        change(job, request.user)
    return redirect(job.launch if job.launch and "from_launch" in request.POST else job)


@researcher_required
def harvest_export(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    """Download tuples. Query parameters: `cut`, and `include=all` to include hidden and sensitive tuples."""
    if file_format not in FILE_FORMATS:
        raise Http404(f"Unknown export format {file_format!r}.")
    job = visible_or_404(request.user, HarvestJob.objects.with_cell(), pk=pk)
    cut = request.GET.get("cut", "")
    includes_all = request.GET.get("include") == "all"
    try:
        lines = export_tuples(job, cuts.parse_cut(cut) if cut else None, file_format, includes_all, includes_all)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(job)
    return download(lines, f"harvest-{job.pk}.{file_format}")


@worker_required
def launch_new(request: HttpRequest, posted: QueryDict | None = None) -> HttpResponse:
    """Launch harvests. "preview": show the estimate without launching. "estimate": return only the estimate."""
    posted = posted or request.POST
    chosen = {"relations": request.GET.getlist("relation"), "sets": request.GET.getlist("set")}
    form = LaunchForm(posted or None, initial=chosen)
    form.offer_relations(request.user)
    offer_projects(form, request)
    plan = None
    if form.is_valid():
        with refusal_in_form(form):
            project = chosen_project(form, request)
            plan = plan_launch(form.requests(), timezone.now(), form.cleaned_data["again"], request.user, project)
            if not {"preview", "estimate"} & set(posted):
                launch, _ = start_launch(plan, request.user)
                jobs = launch.jobs.all()[:2]
                return redirect(jobs[0] if len(jobs) == 1 else launch)
    sets = form.choices_by_set()
    is_picker_open = bool(form["relations"].errors) or any(each.is_chosen or each.is_open for each in sets)
    context = {"form": form, "plan": plan, "sets": sets, "is_picker_open": is_picker_open}
    template = "_plan" if "estimate" in posted else "launch_new"
    return render(request, f"kgharvest/harvests/{template}.html", context)


class LaunchList(ListPage):
    template_name = "kgharvest/harvests/launch_list.html"

    def rows(self):
        return Launch.objects.visible_to(self.request.user).with_counts().select_related("created_by", "project")


@researcher_required
def launch_detail(request: HttpRequest, pk: int) -> HttpResponse:
    launch = visible_or_404(request.user, Launch.objects.select_related("created_by", "project"), pk=pk)
    failed = launch.jobs.with_cell().filter(status=Job.Status.FAILED).order_by("-finished_at")
    progress = progress_of(launch, timezone.now())
    context = {
        "launch": launch,
        "may": allowed_actions(request.user, launch.project),
        "progress": progress,
        "page_obj": jobs_page(request, launch),
        "status": request.GET.get("status", ""),
        "failures": failed[:MAX_SHOWN_FAILURES] if progress.counts[Job.Status.FAILED] else [],
        "lacks_worker": workers.lacking(timezone.now(), workers.queues_waited_in(launch.jobs.all())),
    }
    return render(request, "kgharvest/harvests/launch_detail.html", context)


@researcher_required
def launch_progress(request: HttpRequest, pk: int) -> JsonResponse:
    """Return the progress of a launch and of the harvests on the current page.

    rate, left: in words; empty while unknown.
    """
    launch = visible_or_404(request.user, Launch.objects, pk=pk)
    progress = progress_of(launch, timezone.now())
    columns = ("pk", "status", "noise_warning", "stage", "done", "total", "n_tuples")
    return JsonResponse(
        {
            "is_unfinished": progress.n_unfinished > 0,
            "n_over": progress.n_over,
            "n_jobs": progress.n_jobs,
            "counts": progress.counts,
            "bar": progress.bar(),
            "rate": pace(progress.per_minute),
            "left": duration(progress.seconds_left),
            "jobs": [
                {"status_name": job.get_status_display(), **{column: getattr(job, column) for column in columns}}
                for job in jobs_page(request, launch)
            ],
        }
    )


def jobs_page(request: HttpRequest, launch: Launch) -> Page:
    """Return the page of harvests of a launch that the URL selects."""
    jobs = launch.jobs.with_cell().order_by("pk")
    status = request.GET.get("status")
    return page_of(request, jobs.filter(status=status) if status in Job.Status.values else jobs)


@researcher_required
@require_POST
def launch_change(request: HttpRequest, pk: int, change: Callable[[Launch, Any], int], done: str) -> HttpResponse:
    """Cancel or retry harvests of a launch. change: the service function to call. done: end of the success message."""
    launch = visible_or_404(request.user, Launch.objects.select_related("project"), Action.WORK, pk=pk)
    with refusal_as_message(request):
        messages.success(request, f"{counted(change(launch, request.user), 'harvest')} {done}.")
    return redirect(launch)
