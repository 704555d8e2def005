"""Where annotators differ: a round's statements with what each of them said."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.db.models import Exists, ExpressionWrapper, F, FloatField, OuterRef, Prefetch
from django.db.models.functions import NullIf
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from annotation.models import Adjudication, Judgment, JudgmentTask, Round, StatementReport
from annotation.verdicts import Verdict
from annotation.views.progress import visible_round
from kgharvest.access import researcher_required
from kgharvest.models import Relation

STATEMENTS_PER_PAGE = 25
COUNTERS = ("n_true", "n_false", "n_unjudgeable")
OUTCOMES = [*(verdict.value for verdict in Verdict), "incomplete"]

# Of the ordered pairs of a task's judgments, the share that differ; None where there is no pair.
N_ALIKE = sum((F(name) * (F(name) - 1) for name in COUNTERS[1:]), F("n_true") * (F("n_true") - 1))
N_PAIRS = F("n_judgments") * (F("n_judgments") - 1)
DISAGREEMENT = ExpressionWrapper(1.0 - 1.0 * N_ALIKE / NullIf(N_PAIRS, 0), output_field=FloatField())

SHOWN = {
    "contested": "where people differ",
    "all": "all",
    "reported": "reported as broken",
    "commented": "commented on",
    "adjudicated": "adjudicated",
    "gold": "gold",
}
ORDERS = {"disagreement": "most disagreement first", "round": "order of the round"}


@researcher_required
def statement_list(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    asked = {key: request.GET.get(key, "") for key in ("show", "relation", "pattern", "verdict", "order")}
    tasks = _filtered(_shown(round, asked["show"]), asked)
    tasks = tasks.order_by("position") if asked["order"] == "round" else _by_disagreement(tasks)
    page = Paginator(with_all_about(tasks), STATEMENTS_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "round": round,
        "page_obj": page,
        "asked": asked,
        "is_filtered": any(asked.values()),
        "shown": SHOWN,
        "orders": ORDERS,
        "relations": Relation.objects.filter(strata__round=round).distinct().order_by("name"),
        "patterns": patterns_of(round),
        "outcomes": OUTCOMES,
        "can_adjudicate": Round.objects.adjudicated_by(request.user).filter(pk=round.pk).exists(),
    }
    return render(request, "annotation/statement_list.html", context)


def _shown(round: Round, show: str):
    tasks = round.tasks.all() if show == "gold" else round.tasks.without_gold()
    of_task = {"task": OuterRef("pk")}
    if show == "gold":
        return tasks.gold()
    if show == "reported":
        return tasks.filter(Exists(StatementReport.objects.filter(**of_task)))
    if show == "commented":
        return tasks.filter(Exists(Judgment.objects.current().filter(**of_task).exclude(comment="")))
    if show == "adjudicated":
        return tasks.filter(Exists(Adjudication.objects.filter(**of_task)))
    return tasks if show == "all" else tasks.contested()


def _filtered(tasks, asked: dict[str, str]):
    """Narrow the list; what cannot be meant is left out, as in every list."""
    if asked["relation"].isdecimal():
        tasks = tasks.filter(knowledge_tuple__relation=asked["relation"][:18])
    counts = asked["pattern"].split("-")
    if len(counts) == len(COUNTERS) and all(each.isdecimal() and len(each) < 5 for each in counts):
        tasks = tasks.filter(**dict(zip(COUNTERS, map(int, counts), strict=True)))
    if asked["verdict"] in OUTCOMES:
        tasks = tasks.filter(verdict="" if asked["verdict"] == "incomplete" else asked["verdict"])
    return tasks


def _by_disagreement(tasks):
    return tasks.order_by(DISAGREEMENT.desc(nulls_last=True), "position")


def with_all_about(tasks):
    """Fetch with the tasks, in a query each, what people said, reported and decided about them."""
    judgments = Judgment.objects.current().select_related("annotator")
    reports = StatementReport.objects.select_related("annotator")
    adjudications = Adjudication.objects.current().select_related("by")
    return tasks.select_related("knowledge_tuple__relation").prefetch_related(
        Prefetch("judgments", judgments, to_attr="said"),
        Prefetch("reports", reports, to_attr="reported"),
        Prefetch("adjudications", adjudications, to_attr="decided"),
    )


def patterns_of(round: Round) -> list[str]:
    """Return the ways in which judgments differ in the round, such as 2-1-0: True, False, Unjudgeable."""
    rows = round.tasks.contested().order_by(*COUNTERS).values_list(*COUNTERS).distinct()
    return ["-".join(map(str, row)) for row in rows]


@researcher_required
def statement_detail(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    round = visible_round(request, name)
    task: JudgmentTask = get_object_or_404(with_all_about(round.tasks), pk=pk)
    draws = task.draws.select_related("stratum__language_model", "stratum__relation", "harvested_tuple")
    context = {
        "round": round,
        "task": task,
        "draws": draws.order_by("stratum"),
        "earlier": task.judgments.exclude(superseded_by=None).select_related("annotator"),
        "adjudications": task.adjudications.select_related("by"),
        "can_adjudicate": Round.objects.adjudicated_by(request.user).filter(pk=round.pk).exists(),
    }
    return render(request, "annotation/statement_detail.html", context)
