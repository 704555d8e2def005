"""The pages on which annotators judge, and their JSON.

What is sent here must tell nothing about LM, setting, score, gold or what others said. Every address works as a plain
form and, asked for JSON, for scripts; both take the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from annotation.judging.assignment import TrainingFirst, next_batch
from annotation.judging.forms import AnswerForm, LayoutForm, ReportForm, TaskForm
from annotation.judging.judgments import (
    Answer,
    BadAnswer,
    n_skipped,
    reassign_skipped,
    recent_judgments,
    report_statement,
    skip_task,
    submit_and_fill_batch,
    submit_judgment,
)
from annotation.models import LONGEST_COMMENT, Annotator, Judgment, JudgmentTask, Label, Layout
from annotation.recruiting.access import session_annotator
from annotation.recruiting.services import choose_layout
from annotation.rounds.instructions import instructions_html, statement_parts
from annotation.rounds.models import RoundNotOpen
from kgharvest.errors import DomainError

LARGEST_PAGE = 100  # statements, as batch_size has it
N_RECENT = 5
PAGES = {Layout.ONE: "annotation/judging/judge.html", Layout.PAGE: "annotation/judging/judge_page.html"}
NOT_JOINED = "Nobody who judges this round is known here; come back with your link or log in, and reload the page."
NOTHING_TO_JUDGE = (RoundNotOpen, TrainingFirst)  # refusals after which there are no statements to show either

Drafts = Mapping[str, Mapping[str, str]]  # what was sent of a statement and refused, by the task's id


# -- what every judging page does: know the annotator, tell refusals ---------------------------------------------------


def for_annotator(view: Callable[[HttpRequest, Annotator], HttpResponse | dict]) -> Callable[..., HttpResponse]:
    """Call `view(request, annotator)` for whoever judges in the round of that name here; tell refusals in words.

    A dict that the view returns is the reply in JSON; for people it is the judging page once more.
    """

    @never_cache
    @wraps(view)
    def view_for_annotator(request: HttpRequest, name: str) -> HttpResponse:
        annotator, as_json = session_annotator(request, name), wants_json(request)
        if annotator is None:
            return _not_joined(request)
        try:
            try:
                reply = view(request, annotator)
            except NOTHING_TO_JUDGE:
                raise
            except DomainError as refusal:
                if as_json:
                    return _refusal_in_json(refusal)
                messages.error(request, str(refusal))
                return show_statements(request, annotator, drafts=_draft(request), status=409)
        except NOTHING_TO_JUDGE as refusal:  # also of show_statements
            return _nothing_to_judge(request, annotator, refusal)
        if isinstance(reply, dict):
            return JsonResponse(reply) if as_json else redirect("annotation:judge", name)
        return reply

    return view_for_annotator


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def _not_joined(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        raise Http404("No round that you have joined.")
    if wants_json(request):
        return JsonResponse({"error": {"code": "NotJoined", "message": NOT_JOINED}}, status=403)
    return redirect(reverse("annotation:return_by_code") + "?" + urlencode({"next": request.path}))


def _nothing_to_judge(request: HttpRequest, annotator: Annotator, refusal: DomainError) -> HttpResponse:
    if wants_json(request):
        return _refusal_in_json(refusal)
    if isinstance(refusal, TrainingFirst):
        return redirect("annotation:training", annotator.round.name)
    context = {"round": annotator.round, "annotator": annotator, "refusal": refusal}
    return render(request, "annotation/judging/not_open.html", context, status=409)


def _refusal_in_json(refusal: DomainError) -> JsonResponse:
    return JsonResponse({"error": {"code": refusal.code, "message": str(refusal)}}, status=409)


def _invalid(request: HttpRequest, annotator: Annotator, form: Form) -> HttpResponse:
    if wants_json(request):
        error = {"code": "Invalid", "message": "The answer is not valid.", "fields": form.errors}
        return JsonResponse({"error": error}, status=400)
    messages.error(request, f"That was not valid, nothing was stored of it. {_form_errors(form)}")
    return show_statements(request, annotator, drafts=_draft(request), status=400)


def _form_errors(form: Form) -> str:
    return " ".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors)


def _draft(request: HttpRequest) -> Drafts:
    """Return what was typed beside a refused answer, so that the page shows it again."""
    return {request.POST.get("task", ""): {"comment": request.POST.get("comment", "")}}


# -- assigned tasks, as pages show them --------------------------------------------------------------------------------


def show_statements(
    request: HttpRequest,
    annotator: Annotator,
    given: Judgment | None = None,
    drafts: Drafts | None = None,
    status: int = 200,
) -> HttpResponse:
    """Show the assigned tasks in the annotator's layout; one that was judged before, `given`, comes alone or first."""
    tasks = next_batch(annotator, timezone.now())
    annotator.refresh_from_db(fields=["n_judged"])
    layout = Layout.ONE if given else annotator.layout or annotator.round.layout
    statements = [*([_answered_statement(given)] if given else []), *statements_of(annotator, tasks)]
    recent = [judgment for judgment in recent_judgments(annotator, N_RECENT) if judgment != given]
    context = {
        "round": annotator.round,
        "annotator": annotator,
        "instructions": instructions_html(annotator.round),
        "labels": Label,
        "report_form": ReportForm(prefix="report"),
        "longest_comment": LONGEST_COMMENT,
        "statements": statements,
        "rows": [
            {"client_uuid": uuid4(), **statement, **(drafts or {}).get(statement["task"], {})}
            for statement in statements
        ],
        "given": given,
        "recent": [(judgment, annotator.token_of(judgment.task_id)) for judgment in recent],
        "earlier": [_answered_statement(judgment) for judgment in reversed(recent)],
        "n_left": max(annotator.round.most_by_one - annotator.n_judged, len(tasks)),
        "n_skipped": 0 if tasks else n_skipped(annotator),
    }
    template = PAGES[layout] if statements else "annotation/judging/judge_done.html"
    return render(request, template, context, status=status)


