"""Pages of rounds: researchers' lists and details, annotators' joining and judging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from annotation.exports import FORMATS, judgment_rows
from annotation.forms import DEFAULT_INSTRUCTIONS, AnswerForm, RoundForm
from annotation.models import Annotator, Judgment, JudgmentTask, Label, Round, StudyMember
from annotation.services.assignment import RoundNotOpen, next_batch
from annotation.services.joining import join_round
from annotation.services.judgments import recent_judgments, submit_judgment
from annotation.services.rounds import close_round, open_round
from kgharvest.access import is_researcher, researcher_required
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob
from kgharvest.views import page_of, sort_key, sorted_by

N_RECENT = 5


def home_context(request: HttpRequest) -> dict[str, Any]:
    """Return what rounds add to the start page."""
    if is_researcher(request.user):
        return {"n_rounds": Round.objects.visible_to(request.user).count()}
    if not request.user.is_authenticated:
        return {}
    mine = Annotator.objects.filter(user=request.user, round__status=Round.Status.OPEN).select_related("round")
    return {
        "my_rounds": [
            {
                "name": annotator.round.name,
                "n_done": annotator.n_judged,
                "judge_url": reverse("annotation:judge", args=[annotator.round.name]),
            }
            for annotator in mine
        ]
    }


# -- researchers -------------------------------------------------------------------------------------------------------

ROUND_COLUMNS = {
    "name": "name",
    "study": "study__name",
    "status": "status",
    "statements": "n_tasks",
    "opened": "opened_at",
}


@researcher_required
def round_list(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "status")}
    rounds = Round.objects.visible_to(request.user).select_related("study")
    rounds = rounds.annotate(n_annotators=Count("annotators", distinct=True))
    if asked["q"]:
        rounds = rounds.filter(Q(name__icontains=asked["q"]) | Q(study__name__icontains=asked["q"]))
    if asked["status"]:
        rounds = rounds.filter(status=asked["status"])
    sort = sort_key(request, ROUND_COLUMNS, "-opened")
    context = {
        "page_obj": page_of(request, sorted_by(rounds, sort, ROUND_COLUMNS)),
        "asked": asked,
        "is_filtered": any(asked.values()),
        "statuses": Round.Status.choices,
        "sort": sort,
        "has_harvests": HarvestJob.objects.succeeded().filter(n_tuples__gt=0).exists(),
    }
    return render(request, "annotation/round_list.html", context)


@researcher_required
def round_new(request: HttpRequest) -> HttpResponse:
    initial = {"jobs": request.GET.getlist("job"), "study": usual_study(request.user)}
    form = RoundForm(request.POST or None, initial=initial)
    if form.is_valid():
        try:
            round = open_round(form.document(), request.user)
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, f"The round {round.name} is open with {round.n_tasks} statements.")
            return redirect(round)
    return render(request, "annotation/round_new.html", {"form": form})


def usual_study(user) -> str:
    """Return the name of the study that the user last joined as one who opens rounds, else of one of their own."""
    managed = StudyMember.objects.filter(user=user, role__in=StudyMember.MANAGING).order_by("pk").last()
    return managed.study.name if managed else user.get_username()


@researcher_required
def round_detail(request: HttpRequest, name: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.visible_to(request.user).select_related("study", "created_by"), name=name)
    strata = round.strata.select_related("relation", "language_model", "job__relation", "job__language_model")
    context = {
        "round": round,
        "tally": round.tasks.tally(),
        "strata": strata,
        "annotators": round.annotators.order_by("-n_judged", "code"),
        "n_uncounted": Judgment.objects.current().filter(task__round=round, is_counted=False).count(),
        "can_manage": Round.objects.managed_by(request.user).filter(pk=round.pk).exists(),
        "join_url": request.build_absolute_uri(reverse("annotation:join", args=[round.join_token])),
        "export_formats": list(FORMATS),
    }
    return render(request, "annotation/round_detail.html", context)


@researcher_required
@require_POST
def round_change(request: HttpRequest, name: str, change: Callable[[Round], None]) -> HttpResponse:
    """Pause or reopen: `change` is the service's function."""
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    try:
        change(round)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect(round)


@researcher_required
def round_close(request: HttpRequest, name: str) -> HttpResponse:
    """Ask first: what is still open stays incomplete."""
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    if request.method == "POST":
        return round_change(request, name, close_round)
    return render(request, "annotation/round_close.html", {"round": round, "tally": round.tasks.tally()})


@researcher_required
def round_export(request: HttpRequest, name: str, file_format: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.visible_to(request.user), name=name)
    if file_format not in FORMATS:
        raise Http404(f"Judgments come as {', '.join(FORMATS)}.")
    lines = FORMATS[file_format](judgment_rows(round))
    response = StreamingHttpResponse(lines, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{round.name}-judgments.{file_format}"'
    return response


# -- annotators --------------------------------------------------------------------------------------------------------


@login_required
def join(request: HttpRequest, token: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.exclude(status=Round.Status.DRAFT), join_token=token)
    if request.method == "POST":
        try:
            join_round(round, request.user)
        except DomainError as refusal:
            messages.error(request, str(refusal))
        else:
            return redirect("annotation:judge", round.name)
    context = {"round": round, "instructions": round.instructions or DEFAULT_INSTRUCTIONS}
    return render(request, "annotation/join.html", context)


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
        return render(request, "annotation/not_open.html", {"round": annotator.round}, status=409)
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
