"""Next action in a user's studies, which the home page offers."""

from typing import NamedTuple

from django.db.models import Exists, OuterRef, Q
from django.urls import reverse

from annotation.models import Annotator, Round
from evaluation.models import Report
from kgharvest.access import MAY, Action, may_anywhere
from kgharvest.models import HarvestJob, Project, Relation


class NextAction(NamedTuple):
    """An action that a page offers: a link or, if `is_post`, a button. stage: stage of the study on the home page."""

    key: str
    stage: str
    text: str
    label: str
    url: str
    is_post: bool = False


def next_action(user) -> NextAction | None:
    """Return the next action of `user`, or None if there is nothing to do or to read.

    Work in rounds comes first, because people wait for it. Archived rounds and reports do not count.
    """
    if may_anywhere(user, Action.WORK) and (work := _next_work(user)):
        return work
    reports = Report.objects.visible_to(user).current().for_list().filter(headline__n_judgments__gt=0)
    if report := reports.order_by("-created_at", "-pk").first():
        text = f"The newest report is about {report.round.name}."
        return NextAction("open_report", "Reports", text, "Open report", report.get_absolute_url())
    rounds = Round.objects.visible_to(user).current().exclude(status=Round.Status.DRAFT).select_related("project")
    if round := rounds.first():
        text = f"Annotators judge the statements of {round.name}."
        return NextAction("view_round", "Rounds", text, "View round", round.get_absolute_url())
    return None


def _next_work(user) -> NextAction | None:
    projects = Project.objects.with_role(user, MAY[Action.WORK]).order_by().values("pk")
    rounds = Round.objects.visible_to(user).current().filter(project__in=projects).select_related("project")
    judged = Exists(Annotator.objects.filter(round=OuterRef("pk"), n_judged__gt=0))
    is_over = Q(completed_at__isnull=False) | (Q(status=Round.Status.CLOSED) & judged)
    if round := rounds.filter(is_over, reports=None).order_by("-completed_at", "-pk").first():
        text = f"{round.name} is {'complete' if round.completed_at else 'closed'}."
        url = reverse("evaluation:report_new", args=[round.path])
        return NextAction("create_report", "Reports", text, "Create report", url, is_post=True)
    if round := rounds.filter(status=Round.Status.OPEN, source=Round.Source.PEOPLE, annotators=None).first():
        text = f"{round.name} has no annotators yet."
        return NextAction("invite_annotators", "Rounds", text, "Invite annotators", round.get_absolute_url())
    if round := rounds.filter(status=Round.Status.DRAFT).first():
        text = f"{round.name} is a draft. Check its plan, then open it."
        return NextAction("open_draft", "Rounds", text, "View draft", round.get_absolute_url())
    if rounds.exists():
        return None
    harvests = HarvestJob.objects.visible_to(user).filter(project__in=projects).order_by("-pk")
    if harvest := harvests.succeeded().filter(n_tuples__gt=0).first():
        text = "Annotators judge a sample of the harvested tuples in a round."
        url = f"{reverse('annotation:round_new')}?job={harvest.pk}"
        return NextAction("create_round", "Rounds", text, "Create round", url)
    if harvest := harvests.with_cell().unfinished().first():
        url = harvest.get_absolute_url()
        return NextAction("view_harvest", "Harvests", "The tuples appear when a harvest ends.", "View harvest", url)
    relations = Relation.objects.visible_to(user)
    if not relations.exists():
        text = "Add a relation of your study, or start with a built-in relation."
        return NextAction("add_relation", "Relations", text, "Add relation", reverse("kgharvest:relation_new"))
    own = relations.filter(relation_set__is_shipped=False).order_by("-pk").first()
    url = reverse("kgharvest:harvest_new") + (f"?relation={own.pk}" if own else "")
    return NextAction("start_harvest", "Harvests", "A worker harvests tuples from an LM.", "Start harvest", url)
