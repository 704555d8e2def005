"""Panels, hooks, and metrics that rounds add to other pages (PANELS and HOOKS of kgharvest.registries)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.core.cache import cache
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from annotation.invites.access import session_annotators
from annotation.judging.verdicts import Verdict
from annotation.models import Annotator, Judgment, JudgmentTask, Round, Stratum
from annotation.monitoring.cells import harvest_cells, shown
from annotation.monitoring.progress import progress
from annotation.questionnaire.groups import check_counts, questionnaire_groups
from kgharvest.access import Action, may
from kgharvest.models import HarvestJob, KnowledgeTuple, Launch, Project
from kgharvest.operations.metrics import Reading
from kgharvest.pages.home import home_step, next_step, project_step
from kgharvest.pages.number_format import hours
from kgharvest.pages.panels import Panel, button

N_OPEN = 4  # open rounds on the home page
N_ROUNDS = 5  # rounds on a harvest's page


def home_steps(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield home_step(
        "Rounds",
        reverse("annotation:round_list"),
        "People judge a sample of tuples as true, false, or unjudgeable.",
        n=Round.objects.visible_to(request.user).count(),
    )


def first_round(request: HttpRequest, subject: None) -> Iterator[Panel]:
    newest = HarvestJob.objects.visible_to(request.user).succeeded().filter(n_tuples__gt=0).order_by("-pk").first()
    if newest and not Round.objects.visible_to(request.user).exists():
        text = "Select finished harvests. People judge a sample of their tuples as statements."
        yield next_step(
            "Next step: create a round", text, "New round", f"{reverse('annotation:round_new')}?job={newest.pk}"
        )


def waiting_rounds(request: HttpRequest, subject: None) -> Iterator[Panel]:
    rounds = Round.objects.visible_to(request.user).order_by("-pk")
    open_to_people = rounds.filter(status=Round.Status.OPEN, source=Round.Source.PEOPLE)
    if empty := open_to_people.exclude(annotators__n_judged__gt=0).first():
        text = f"{empty.name} has no judgments yet. Send its join link to annotators."
        yield next_step("Next step: invite annotators", text, "Show join link", empty.get_absolute_url())
    elif draft := rounds.filter(status=Round.Status.DRAFT).first():
        text = f"{draft.name} is a draft. Check its plan, then open it."
        yield next_step("Next step: open the round", text, "View draft", draft.get_absolute_url())


def open_rounds(request: HttpRequest, subject: None) -> Iterator[Panel]:
    now = timezone.now()
    rounds = Round.objects.visible_to(request.user).filter(status=Round.Status.OPEN).order_by("-opened_at", "-pk")
    newest = list(rounds.select_related("project")[: N_OPEN + 1])
    if newest:
        shown = [(round, progress(round, now)) for round in newest[:N_OPEN]]
        for _, figures in shown:
            figures["left"] = "" if figures["hours_left"] is None else hours(figures["hours_left"])
        yield Panel("annotation/rounds/_open_rounds.html", {"rounds": shown, "has_more": len(newest) > N_OPEN})


def project_contents(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield project_step("Rounds", reverse("annotation:round_list"), project, project.rounds.count(), "round")


def return_link(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield button("Continue with a return code", reverse("annotation:return_by_code"))


def home_work(request: HttpRequest, subject: None) -> Iterator[Panel]:
    annotators = list(session_annotators(request).filter(round__status=Round.Status.OPEN).select_related("round"))
    if annotators:
        yield Panel("annotation/rounds/_own_rounds.html", {"annotators": annotators})


def tuple_judgments(request: HttpRequest, knowledge_tuple: KnowledgeTuple) -> Iterator[Panel]:
    tasks = JudgedTuples(request.user).of([knowledge_tuple.pk]).get(knowledge_tuple.pk, [])
    yield Panel("annotation/_tuple_judgments.html", {"tasks": tasks})


def erase_people(request: HttpRequest, project: Project) -> Iterator[Panel]:
    yield Panel("annotation/invites/_erase_people.html", {"project": project})


def open_round_of_harvest(request: HttpRequest, job: HarvestJob) -> Iterator[Panel]:
    if job.status == job.Status.SUCCEEDED and job.n_tuples and may(request.user, Action.WORK, job.project):
        yield button("Create round", f"{reverse('annotation:round_new')}?job={job.pk}")


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
    rounds = Round.objects.visible_to(request.user).current().filter(
        Exists(Stratum.objects.filter(job=job, round=OuterRef("pk")))
    )
    newest = list(rounds.select_related("project").order_by("-pk")[: N_ROUNDS + 1])
    if newest:
        cells = harvest_cells(job, newest[:N_ROUNDS], timezone.now())
        context = {"rows": [(round, shown(cell)) for round, cell in cells], "has_more": len(newest) > N_ROUNDS}
        yield Panel("annotation/monitoring/_harvest_rounds.html", context)


class JudgedTuples:
    """Judged tuples of the rounds that a user can access. Implements kgharvest.knowledge.search.TupleVerdicts."""

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
    """Prometheus metrics of judging. The total is cached for a minute because there can be millions of judgments."""
    in_open_rounds = Annotator.objects.filter(round__status=Round.Status.OPEN)
    recent = Judgment.objects.filter(annotator__in=in_open_rounds, judged_at__gt=now - timedelta(minutes=1))
    total = cache.get_or_set("metrics:judgments", Judgment.objects.count, 60)
    yield Reading("kgharvest_judgments", "Judgments stored.", (), {(): total}, is_total=True)
    yield Reading("kgharvest_judgments_last_minute", "Judgments in the last minute.", (), {(): recent.count()})
    yield Reading("kgharvest_open_rounds", "Open rounds.", (), {(): Round.objects.filter(status="open").count()})
