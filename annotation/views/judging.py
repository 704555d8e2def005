"""The pages on which annotators judge."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from annotation.forms import DEFAULT_INSTRUCTIONS, AnswerForm
from annotation.models import Annotator, Judgment, JudgmentTask, Label
from annotation.services.assignment import RoundNotOpen, next_batch
from annotation.services.judgments import recent_judgments, submit_judgment
from kgharvest.errors import DomainError

N_RECENT = 5


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def judge(request: HttpRequest, name: str) -> HttpResponse:
    """The judging page and its JSON. What is sent here must tell nothing about LM, setting, score or gold."""
    mine = Annotator.objects.select_related("round")
    annotator = get_object_or_404(mine, round__name=name, user=request.user)
    try:
        return take_answer(request, annotator) if request.method == "POST" else show_statements(request, annotator)
    except RoundNotOpen as refusal:
        if wants_json(request):
            return refused(refusal)
        context = {"round": annotator.round, "refusal": refusal}
        return render(request, "annotation/not_open.html", context, status=409)
    except DomainError as refusal:
        if wants_json(request):
            return refused(refusal)
        messages.error(request, str(refusal))
        return redirect("annotation:judge", name)


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def refused(refusal: DomainError) -> JsonResponse:
    return JsonResponse({"error": {"code": refusal.code, "message": str(refusal)}}, status=409)


def take_answer(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    form = AnswerForm(request.POST)
    if not form.is_valid():
        if not wants_json(request):
            raise BadRequest("The answer is not valid; reload the page and answer again.")
        error = {"code": "Invalid", "message": "The answer is not valid.", "fields": form.errors}
        return JsonResponse({"error": error}, status=400)
    judgment = submit_judgment(annotator, form.answer(), timezone.now())
    if wants_json(request):
        return JsonResponse({"stored": str(judgment.pk)})
    return redirect("annotation:judge", annotator.round.name)


def show_statements(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Show one statement, or send the next ones as JSON; `?task=` returns to one that this annotator has judged."""
    tasks = next_batch(annotator, timezone.now())
    if wants_json(request):
        return JsonResponse({"tasks": [statement_of(task) for task in tasks]})
    annotator.refresh_from_db(fields=["n_judged"])
    statements = [statement_of(task) for task in tasks]
    recent = recent_judgments(annotator, N_RECENT)
    given = None
    if "task" in request.GET:
        given = earlier_judgment(annotator, request.GET["task"])
        statements.insert(0, answered_statement(given))
        recent = [judgment for judgment in recent if judgment != given]
    context = {
        "round": annotator.round,
        "annotator": annotator,
        "instructions": annotator.round.instructions or DEFAULT_INSTRUCTIONS,
        "labels": Label,
        "client_uuid": uuid4(),
        "statements": statements,
        "given": given,
        "recent": recent,
        "earlier": [answered_statement(judgment) for judgment in reversed(recent)],
        "n_left": max(annotator.round.n_tasks - annotator.n_judged, len(tasks)),
    }
    return render(request, "annotation/judge.html", context)


def statement_of(task: JudgmentTask) -> dict[str, Any]:
    """Return all that an annotator's browser learns about a task."""
    return {"task": task.pk, "parts": task.parts}


def answered_statement(judgment: Judgment) -> dict[str, Any]:
    return statement_of(judgment.task) | {"label": judgment.label}


def earlier_judgment(annotator: Annotator, task_id: str) -> Judgment:
    try:
        pk = AnswerForm.base_fields["task"].clean(task_id)
    except ValidationError:
        raise Http404("That is no statement.") from None
    mine = Judgment.objects.current().filter(annotator=annotator).select_related("task")
    return get_object_or_404(mine, task=pk)
