"""The pages on which annotators judge, and their JSON.

What is sent here must tell nothing about LM, setting, score, gold or what others said. Every address works as a plain
form and, asked for JSON, for scripts; both take the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from annotation.judging.assigned_tasks import Drafts, show_statements, statement_of
from annotation.judging.assignment import TrainingFirst, next_batch
from annotation.judging.forms import AnswerForm, LayoutForm, ReportForm, TaskForm, TrainingAnswerForm
from annotation.judging.judgments import (
    BadAnswer,
    reassign_skipped,
    report_statement,
    skip_task,
    submit_and_fill_batch,
    submit_judgment,
)
from annotation.judging.training import answer_training, current_training, last_training, next_statement
from annotation.models import Annotator, Judgment, JudgmentTask, Label, TrainingStatement
from annotation.recruiting.access import current_annotator
from annotation.recruiting.services import choose_layout
from annotation.rounds.instructions import instructions_html
from annotation.rounds.models import RoundNotOpen
from kgharvest.errors import DomainError

LARGEST_PAGE = 100  # statements, as batch_size has it
NOT_JOINED = "Nobody who judges this round is known here; come back with your link or log in, and reload the page."
NOT_NOW = (RoundNotOpen, TrainingFirst)  # nothing can be judged, so there are no statements to show either


def by_annotator(view: Callable[[HttpRequest, Annotator], HttpResponse]) -> Callable[..., HttpResponse]:
    """Call `view(request, annotator)` for whoever judges in the round of that name here; tell refusals in words."""

    @never_cache
    @wraps(view)
    def judged(request: HttpRequest, name: str) -> HttpResponse:
        annotator = current_annotator(request, name)
        if annotator is None:
            return _not_joined(request)
        try:
            return _with_refusals(view, request, annotator)
        except NOT_NOW as refusal:
            return _not_now(request, annotator, refusal)

    return judged


def _with_refusals(view: Callable[..., HttpResponse], request: HttpRequest, annotator: Annotator) -> HttpResponse:
    try:
        return view(request, annotator)
    except NOT_NOW:
        raise
    except DomainError as refusal:
        if wants_json(request):
            return _json_refusal(refusal)
        messages.error(request, str(refusal))
        return show_statements(request, annotator, drafts=_draft(request), status=409)


def _not_joined(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        raise Http404("No round that you have joined.")
    if wants_json(request):
        return JsonResponse({"error": {"code": "NotJoined", "message": NOT_JOINED}}, status=403)
    return redirect(reverse("annotation:come_back") + "?" + urlencode({"next": request.path}))


def _not_now(request: HttpRequest, annotator: Annotator, refusal: DomainError) -> HttpResponse:
    if wants_json(request):
        return _json_refusal(refusal)
    if isinstance(refusal, TrainingFirst):
        return redirect("annotation:training", annotator.round.name)
    context = {"round": annotator.round, "annotator": annotator, "refusal": refusal}
    return render(request, "annotation/judging/not_open.html", context, status=409)


def _json_refusal(refusal: DomainError) -> JsonResponse:
    return JsonResponse({"error": {"code": refusal.code, "message": str(refusal)}}, status=409)


def _invalid(request: HttpRequest, annotator: Annotator, form: Form) -> HttpResponse:
    if wants_json(request):
        error = {"code": "Invalid", "message": "The answer is not valid.", "fields": form.errors}
        return JsonResponse({"error": error}, status=400)
    messages.error(request, f"That was not valid, nothing was stored of it. {_in_words(form)}")
    return show_statements(request, annotator, drafts=_draft(request), status=400)


def _in_words(form: Form) -> str:
    return " ".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors)


def _draft(request: HttpRequest) -> Drafts:
    """Return what was typed beside a refused answer, so that the page shows it again."""
    return {request.POST.get("task", ""): {"comment": request.POST.get("comment", "")}}


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def _done(request: HttpRequest, annotator: Annotator, **reply: Any) -> HttpResponse:
    return JsonResponse(reply) if wants_json(request) else redirect("annotation:judge", annotator.round.name)


@require_http_methods(["GET", "POST"])
@by_annotator
def judge(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Show the next statements, or take the answer to one; `?task=` returns to one that this annotator has judged."""
    if request.method == "POST":
        return _take_answer(request, annotator)
    if wants_json(request):
        return JsonResponse(_statements(next_batch(annotator, timezone.now())))
    given = _earlier_judgment(annotator, request.GET["task"]) if "task" in request.GET else None
    return show_statements(request, annotator, given)


