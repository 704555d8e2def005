"""What rounds add to pages of harvests and of knowledge (settings.PANELS and HOOKS)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from annotation.judging.verdicts import Verdict
from annotation.models import JudgmentTask, Round
from annotation.recruiting.access import session_annotators
from kgharvest.models import KnowledgeTuple
from kgharvest.pages.home import home_step, navigation_item
from kgharvest.pages.panels import Panel


def navigation(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield navigation_item("Rounds", reverse("annotation:round_list"))


def home_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield home_step(
        "Rounds",
        reverse("annotation:round_list"),
        "What people say: a sample judged true, false or unjudgeable.",
        n=Round.objects.visible_to(request.user).count(),
        how_to_begin="annotation/rounds/_first_round.html",
    )


def home_work(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """The open rounds in which this browser judges."""
    annotators = list(session_annotators(request).filter(round__status=Round.Status.OPEN).select_related("round"))
    if annotators:
        yield Panel("annotation/rounds/_own_rounds.html", {"annotators": annotators})


def tuple_judgments(request: HttpRequest, known: KnowledgeTuple) -> Iterator[Panel]:
    """The verdicts of the tuple in rounds that the reader may see."""
    tasks = JudgedTuples(request.user).of([known.pk]).get(known.pk, [])
    yield Panel("annotation/_tuple_judgments.html", {"tasks": tasks})


class JudgedTuples:
    """The tuples judged in rounds that a user may see. Implements kgharvest.knowledge.search.TupleVerdicts."""

    choices = [(verdict.value, verdict.value) for verdict in Verdict]

    def __init__(self, user) -> None:
        self._tasks = JudgmentTask.objects.without_gold().filter(round__in=Round.objects.visible_to(user))

    def with_verdict(self, verdict: str) -> QuerySet[JudgmentTask]:
        return self._tasks.filter(verdict=verdict)

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[JudgmentTask]]:
        tasks: dict[int, list[JudgmentTask]] = defaultdict(list)
        for task in self._tasks.filter(knowledge_tuple__in=tuple_ids).select_related("round").order_by("pk"):
            tasks[task.knowledge_tuple_id].append(task)
        return dict(tasks)
