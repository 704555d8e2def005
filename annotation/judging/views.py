"""Judging pages for annotators, usable without scripts. Scripts request JSON at the same URLs (annotation.judging.api).

Responses must not reveal the LM, the setting, the score, gold, or the labels of other annotators.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.contrib.staticfiles import finders
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST
from rest_framework.parsers import FormParser, JSONParser, MultiPartParser
from rest_framework.serializers import ValidationError
from rest_framework.views import APIView

from annotation.invites.access import SessionAnnotator
from annotation.invites.recruitment import recruitment
from annotation.judging.api import CheckedSession, TaskSerializer, read_answer, statements_of, wants_json
from annotation.judging.assignment import ComesFirst, QuestionsFirst, TrainingFirst, next_batch
from annotation.judging.judgments import (
    n_skipped,
    reassign_skipped,
    recent_judgments,
    report_statement,
    skip_task,
    submit_judgment,
)
from annotation.models import LONGEST_COMMENT, Annotator, Judgment, Label, Layout, Round, StatementReport
from annotation.rounds.instructions import instructions_html
from annotation.rounds.models import RoundNotOpen
from kgharvest.bulk.pagination import page_of
from kgharvest.errors import DomainError

LARGEST_PAGE = 100  # statements; equals the maximum of batch_size
N_RECENT = 5
FEW_AHEAD = 4  # if fewer statements are left, the one-at-a-time page loads more, like its script
PAGES = {Layout.ONE: "annotation/judging/judge.html", Layout.PAGE: "annotation/judging/judge_page.html"}
ROW_FIELDS = ("task", "label", "client_uuid", "seconds", "comment", "wrong_part", "opened_reference")
NOTHING_TO_JUDGE = (RoundNotOpen, ComesFirst)  # after these errors, the page cannot show statements

annotator_with_round = SessionAnnotator(
    lambda: Annotator.objects.select_related("round").defer("round__spec", "round__consent")
)

Errors = Mapping[str, Sequence[str]]  # by field
Drafts = Mapping[str, Mapping[str, str]]  # rejected input by task token


def in_json_or_as_page(api: type[APIView], page: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    parsers = (FormParser, MultiPartParser, JSONParser)
    in_json = api.as_view(by_browser=True, authentication_classes=(CheckedSession,), parser_classes=parsers)

    @never_cache
    def view(request: HttpRequest, round_id: int) -> HttpResponse:
        return (in_json if wants_json(request) else page)(request, round_id=round_id)

    return view


def for_annotator(view: Callable[[HttpRequest, Annotator], HttpResponse | None]) -> Callable[..., HttpResponse]:
    """Call `view(request, annotator)` with the annotator of the session, and show errors as messages.

    If the view returns None, redirect to the judging page.
    """

    @never_cache
    @wraps(view)
    def view_for_annotator(request: HttpRequest, round_id: int) -> HttpResponse:
        annotator = annotator_with_round(request, round_id)
        if annotator is None and request.user.is_authenticated:
            raise Http404("You have not joined this round.")
        if annotator is None:
            return redirect(reverse("annotation:return_by_code") + "?" + urlencode({"next": request.path}))
        try:
            try:
                return view(request, annotator) or redirect("annotation:judge", round_id)
            except NOTHING_TO_JUDGE:
                raise
            except DomainError as refusal:
                messages.error(request, str(refusal))
                status = 409
            except ValidationError as error:
                messages.error(request, f"Invalid input. Nothing was stored. {_in_words(error.detail)}")
                status = 400
            # Restore the comment of the rejected answer.
            drafts = {request.POST.get("task", ""): {name: request.POST.get(name, "") for name in ("label", "comment")}}
            return show_statements(request, annotator, drafts=drafts, status=status)
        except NOTHING_TO_JUDGE as refusal:  # also raised by show_statements
            return _nothing_to_judge(request, annotator, refusal)

    return view_for_annotator


def _nothing_to_judge(request: HttpRequest, annotator: Annotator, refusal: DomainError) -> HttpResponse:
    if isinstance(refusal, QuestionsFirst):
        return redirect("annotation:questions", annotator.round_id)
    if isinstance(refusal, TrainingFirst):
        return redirect("annotation:training", annotator.round_id)
    if annotator.round.status == Round.Status.CLOSED and (end_page := recruitment().end_page(annotator)):
        return redirect(end_page)
    context = {"round": annotator.round, "annotator": annotator, "refusal": refusal}
    return render(request, "annotation/judging/not_open.html", context, status=409)


def _in_words(errors: Errors) -> str:
    return " ".join(f"{name}: {error}" for name, reasons in errors.items() for error in reasons)


def show_statements(
    request: HttpRequest,
    annotator: Annotator,
    revisited: Judgment | None = None,
    drafts: Drafts | None = None,
    status: int = 200,
) -> HttpResponse:
    """Show the assigned tasks in the annotator's layout. revisited: judgment to change; it is shown first."""
    layout = annotator.layout or annotator.round.layout
    tasks = next_batch(annotator, timezone.now(), few=FEW_AHEAD if layout == Layout.ONE else None)
    is_empty = not tasks and not revisited
    end_page = recruitment().end_page(annotator) if is_empty else None
    if end_page and (annotator.has_judged_share or not n_skipped(annotator)):
        return redirect(end_page)
    if request.method == "POST":
        annotator.refresh_from_db(fields=["n_judged"])  # part of the input may have been stored
    layout = Layout.ONE if revisited else layout
    statements = [*([_answered_statement(revisited, annotator)] if revisited else []), *statements_of(annotator, tasks)]
    recent = [judgment for judgment in recent_judgments(annotator, N_RECENT) if judgment != revisited]
    context = {
        "round": annotator.round,
        "annotator": annotator,
        "instructions": instructions_html(annotator.round),
        "labels": Label,
        "report_fields": report_fields(),
        "longest_comment": LONGEST_COMMENT,
        "statements": statements,
        "rows": [
            {"client_uuid": uuid4(), **statement, **(drafts or {}).get(statement["task"], {})}
            for statement in statements
        ],
        "revisited": revisited,
        "recent": [(judgment, annotator.token_of(judgment.task_id)) for judgment in recent],
        "earlier": [_answered_statement(judgment, annotator) for judgment in reversed(recent)],
        "n_left": max(annotator.most_to_judge - annotator.n_judged, len(tasks)),
        "n_skipped": 0 if tasks else n_skipped(annotator),
    }
    template = PAGES[layout] if statements else "annotation/judging/judge_done.html"
    return render(request, template, context, status=status)


