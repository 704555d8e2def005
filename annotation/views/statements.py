"""Where annotators differ: a round's statements with what each of them said."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.paginator import Paginator
from django.db.models import Count, Exists, OuterRef, Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from annotation.models import Adjudication, Judgment, JudgmentTask, Round, StatementReport
from annotation.services.progress import OUTCOMES, count_progress
from annotation.services.snapshots import counted
from annotation.views.progress import visible_round
from kgharvest.access import researcher_required
from kgharvest.models import Relation

STATEMENTS_PER_PAGE = 25
COUNTERS = ("n_true", "n_false", "n_unjudgeable")

SHOWN = {
    "contested": "where people differ",
    "all": "all",
    "reported": "reported as broken",
    "commented": "commented on",
    "adjudicated": "adjudicated",
    "gold": "gold",
}


@researcher_required
def statement_list(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    asked = {key: request.GET.get(key, "") for key in ("show", "relation", "pattern", "verdict")}
    tasks = with_all_about(_filtered(_shown(round, asked["show"]), asked))
    differ = asked["show"] in ("", "contested")
    tasks = MostDisagreementFirst(tasks) if differ else tasks.order_by("position")
    paginator = Paginator(tasks, STATEMENTS_PER_PAGE)
    if asked["show"] == "all" and not (asked["relation"] or asked["pattern"]):
        paginator.count = n_with_verdict(round, asked["verdict"])
    page = paginator.get_page(request.GET.get("page"))
    context = {
        "round": round,
        "page_obj": page,
        "asked": asked,
        "is_filtered": any(asked.values()),
        "shown": SHOWN,
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


class MostDisagreementFirst:
    """Tasks by the share of pairs of their judgments that differ, as a list that pages are cut from.

    Tasks look alike in a few patterns only, so a page is found from how many tasks show each, without sorting all.
    """

    def __init__(self, tasks: QuerySet):
        self.tasks = tasks.order_by("position")
        rows = tasks.order_by(*COUNTERS).values_list(*COUNTERS).annotate(n=Count("pk"))
        self.patterns = sorted(((counts, n) for *counts, n in rows), key=lambda each: -disagreement(each[0]))

    def count(self) -> int:
        return sum(n for _, n in self.patterns)

    def __getitem__(self, page: slice) -> list[JudgmentTask]:
        found, first = [], page.start
        for counts, n in self.patterns:
            wanted = page.stop - page.start - len(found)
            if first < n and wanted:
                alike = self.tasks.filter(**dict(zip(COUNTERS, counts, strict=True)))
                found += alike[first : first + wanted]
            first = max(0, first - n)
        return found


def disagreement(counts: Sequence[int]) -> float:
    """Return the share of pairs of judgments that differ, 0 where there is no pair."""
    n = sum(counts)
    return 1 - sum(each * (each - 1) for each in counts) / (n * (n - 1)) if n > 1 else 0.0


def n_with_verdict(round: Round, verdict: str) -> int:
    """Return how many statements there are, or have a verdict, as the round's page says: too many to count again."""
    found = counted(round, "progress", count_progress, timezone.now()).content
    return found[verdict if verdict in OUTCOMES else "n_tasks"]


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
