"""Pages of text tasks: list, form, detail, and downloads."""

from collections.abc import Iterator

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from evaluation.rendering.figures.drawing import FIGURE_FORMATS
from evaluation.rendering.figures.drawing import render as rendered
from kgharvest.access import allowed_actions, researcher_required, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.contrib.probing.models import TextTask
from kgharvest.contrib.probing.text_tasks.forms import TextTaskForm
from kgharvest.contrib.probing.text_tasks.services import queue_text_task
from kgharvest.contrib.probing.text_tasks.tables import result_figure, result_lines, result_tables
from kgharvest.jobs import workers
from kgharvest.pages.lists import ListPage
from kgharvest.pages.panels import Panel, button
from kgharvest.pages.refusals import refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import to_json
from kgharvest.tables.table import without_empty_columns


def text_task_or_404(request: HttpRequest, pk: int) -> TextTask:
    tasks = TextTask.objects.select_related("language_model", "project").defer("lines")
    return visible_or_404(request.user, tasks, pk=pk)


def link_to_text_tasks(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Link on the report list (PANELS of kgharvest.registries)."""
    yield button("Text tasks", reverse("probing:text_task_list"))


class TextTaskList(ListPage):
    template_name = "probing/text_tasks/text_task_list.html"

    def rows(self):
        tasks = TextTask.objects.visible_to(self.request.user).select_related("language_model")
        return tasks.defer("payload", "lines", "records").order_by("-pk")

    def context(self, page):
        return {"lacks_worker": workers.lacking(timezone.now())}


@worker_required
def text_task_new(request: HttpRequest) -> HttpResponse:
    form = TextTaskForm(request.POST or None, request.FILES or None)
    form.offer_sets(request.user)
    offer_projects(form, request)
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(queue_text_task(form.request(), request.user, chosen_project(form, request)))
    return render(request, "probing/text_tasks/text_task_new.html", {"form": form})


@researcher_required
def text_task_detail(request: HttpRequest, pk: int) -> HttpResponse:
    task = text_task_or_404(request, pk)
    context = {
        "task": task,
        "may": allowed_actions(request.user, task.project),
        "lacks_worker": workers.lacking_for(task, timezone.now()),
        "tables": [without_empty_columns(table) for table in result_tables(task.records)],
        "prompts": result_lines(task.records),
        "has_figure": result_figure(task.records) is not None,
    }
    return render(request, "probing/text_tasks/text_task.html", context)


@researcher_required
def text_task_records(request: HttpRequest, pk: int) -> HttpResponse:
    lines = (to_json(record) + "\n" for record in text_task_or_404(request, pk).records)
    return download(lines, f"text-task-{pk}-records.jsonl", "application/jsonl")


@researcher_required
def text_task_figure(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    drawing = result_figure(text_task_or_404(request, pk).records)
    if drawing is None or file_format not in FIGURE_FORMATS:
        raise Http404(f"Figure {file_format} not found.")
    return download(rendered(drawing, {}, file_format), f"text-task-{pk}.{file_format}")