def _take_answer(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    form = AnswerForm(request.POST)
    if not form.is_valid():
        return _invalid(request, annotator, form)
    now, more = timezone.now(), {}
    if form.cleaned_data["more"]:
        judgment, tasks = submit_and_fill_batch(annotator, form.answer(), now)
        more = {} if tasks is None else _statements(tasks)
    else:
        judgment = submit_judgment(annotator, form.answer(), now)
    return _done(request, annotator, stored=str(judgment.pk), late=judgment.is_late, **more)


def _statements(tasks: Sequence[JudgmentTask]) -> dict[str, Any]:
    return {"tasks": [statement_of(task) for task in tasks]}


def _earlier_judgment(annotator: Annotator, task_id: str) -> Judgment:
    try:
        pk = TaskForm.base_fields["task"].clean(task_id)
    except ValidationError:
        raise Http404("That is no statement.") from None
    mine = Judgment.objects.current().filter(annotator=annotator).select_related("task")
    return get_object_or_404(mine, task=pk)


@require_POST
@by_annotator
def judge_page(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Take a page of statements that was sent as a plain form, answered or not."""
    refused = _store_rows(request, annotator)
    n_unanswered = sum(not request.POST.get(f"{row}-label") for row in _rows(request))
    if n_unanswered:
        are = "statement is" if n_unanswered == 1 else "statements are"
        messages.warning(request, f"{n_unanswered} {are} unanswered; everything else is stored.")
    if refused:
        return show_statements(request, annotator, drafts=refused, status=409)
    return redirect("annotation:judge", annotator.round.name)


def _rows(request: HttpRequest) -> list[str]:
    return request.POST.getlist("row")[:LARGEST_PAGE]


def _store_rows(request: HttpRequest, annotator: Annotator) -> dict[str, dict[str, str]]:
    """Store the answered rows of a page; return those that were refused as drafts, with a message for each reason."""
    refused = {}
    for row in _rows(request):
        if not request.POST.get(f"{row}-label"):
            continue
        try:
            _store_row(AnswerForm(request.POST, prefix=row), annotator)
        except NOT_NOW:
            raise
        except DomainError as refusal:
            messages.error(request, str(refusal))
            refused[row] = {name: request.POST.get(f"{row}-{name}", "") for name in ("label", "comment")}
    return refused


def _store_row(form: AnswerForm, annotator: Annotator) -> None:
    if not form.is_valid():
        raise BadAnswer(f"One answer was not valid. {_in_words(form)}")
    submit_judgment(annotator, form.answer(), timezone.now())


@require_POST
@by_annotator
def judge_skip(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    _store_rows(request, annotator)
    form = TaskForm(request.POST)
    if not form.is_valid():
        return _invalid(request, annotator, form)
    skip_task(annotator, form.cleaned_data["task"])
    return _done(request, annotator, skipped=form.cleaned_data["task"])


@require_POST
@by_annotator
def judge_skipped(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Hand out what was skipped, once more."""
    reassign_skipped(annotator)
    return redirect("annotation:judge", annotator.round.name)


@require_POST
@by_annotator
def judge_report(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Take a report of a broken statement; without a reason, ask for it."""
    _store_rows(request, annotator)
    task_form = TaskForm(request.POST)
    if not task_form.is_valid():
        return _invalid(request, annotator, task_form)
    is_asked = "report-reason" in request.POST or "report-comment" in request.POST
    form = ReportForm(request.POST if is_asked else None, prefix="report")
    if form.is_valid():
        asked = form.cleaned_data
        task = task_form.cleaned_data["task"]
        report_statement(annotator, task, asked["reason"], asked["comment"], timezone.now())
        if not wants_json(request):
            messages.success(request, "Thank you, the researchers will see your report. You can still answer or skip.")
        return _done(request, annotator, reported=task)
    if wants_json(request):
        return _invalid(request, annotator, form)
    task = get_object_or_404(annotator.round.tasks.filter(assignments__annotator=annotator), pk=request.POST["task"])
    return render(
        request, "annotation/judging/report.html", {"round": annotator.round, "task": task, "report_form": form}
    )


@by_annotator
def judge_instructions(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Show the instructions, with what they say about the relation of `?task=`."""
    form = TaskForm(request.GET)
    mine = annotator.round.tasks.filter(assignments__annotator=annotator).select_related("knowledge_tuple__relation")
    task = mine.filter(pk=form.cleaned_data["task"]).first() if form.is_valid() else None
    shown = instructions_html(annotator.round, task and task.knowledge_tuple.relation)
    return render(request, "annotation/judging/instructions.html", {"round": annotator.round, "instructions": shown})


@require_POST
@by_annotator
def judge_layout(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    form = LayoutForm(request.POST)
    if form.is_valid():
        choose_layout(annotator, form.cleaned_data["layout"])
    return redirect("annotation:judge", annotator.round.name)


@require_http_methods(["GET", "POST"])
@by_annotator
def training(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    if not annotator.round.training_size:
        raise Http404("This round has no training.")
    return take_answer(request, annotator) if request.method == "POST" else show(request, annotator)


def take_answer(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Take the answer to a statement and go on to the reason; without one, begin once more."""
    here = reverse("annotation:training", args=[annotator.round.name])
    form = TrainingAnswerForm(request.POST)
    if not form.is_valid():
        current_training(annotator, timezone.now())
        return redirect(here)
    asked = form.cleaned_data
    if answer_training(annotator, asked["position"], asked["label"], timezone.now()) is None:
        return redirect(here)
    return redirect(f"{here}?{urlencode({'position': asked['position'], 'label': asked['label']})}")


def show(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Show the reason for the answer in the address, the next statement, or how the last training went."""
    context = {
        "round": annotator.round,
        "labels": Label,
        "n_statements": annotator.round.training_statements.count(),
        "instructions": instructions_html(annotator.round),
    }
    if "label" in request.GET:
        return render(request, "annotation/judging/training_reason.html", context | reason_context(request, annotator))
    finished = last_training(annotator)
    if finished and not annotator.trainings.filter(finished_at=None).exists():
        return render(request, "annotation/judging/training_done.html", context | {"training": finished})
    training = current_training(annotator, timezone.now())
    return render(request, "annotation/judging/training.html", context | {"statement": next_statement(training)})


def reason_context(request: HttpRequest, annotator: Annotator) -> dict[str, Any]:
    form = TrainingAnswerForm(request.GET)
    if not form.is_valid():
        raise Http404("That is no answer.")
    given = form.cleaned_data
    statement = get_object_or_404(answered(annotator), position=given["position"])
    return {"statement": statement, "given": Label(given["label"]), "is_right": given["label"] == statement.label}


def answered(annotator: Annotator) -> QuerySet[TrainingStatement]:
    """Return the statements whose answers the annotator may see: those before the one to answer next."""
    statements = annotator.round.training_statements.all()
    unfinished = annotator.trainings.filter(finished_at=None).first()
    if unfinished is None and last_training(annotator):
        return statements
    return statements.filter(position__lt=unfinished.n_answered if unfinished else 0)
