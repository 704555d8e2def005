"""Next action in a user's studies, which the home page offers."""

from typing import NamedTuple

from django.db.models import Exists, F, OuterRef, Q
from django.urls import reverse

from annotation.models import Annotator, Round
from evaluation.models import Report
from kgharvest.access import MAY, Action, may_anywhere
from kgharvest.models import HarvestJob, Project, Relation


class NextAction(NamedTuple):
    """An action that a page offers: a button for `create_report`, otherwise a link. stage: stage on the home page."""

    key: str
    stage: str
    url: str
    text: str

    @property
    def label(self) -> str:
        return self.key.replace("_", " ").capitalize()


def next_action(user) -> NextAction | None:
    """Return the next action of `user`, or None if there is nothing to do or to read.

    Work in rounds comes first, because people wait for it. Archived rounds and reports do not count.
    """
    if may_anywhere(user, Action.WORK) and (work := _next_work(user)):
        return work
    reports = Report.objects.visible_to(user).archived(False).for_list().filter(headline__n_judgments__gt=0)
    if report := reports.order_by("-created_at", "-pk").first():
        url, name = report.get_absolute_url(), report.round.name
        return NextAction("open_report", "Reports", url, f"The newest report with judgments is about {name}.")
    rounds = Round.objects.visible_to(user).archived(False).exclude(status=Round.Status.DRAFT)
    if round := rounds.select_related("project").first():
        text = f"Annotators judge the statements of {round.name}."
        return NextAction("view_round", "Rounds", round.get_absolute_url(), text)
    return None


def _next_work(user) -> NextAction | None:
    projects = Project.objects.with_role(user, MAY[Action.WORK]).order_by().values("pk")
    rounds = Round.objects.archived(False).filter(project__in=projects).select_related("project")
    judged = Exists(Annotator.objects.filter(round=OuterRef("pk"), n_judged__gt=0))
    is_over = Q(completed_at__isnull=False) | (Q(status=Round.Status.CLOSED) & judged)
    if round := rounds.filter(is_over, reports=None).order_by(F("completed_at").desc(nulls_last=True), "-pk").first():
        url = reverse("evaluation:report_new", args=[round.path])
        return NextAction("create_report", "Reports", url, f"{round.name} is complete or closed.")
    if round := rounds.filter(status=Round.Status.OPEN, source=Round.Source.PEOPLE, annotators=None).first():
        url = reverse("annotation:round_invites", args=[round.path])
        return NextAction("invite_annotators", "Rounds", url, f"{round.name} has no annotators.")
    if round := rounds.filter(status=Round.Status.DRAFT).first():
        return NextAction("view_draft", "Rounds", round.get_absolute_url(), f"{round.name} is not open yet.")
    if rounds.exists():
        return None
    harvests = HarvestJob.objects.filter(project__in=projects).order_by("-pk")
    if harvest := harvests.succeeded().filter(n_tuples__gt=0).first():
        url = f"{reverse('annotation:round_new')}?job={harvest.pk}"
        return NextAction("create_round", "Rounds", url, "Annotators judge a sample of the tuples in a round.")
    if harvest := harvests.unfinished().first():
        return NextAction("view_harvest", "Harvests", harvest.get_absolute_url(), "The tuples appear when it ends.")
    relations = Relation.objects.visible_to(user).order_by("relation_set__is_shipped", "-pk")
    if relation := relations.select_related("relation_set").first():
        url = reverse("kgharvest:harvest_new")
        url += "" if relation.relation_set.is_shipped else f"?relation={relation.pk}"
        return NextAction("start_harvest", "Harvests", url, "A worker harvests tuples from an LM.")
    return NextAction("add_relation", "Relations", reverse("kgharvest:relation_new"), "Add or try a relation.")
