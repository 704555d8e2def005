"""Next action on the home page: a table of the states of a study."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.models import Round
from annotation.rounds.services import close_round, create_draft, pause_round
from evaluation.next_action import next_action
from evaluation.reports.services import create_report
from kgharvest.archive import archive
from kgharvest.models import Job, ProjectMember, Role
from tests import factories

pytestmark = pytest.mark.django_db


def judged_round(*, is_complete: bool = True) -> Round:
    round = factories.make_round(2, name="pilot")
    factories.judge_all(round, *[["true", "false"]] * (3 if is_complete else 1))
    if is_complete:
        Round.objects.update(completed_at=timezone.now())
    return round


def built_in_relation() -> str:
    factories.make_relation(relation_set=factories.make_relation_set(is_shipped=True))
    return reverse("kgharvest:harvest_new")


def relation_of_the_study() -> str:
    built_in_relation()
    return f"{reverse('kgharvest:harvest_new')}?relation={factories.make_relation().pk}"


def unfinished_harvest() -> str:
    return factories.make_harvest_job().get_absolute_url()


def failed_harvest() -> str:
    job = factories.make_harvest_job(Job.Status.FAILED)
    return f"{reverse('kgharvest:harvest_new')}?relation={job.relation_id}"


def harvest() -> str:
    job = factories.make_harvest([["seat belt", "injury"]])
    factories.make_harvest_job()
    return f"{reverse('annotation:round_new')}?job={job.pk}"


def draft() -> str:
    job = factories.make_harvest([["seat belt", "injury"]])
    return create_draft({"name": "draft", "cells": [{"job": job.pk, "n": 1}]}).get_absolute_url()


def open_round_without_annotators() -> str:
    draft()
    return reverse("annotation:round_invites", args=[factories.make_round(2).path])


def open_round_with_an_annotator() -> str:
    round = factories.make_round(2)
    join_round(round, factories.make_user())
    return round.get_absolute_url()


def paused_round() -> str:
    round = judged_round(is_complete=False)
    pause_round(round)
    return round.get_absolute_url()


def complete_round() -> str:
    open_round_without_annotators()
    return reverse("evaluation:report_new", args=[judged_round().path])


def closed_round_with_some_judgments() -> str:
    round = judged_round(is_complete=False)
    close_round(round)
    return reverse("evaluation:report_new", args=[round.path])


def closed_round_without_judgments() -> str:
    round = factories.make_round(2)
    close_round(round)
    return round.get_absolute_url()


def round_with_reports() -> str:
    create_report(judged_round())
    return create_report(Round.objects.get()).get_absolute_url()


def round_with_an_archived_report() -> str:
    newest = round_with_reports()
    archive(create_report(Round.objects.get()))
    return newest


def archived_round() -> str:
    round_with_reports()
    round = Round.objects.get()
    close_round(round)
    archive(round)
    return f"{reverse('annotation:round_new')}?job={round.strata.first().job_id}"


# State (a function that creates it and returns the URL of the action), key of the action for a researcher, and for a
# viewer
STATES = [
    (lambda: reverse("kgharvest:relation_new"), "add_relation", None),
    (built_in_relation, "start_harvest", None),
    (relation_of_the_study, "start_harvest", None),
    (unfinished_harvest, "view_harvest", None),
    (failed_harvest, "start_harvest", None),
    (harvest, "create_round", None),
    (draft, "view_draft", None),
    (open_round_without_annotators, "invite_annotators", "view_round"),
    (open_round_with_an_annotator, "view_round", "view_round"),
    (paused_round, "view_round", "view_round"),
    (complete_round, "create_report", "view_round"),
    (closed_round_with_some_judgments, "create_report", "view_round"),
    (closed_round_without_judgments, "view_round", "view_round"),
    (round_with_reports, "open_report", "open_report"),
    (round_with_an_archived_report, "open_report", "open_report"),
    (archived_round, "create_round", None),
]


@pytest.mark.parametrize(("state", "for_researcher", "for_viewer"), STATES)
def test_each_state_of_a_study_has_one_next_action(state: Callable[[], str], for_researcher, for_viewer):
    url = state()

    action = next_action(factories.make_researcher())
    of_viewer = next_action(factories.make_member(Role.VIEWER))

    assert (action.key, action.url) == (for_researcher, url)
    assert (of_viewer and of_viewer.key) == for_viewer


def test_a_complete_round_comes_before_a_closed_round():
    """PostgreSQL sorts NULL first in descending order, SQLite last."""
    complete, closed = judged_round(), factories.make_round(2, name="closed")
    factories.judge_all(closed, ["true", "false"])
    close_round(closed)

    with CaptureQueriesContext(connection) as captured:
        action = next_action(factories.make_researcher())

    assert complete.name in action.text
    [query] = [query["sql"] for query in captured if 'ORDER BY "annotation_round"."completed_at"' in query["sql"]]
    assert "NULLS LAST" in query


def test_work_is_offered_only_in_the_projects_of_a_researcher():
    complete_round()
    viewer = factories.make_member(Role.VIEWER)
    ProjectMember.objects.create(project=factories.make_project(), user=viewer, role=Role.RESEARCHER)
    stranger = factories.make_researcher(project=factories.make_project())

    assert [next_action(user).key for user in (viewer, stranger)] == ["start_harvest", "add_relation"]