def statements_of(annotator: Annotator, tasks: Sequence[JudgmentTask]) -> list[dict[str, Any]]:
    """Return all that the annotator's browser learns about tasks."""
    return [
        {"task": annotator.token_of(task.pk), "parts": statement_parts(task.statement, task.spans)} for task in tasks
    ]


def _answered_statement(judgment: Judgment) -> dict[str, Any]:
    [statement] = statements_of(judgment.annotator, [judgment.task])
    return statement | {"label": judgment.label, "comment": judgment.comment}


# -- views -------------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@for_annotator
def judge(request: HttpRequest, annotator: Annotator) -> HttpResponse | dict:
    """Show the next statements, or take the answer to one; `?task=` returns to one that this annotator has judged."""
    if request.method == "POST":
        return _take_answer(request, annotator)
    if wants_json(request):
        return {"tasks": statements_of(annotator, next_batch(annotator, timezone.now()))}
    if "task" not in request.GET:
        return show_statements(request, annotator)
    try:
        pk = annotator.task_of(TaskForm.base_fields["task"].clean(request.GET["task"]))
    except ValidationError:
        raise Http404("That is no statement.") from None
    judgments = Judgment.objects.current().filter(annotator=annotator).select_related("task")
    return show_statements(request, annotator, get_object_or_404(judgments, task=pk))


def _take_answer(request: HttpRequest, annotator: Annotator) -> HttpResponse | dict:
    form = AnswerForm(request.POST)
    if not form.is_valid():
        return _invalid(request, annotator, form)
    if form.cleaned_data["more"]:
        judgment, tasks = submit_and_fill_batch(annotator, _answer(annotator, form), timezone.now())
    else:
        judgment, tasks = submit_judgment(annotator, _answer(annotator, form), timezone.now()), None
    more = {} if tasks is None else {"tasks": statements_of(annotator, tasks)}
    return {"stored": str(judgment.pk), "late": judgment.is_late, **more}


def _answer(annotator: Annotator, form: AnswerForm) -> Answer:
    fields = form.cleaned_data
    task = annotator.task_of(fields["task"])
    return Answer(task, fields["label"], fields["client_uuid"], fields["seconds"], fields["comment"])


@require_POST
@for_annotator
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


def _store_rows(request: HttpRequest, annotator: Annotator) -> Drafts:
    """Store the answered rows of a page; return those that were refused, with a message for each reason."""
    refused = {}
    for row in _rows(request):
        if not request.POST.get(f"{row}-label"):
            continue
        try:
            form = AnswerForm(request.POST, prefix=row)
            if not form.is_valid():
                raise BadAnswer(f"One answer was not valid. {_form_errors(form)}")
            submit_judgment(annotator, _answer(annotator, form), timezone.now())
        except NOTHING_TO_JUDGE:
            raise
        except DomainError as refusal:
            messages.error(request, str(refusal))
            refused[row] = {name: request.POST.get(f"{row}-{name}", "") for name in ("label", "comment")}
    return refused


@require_POST
@for_annotator
def judge_skip(request: HttpRequest, annotator: Annotator) -> HttpResponse | dict:
    _store_rows(request, annotator)
    form = TaskForm(request.POST)
    if not form.is_valid():
        return _invalid(request, annotator, form)
    skip_task(annotator, annotator.task_of(form.cleaned_data["task"]))
    return {"skipped": form.cleaned_data["task"]}


@require_POST
@for_annotator
def judge_skipped(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Hand out what was skipped, once more."""
    reassign_skipped(annotator)
    return redirect("annotation:judge", annotator.round.name)


@require_POST
@for_annotator
def judge_report(request: HttpRequest, annotator: Annotator) -> HttpResponse | dict:
    """Take a report of a broken statement; without a reason, ask for it."""
    _store_rows(request, annotator)
    task_form = TaskForm(request.POST)
    if not task_form.is_valid():
        return _invalid(request, annotator, task_form)
    token = task_form.cleaned_data["task"]
    pk = annotator.task_of(token)
    is_sent = "report-reason" in request.POST or "report-comment" in request.POST
    form = ReportForm(request.POST if is_sent else None, prefix="report")
    if form.is_valid():
        report_statement(annotator, pk, form.cleaned_data["reason"], form.cleaned_data["comment"], timezone.now())
        if not wants_json(request):
            messages.success(request, "Thank you, the researchers will see your report. You can still answer or skip.")
        return {"reported": token}
    if wants_json(request):
        return _invalid(request, annotator, form)
    task = get_object_or_404(annotator.round.tasks.filter(assignments__annotator=annotator), pk=pk)
    context = {"round": annotator.round, "task": task, "token": token, "report_form": form}
    return render(request, "annotation/judging/report.html", context)


@for_annotator
def judge_instructions(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Show the instructions, with what they say about the relation of `?task=`."""
    form = TaskForm(request.GET)
    tasks = annotator.round.tasks.filter(assignments__annotator=annotator).select_related("knowledge_tuple__relation")
    task = tasks.filter(pk=annotator.task_of(form.cleaned_data["task"])).first() if form.is_valid() else None
    html = instructions_html(annotator.round, task and task.knowledge_tuple.relation)
    return render(request, "annotation/judging/instructions.html", {"round": annotator.round, "instructions": html})


@require_POST
@for_annotator
def judge_layout(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    form = LayoutForm(request.POST)
    if form.is_valid():
        choose_layout(annotator, form.cleaned_data["layout"])
    return redirect("annotation:judge", annotator.round.name)
