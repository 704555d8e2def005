"""Panels, hooks, and metrics that rounds add to other pages (PANELS and HOOKS of kgharvest.registries)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.core.cache import cache
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from annotation.invites.access import session_annotators
from annotation.judging.judgments import with_statements_left
from annotation.judging.verdicts import Verdict
from annotation.models import Annotator, Judgment, JudgmentTask, Round, Stratum
from annotation.monitoring.cells import harvest_cells, shown
from annotation.monitoring.progress import progress
from annotation.questionnaire.groups import check_counts, questionnaire_groups
from kgharvest.access import Action, may
from kgharvest.models import HarvestJob, KnowledgeTuple, Launch, Project
from kgharvest.operations.metrics import Reading
from kgharvest.pages.home import project_step, stage
from kgharvest.pages.number_format import hours
from kgharvest.pages.panels import Panel, button

N_OPEN = 4  # open rounds on the home page
N_JOINED = 20  # rounds of an annotator on the home page
N_ROUNDS = 5  # rounds on a harvest's page


def home_stages(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the stage of rounds, with the progress of the newest open rounds."""
    rounds, now = Round.objects.visible_to(request.user).archived(False), timezone.now()
    n_rounds = dict(rounds.order_by().values_list("status").annotate(Count("pk")))
    opened = rounds.filter(status=Round.Status.OPEN).select_related("project").order_by("-opened_at", "-pk")
    shown = [(round, progress(round, now)) for round in opened[:N_OPEN]]
    for _, figures in shown:
        figures["left"] = "" if figures["hours_left"] is None else hours(figures["hours_left"])
    context = {"rounds": shown, "has_more": n_rounds.get(Round.Status.OPEN, 0) > N_OPEN}
    parts = [Panel("annotation/rounds/_open_rounds.html", context)] if shown else []
    counts = [(n_rounds.get(status, 0), label.lower(), f"?status={status}") for status, label in Round.Status.choices]
    description = "A round draws a sample of the tuples. Annotators judge each statement."
    yield stage("Rounds", reverse("annotation:round_list"), counts, description, parts)


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    n_rounds = project.rounds.archived(False).count()
    yield project_step("Rounds", reverse("annotation:round_list"), project, n_rounds, "round")


def return_link(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield button("Continue with a return code", reverse("annotation:return_by_code"))


def home_work(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Yield the rounds that the annotator can continue, and the rounds without statements left for the annotator."""
    annotators = session_annotators(request).select_related("round").order_by("-round_id")[:N_JOINED]
    can_continue = with_statements_left(annotator for annotator in annotators if annotator.round.is_open)
    over = [annotator for annotator in annotators if annotator.round.status != Round.Status.PAUSED]
    finished = [annotator for annotator in over if annotator.n_judged and annotator not in can_continue]
    if can_continue or finished:
        yield Panel("annotation/rounds/_own_rounds.html", {"open": can_continue, "finished": finished})


def tuple_judgments(request: HttpRequest, knowledge_tuple: KnowledgeTuple) -> Iterator[Panel]:
    tasks = JudgedTuples(request.user).of([knowledge_tuple.pk]).get(knowledge_tuple.pk, [])
    yield Panel("annotation/_tuple_judgments.html", {"tasks": tasks})


def erase_people(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield Panel("annotation/invites/_erase_people.html", {"project": project})


def open_round_of_harvest(request: HttpRequest, job: HarvestJob) -> Iterator[Panel]:
    if job.status == job.Status.SUCCEEDED and job.n_tuples and may(request.user, Action.WORK, job.project):
        yield button("Create round", f"{reverse('annotation:round_new')}?job={job.pk}", is_primary=True)


def open_round_of_launch(request: HttpRequest, launch: Launch) -> Iterator[Panel]:
    is_harvested = launch.jobs.succeeded().filter(n_tuples__gt=0).exists()
    if is_harvested and may(request.user, Action.WORK, launch.project):
        yield button("Create round", f"{reverse('annotation:round_new')}?launch={launch.pk}")


def who_took_part(request: HttpRequest, round: Round) -> Iterator[Panel]:
    if round.asks_who or round.check_questions:
        context = {
            "asks_who": round.asks_who,
            "questions": questionnaire_groups(round),
            "check": check_counts(round) if round.check_questions else None,
        }
        yield Panel("annotation/questionnaire/_who_took_part.html", context)


def harvest_rounds(request: HttpRequest, job: HarvestJob) -> Iterator[Panel]:
    rounds = Round.objects.visible_to(request.user).archived(False)
    rounds = rounds.filter(Exists(Stratum.objects.filter(job=job, round=OuterRef("pk"))))
    newest = list(rounds.select_related("project").order_by("-pk")[: N_ROUNDS + 1])
    if newest:
        cells = harvest_cells(job, newest[:N_ROUNDS], timezone.now())
        context = {"rows": [(round, shown(cell)) for round, cell in cells], "has_more": len(newest) > N_ROUNDS}
        yield Panel("annotation/monitoring/_harvest_rounds.html", context)


class JudgedTuples:
    """Judged tuples of the rounds that a user can access. Implements kgharvest.knowledge.search.TupleVerdicts."""

    choices = [(verdict.value, verdict.value) for verdict in Verdict]

    def __init__(self, user) -> None:
        self.tasks = JudgmentTask.objects.without_gold().filter(round__in=Round.objects.visible_to(user))

    def with_verdict(self, verdict: str) -> QuerySet[JudgmentTask]:
        return self.tasks.filter(verdict=verdict)

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[JudgmentTask]]:
        tasks: dict[int, list[JudgmentTask]] = defaultdict(list)
        for task in self.tasks.filter(knowledge_tuple__in=tuple_ids).select_related("round__project").order_by("pk"):
            tasks[task.knowledge_tuple_id].append(task)
        return dict(tasks)


def judgment_metrics(now: datetime) -> Iterator[Reading]:
    """Prometheus metrics of judging. The total is cached for a minute because there can be millions of judgments."""
    in_open_rounds = Annotator.objects.filter(round__status=Round.Status.OPEN)
    recent = Judgment.objects.filter(annotator__in=in_open_rounds, judged_at__gt=now - timedelta(minutes=1))
    total = cache.get_or_set("metrics:judgments", Judgment.objects.count, 60)
    yield Reading("kgharvest_judgments", "Judgments stored.", (), {(): total}, is_total=True)
    yield Reading("kgharvest_judgments_last_minute", "Judgments in the last minute.", (), {(): recent.count()})
    yield Reading("kgharvest_open_rounds", "Open rounds.", (), {(): Round.objects.filter(status="open").count()})