def _answered_statement(judgment: Judgment, annotator: Annotator) -> dict[str, Any]:
    [statement] = statements_of(annotator, [judgment.task])
    return statement | {"label": judgment.label, "comment": judgment.comment}


# Views


@require_http_methods(["GET", "POST"])
@for_annotator
def judge(request: HttpRequest, annotator: Annotator) -> HttpResponse | None:
    """Show the next statements, or store an answer. `task`: token of a judged statement to change."""
    if request.method == "POST":
        submit_judgment(annotator, read_answer(annotator, request.POST)[0], timezone.now())
        return None
    if "task" not in request.GET:
        return show_statements(request, annotator)
    query = TaskSerializer(data=request.GET)
    if not query.is_valid():
        raise Http404("Invalid statement token.")
    judgments = Judgment.objects.current().filter(annotator=annotator).select_related("task")
    pk = annotator.task_of(query.validated_data["task"])
    return show_statements(request, annotator, get_object_or_404(judgments, task=pk))


@require_POST
@for_annotator
def judge_page(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Store a page of statements submitted as a form. Rows may be unanswered."""
    refused = _store_rows(request, annotator)
    n_unanswered = sum(not request.POST.get(f"{row}-label") for row in _rows(request))
    if n_unanswered:
        are = "statement is" if n_unanswered == 1 else "statements are"
        messages.warning(request, f"{n_unanswered} {are} unanswered. All other answers are stored.")
    if refused:
        return show_statements(request, annotator, drafts=refused, status=409)
    return redirect("annotation:judge", annotator.round_id)


def _rows(request: HttpRequest) -> list[str]:
    return request.POST.getlist("row")[:LARGEST_PAGE]


def _store_rows(request: HttpRequest, annotator: Annotator) -> Drafts:
    """Store the answered rows of a page and return the rejected rows. Adds a message for each rejection."""
    refused = {}
    for row in _rows(request):
        if not request.POST.get(f"{row}-label"):
            continue
        try:
            fields = {name: request.POST[f"{row}-{name}"] for name in ROW_FIELDS if f"{row}-{name}" in request.POST}
            if fields["label"] != Label.FALSE:
                fields.pop("wrong_part", None)  # chosen before the label was changed
            submit_judgment(annotator, read_answer(annotator, fields)[0], timezone.now())
        except NOTHING_TO_JUDGE:
            raise
        except (DomainError, ValidationError) as refusal:
            is_invalid = isinstance(refusal, ValidationError)
            reason = f"Invalid answer. {_in_words(refusal.detail)}" if is_invalid else str(refusal)
            messages.error(request, reason)
            refused[row] = {name: request.POST.get(f"{row}-{name}", "") for name in ("label", "comment", "wrong_part")}
    return refused


@require_POST
@for_annotator
def judge_skip(request: HttpRequest, annotator: Annotator) -> HttpResponse | None:
    _store_rows(request, annotator)
    skipped = TaskSerializer(data=request.POST)
    skipped.is_valid(raise_exception=True)
    skip_task(annotator, annotator.task_of(skipped.validated_data["task"]))
    return None


@require_POST
@for_annotator
def judge_skipped(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    reassign_skipped(annotator)
    return redirect("annotation:judge", annotator.round_id)


class ReportForm(forms.Form):
    reason = forms.ChoiceField(label="Reason", choices=StatementReport.Reason.choices, widget=forms.RadioSelect)
    comment = forms.CharField(
        label="Comment",
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "maxlength": LONGEST_COMMENT}),
    )


@cache
def report_fields() -> str:
    """Return the HTML of an empty report form. Cached because all judging pages include it and rendering is slow."""
    return render_to_string("partials/_form.html", {"form": ReportForm(prefix="report")})


@require_POST
@for_annotator
def judge_report(request: HttpRequest, annotator: Annotator) -> HttpResponse | None:
    """Store a report of a broken statement, or show the form if the reason is missing."""
    _store_rows(request, annotator)
    reported = TaskSerializer(data=request.POST)
    reported.is_valid(raise_exception=True)
    token = reported.validated_data["task"]
    pk = annotator.task_of(token)
    is_sent = "report-reason" in request.POST or "report-comment" in request.POST
    form = ReportForm(request.POST if is_sent else None, prefix="report")
    if form.is_valid():
        report_statement(annotator, pk, form.cleaned_data["reason"], form.cleaned_data["comment"], timezone.now())
        messages.success(request, "Report sent to the researchers. You can still answer or skip the statement.")
        return None
    task = get_object_or_404(annotator.round.tasks.filter(assignments__annotator=annotator), pk=pk)
    context = {"round": annotator.round, "task": task, "token": token, "report_form": form}
    return render(request, "annotation/judging/report.html", context)


@for_annotator
def judge_answers(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    judgments = (
        Judgment.objects.current().filter(annotator=annotator).select_related("task").order_by("-judged_at", "-pk")
    )
    page = page_of(request, judgments)
    answers = [(judgment, annotator.token_of(judgment.task_id)) for judgment in page]
    context = {"round": annotator.round, "answers": answers, "page_obj": page}
    return render(request, "annotation/judging/answers.html", context)


@for_annotator
def judge_instructions(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    query = TaskSerializer(data=request.GET)
    tasks = annotator.round.tasks.filter(assignments__annotator=annotator).select_related("knowledge_tuple__relation")
    task = tasks.filter(pk=annotator.task_of(query.validated_data["task"])).first() if query.is_valid() else None
    html = instructions_html(annotator.round, task and task.knowledge_tuple.relation)
    return render(request, "annotation/judging/instructions.html", {"round": annotator.round, "instructions": html})


def offline_worker(request: HttpRequest) -> HttpResponse:
    """Return the service worker.

    The URL must be on the path of the judging pages, so the worker cannot be a static file.
    """
    path = finders.find("annotation/judging/offline_worker.js")
    return FileResponse(Path(path).open("rb"), content_type="text/javascript")


@require_POST
@for_annotator
def judge_layout(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    layout = request.POST.get("layout")
    if layout in Layout.values:
        Annotator.objects.filter(pk=annotator.pk).update(layout=layout)
    return redirect("annotation:judge", annotator.round_id)
