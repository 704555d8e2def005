"""Pages of researchers: relations and harvests; and the start page of everybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.module_loading import import_string
from django.views.decorators.http import require_POST

from kgharvest.access import is_researcher, researcher_required
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError
from kgharvest.forms import HarvestForm
from kgharvest.models import HarvestJob, Job, LanguageModel, Relation, RelationSet
from kgharvest.services import jobs
from kgharvest.services.cuts import parse_cut
from kgharvest.services.harvests import queue_harvests
from kgharvest.services.tuples import EXPORT_FORMATS, export_tuples

ROWS_PER_PAGE = 50


def home(request: HttpRequest) -> HttpResponse:
    """The start page of each role. The apps to the right of this one in settings.HOME_CONTEXT add what is theirs."""
    context: dict[str, Any] = {}
    if is_researcher(request.user):
        context = {
            "n_relations": Relation.objects.count(),
            "n_harvests": HarvestJob.objects.count(),
            "unfinished_jobs": HarvestJob.objects.with_cell().unfinished()[:5],
        }
    for path in settings.HOME_CONTEXT:
        context |= import_string(path)(request)
    return render(request, "kgharvest/home.html", context)


# -- lists -------------------------------------------------------------------------------------------------------------


def sort_key(request: HttpRequest, sortable: dict[str, str], default: str) -> str:
    """Return the key of `sortable`, perhaps with a minus, that the address asks to sort by."""
    asked = request.GET.get("sort", default)
    return asked if asked.removeprefix("-") in sortable else default


def sorted_by(queryset: QuerySet, key: str, sortable: dict[str, str]) -> QuerySet:
    sign = "-" if key.startswith("-") else ""
    return queryset.order_by(sign + sortable[key.removeprefix("-")], "-pk")


def page_of(request: HttpRequest, queryset: QuerySet) -> Page:
    return Paginator(queryset, ROWS_PER_PAGE).get_page(request.GET.get("page"))


# -- relations ---------------------------------------------------------------------------------------------------------

RELATION_COLUMNS = {"name": "name", "set": "relation_set__name", "arity": "arity", "harvests": "n_harvests"}


@researcher_required
def relation_list(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("q", "").strip()
    set_name = request.GET.get("set", "")
    relations = Relation.objects.select_related("relation_set").annotate(n_harvests=Count("jobs"))
    if asked:
        relations = relations.filter(Q(name__icontains=asked) | Q(statement__icontains=asked))
    if set_name:
        relations = relations.filter(relation_set__name=set_name)
    sort = sort_key(request, RELATION_COLUMNS, "name")
    context = {
        "page_obj": page_of(request, sorted_by(relations, sort, RELATION_COLUMNS)),
        "sets": RelationSet.objects.values_list("name", flat=True),
        "asked": asked,
        "set_name": set_name,
        "sort": sort,
    }
    return render(request, "kgharvest/relation_list.html", context)


@researcher_required
def relation_detail(request: HttpRequest, pk: int) -> HttpResponse:
    relation = get_object_or_404(Relation.objects.select_related("relation_set"), pk=pk)
    context = {
        "relation": relation,
        "page_obj": page_of(request, HarvestJob.objects.with_cell().filter(relation=relation).order_by("-pk")),
        "can_harvest": len(relation.seed_tuples) >= 2,
    }
    return render(request, "kgharvest/relation_detail.html", context)


# -- harvests ----------------------------------------------------------------------------------------------------------

HARVEST_COLUMNS = {
    "relation": "relation__name",
    "model": "language_model__name",
    "setting": "setting",
    "status": "status",
    "tuples": "n_tuples",
    "created": "created_at",
}


@researcher_required
def harvest_list(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "status", "model", "setting")}
    sort = sort_key(request, HARVEST_COLUMNS, "-created")
    context = {
        "page_obj": page_of(request, sorted_by(harvests_matching(asked), sort, HARVEST_COLUMNS)),
        "asked": asked,
        "is_filtered": any(asked.values()),
        "statuses": Job.Status.choices,
        "models": LanguageModel.objects.filter(jobs__isnull=False).distinct(),
        "settings": HarvestJob.objects.order_by("setting").values_list("setting", flat=True).distinct(),
        "sort": sort,
        "lacks_worker": lacks_worker(),
    }
    return render(request, "kgharvest/harvest_list.html", context)


def harvests_matching(asked: dict[str, str]) -> QuerySet:
    harvests = HarvestJob.objects.with_cell()
    if asked["q"]:
        harvests = harvests.filter(relation__name__icontains=asked["q"])
    exact = {"status": asked["status"], "language_model__name": asked["model"], "setting": asked["setting"]}
    return harvests.filter(**{field: value for field, value in exact.items() if value})


def lacks_worker() -> bool:
    """Return whether jobs wait and nobody is there to do them."""
    return Job.objects.filter(status=Job.Status.QUEUED).exists() and not jobs.has_worker(timezone.now())


@researcher_required
def harvest_new(request: HttpRequest) -> HttpResponse:
    form = HarvestForm(request.POST or None, initial={"relations": request.GET.getlist("relation")})
    if form.is_valid():
        try:
            queued = queue_harvests(form.requests(), request.user)
        except (DomainError, EngineError) as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(
                request, f"{len(queued)} harvests queued." if len(queued) > 1 else "The harvest is queued."
            )
            return redirect(queued[0] if len(queued) == 1 else "kgharvest:harvest_list")
    return render(request, "kgharvest/harvest_new.html", {"form": form, "has_relations": Relation.objects.exists()})


@researcher_required
def harvest_detail(request: HttpRequest, pk: int) -> HttpResponse:
    job = get_object_or_404(HarvestJob.objects.with_cell(), pk=pk)
    context = {
        "job": job,
        "prompts": job.job_prompts.select_related("prompt"),
        "page_obj": page_of(request, job.tuples.order_by("rank")),
        "can_retry": job.status in (Job.Status.FAILED, Job.Status.CANCELLED),
        "lacks_worker": job.is_unfinished and lacks_worker(),
        "params": job.payload.get("spec", {}).get("params", {}),
        "rejected": [(name.replace("_", " "), n) for name, n in job.summary.get("rejected", {}).items()],
    }
    return render(request, "kgharvest/harvest_detail.html", context)


@researcher_required
@require_POST
def harvest_change(request: HttpRequest, pk: int, change: Callable[[Job], None]) -> HttpResponse:
    """Cancel or retry: `change` is the service's function."""
    job = get_object_or_404(HarvestJob, pk=pk)
    try:
        change(job)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect(job)


@researcher_required
def harvest_export(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    job = get_object_or_404(HarvestJob.objects.with_cell(), pk=pk)
    cut = request.GET.get("cut", "")
    try:
        lines = export_tuples(job, parse_cut(cut) if cut else None, file_format)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(job)
    response = StreamingHttpResponse(lines, content_type=EXPORT_FORMATS[file_format])
    response["Content-Disposition"] = f'attachment; filename="harvest-{job.pk}.{file_format}"'
    return response
