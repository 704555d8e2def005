"""Home page, including the panels that apps add to it."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from django.utils import timezone

from annotation.models import Round
from evaluation.models import Report
from kgharvest.models import RelationSet
from tests import factories

pytestmark = pytest.mark.django_db


def test_workflow_steps_are_in_order(researcher_client):
    page = researcher_client.get(reverse("home")).text

    nouns = ["Relations", "Harvests", "Knowledge", "Rounds", "Reports"]
    assert re.findall(r'<h2><a href="[^"]*">(\w+)', page) == nouns
    assert re.findall(r'<li><a href="[^"]*">(\w+)', page) == nouns  # the navigation


def test_the_home_page_suggests_the_next_step(researcher_client):
    assert "Next step: add relations" in researcher_client.get(reverse("home")).text

    factories.make_relation()
    assert "Next step: launch a harvest" in researcher_client.get(reverse("home")).text

    job = factories.make_harvest([["seat belt", "injury"]])
    page = researcher_client.get(reverse("home")).text
    assert "Next step: create a round" in page
    assert f"{reverse('annotation:round_new')}?job={job.pk}" in page

    round = factories.make_round(2, name="pilot")
    assert "pilot has no judgments yet" in researcher_client.get(reverse("home")).text

    factories.judge_all(round, ["true"] * 2, ["true"] * 2, ["true", "false"])
    Round.objects.update(completed_at=timezone.now())
    page = researcher_client.get(reverse("home")).text
    assert "Next step: create a report" in page

    researcher_client.post(reverse("evaluation:report_new", args=[round.path]))
    page = researcher_client.get(reverse("home")).text
    assert "Next, " not in page
    assert "Next step" not in page
    assert Report.objects.get().get_absolute_url() in page


def test_the_shipped_sets_are_loaded_from_the_empty_page(researcher_client):
    assert "How it works" in researcher_client.get(reverse("home")).text

    page = researcher_client.post(reverse("kgharvest:relation_load_shipped"), follow=True).text

    assert "105 relations in 4 sets loaded." in page
    assert RelationSet.objects.filter(is_shipped=True).count() == 4


def test_unfinished_work_is_shown_with_its_progress(researcher_client):
    round = factories.make_round(2, name="pilot")
    factories.judge_all(round, ["true", "false"])
    launch = factories.make_launch()
    for _ in range(3):
        factories.make_harvest_job(launch=launch)

    page = researcher_client.get(reverse("home")).text

    assert "2 of 6" in page
    assert "0 of 3" in page
    assert launch.get_absolute_url() in page


def test_other_projects_are_not_shown(client):
    factories.make_round(2, name="secret")
    client.force_login(factories.make_researcher(project=factories.make_project()))

    assert "secret" not in client.get(reverse("home")).text


def test_visitors_see_an_introduction(client):
    page = client.get(reverse("home")).text

    assert "Open the link that you received" in page
    assert "site-nav" not in page


def test_an_annotator_without_a_round_sees_a_message(client):
    client.force_login(factories.make_user())

    assert "No open rounds" in client.get(reverse("home")).text
