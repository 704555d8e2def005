"""What rounds add to pages of harvests and of knowledge (PANELS and HOOKS of kgharvest.registries)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.core.cache import cache
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from annotation.judging.verdicts import Verdict
from annotation.models import Annotator, Judgment, JudgmentTask, Round
from annotation.recruiting.access import session_annotators
from kgharvest.models import KnowledgeTuple, Project
from kgharvest.operations.metrics import Reading
from kgharvest.pages.home import home_step, navigation_item, project_step
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


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield project_step("Rounds", reverse("annotation:round_list"), project, project.rounds.count(), "round")


def home_work(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """The open rounds in which this browser judges."""
    annotators = list(session_annotators(request).filter(round__status=Round.Status.OPEN).select_related("round"))
    if annotators:
        yield Panel("annotation/rounds/_own_rounds.html", {"annotators": annotators})


def tuple_judgments(request: HttpRequest, known: KnowledgeTuple) -> Iterator[Panel]:
    """The verdicts of the tuple in rounds that the reader may see."""
    tasks = JudgedTuples(request.user).of([known.pk]).get(known.pk, [])
    yield Panel("annotation/_tuple_judgments.html", {"tasks": tasks})


def erase_people(request: HttpRequest, project: Project) -> Iterator[Panel]:
    """The way to the page that erases who somebody was."""
    yield Panel("annotation/recruiting/_erase_people.html", {"project": project})


class JudgedTuples:
    """The tuples judged in rounds that a user may see. Implements kgharvest.knowledge.search.TupleVerdicts."""

    choices = [(verdict.value, verdict.value) for verdict in Verdict]

    def __init__(self, user) -> None:
        self._tasks = JudgmentTask.objects.without_gold().filter(round__in=Round.objects.visible_to(user))

    def with_verdict(self, verdict: str) -> QuerySet[JudgmentTask]:
        return self._tasks.filter(verdict=verdict)

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[JudgmentTask]]:
        tasks: dict[int, list[JudgmentTask]] = defaultdict(list)
        for task in self._tasks.filter(knowledge_tuple__in=tuple_ids).select_related("round__project").order_by("pk"):
            tasks[task.knowledge_tuple_id].append(task)
        return dict(tasks)


def judgment_metrics(now: datetime) -> Iterator[Reading]:
    """What people do, for Prometheus. All judgments are counted once a minute: there may be millions."""
    in_open_rounds = Annotator.objects.filter(round__status=Round.Status.OPEN)
    lately = Judgment.objects.filter(annotator__in=in_open_rounds, judged_at__gt=now - timedelta(minutes=1))
    total = cache.get_or_set("metrics:judgments", Judgment.objects.count, 60)
    yield Reading("kgharvest_judgments", "Judgments stored.", (), {(): total}, is_total=True)
    yield Reading("kgharvest_judgments_last_minute", "Judgments of the last minute.", (), {(): lately.count()})
    yield Reading(
        "kgharvest_open_rounds", "Rounds that people judge.", (), {(): Round.objects.filter(status="open").count()}
    )
