"""Home page, including the panels that apps add to it."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch, release_batch
from annotation.models import Round
from annotation.rounds.services import close_round, pause_round
from evaluation.models import Report
from kgharvest.archive import archive
from kgharvest.models import Relation, RelationSet
from tests import factories

pytestmark = pytest.mark.django_db


def test_stages_are_in_the_order_of_the_work(researcher_client):
    page = researcher_client.get(reverse("home")).text

    assert re.findall(r'<h2><a href="[^"]*">(\w+)', page) == ["Relations", "Harvests", "Rounds", "Reports"]
    assert re.findall(r'<li><a href="[^"]*">(\w+)', page) == [noun.split()[0] for noun, _ in settings.NAVIGATION]


def test_each_count_of_a_stage_links_to_its_rows(researcher_client):
    for status in ("queued", "failed", "failed"):
        factories.make_harvest_job(status)
    factories.make_round(2)
    practice = factories.make_round(2)
    close_round(practice)
    archive(practice)

    page = researcher_client.get(reverse("home")).text

    counts = re.findall(r'<a href="([^"]*)"><b>(\d+)</b>', page)
    assert counts == [
        ("/relations/", "5"),
        ("/harvests/?status=queued", "1"),
        ("/harvests/?status=succeeded", "2"),
        ("/harvests/?status=failed", "2"),
        ("/rounds/?status=open", "1"),
    ]
    for url, n in counts:
        assert f'<span class="count">{n} ' in researcher_client.get(url).text, url


def test_the_next_action_is_the_only_primary_button(researcher_client):
    page = researcher_client.get(reverse("home")).text
    assert re.findall(r'class="button primary"[^>]*>([^<]*)', page) == ["Add relation"]

    round = factories.make_round(2, name="pilot")
    factories.judge_all(round, ["true"] * 2, ["true"] * 2, ["true", "false"])
    Round.objects.update(completed_at=timezone.now())
    page = researcher_client.get(reverse("home")).text
    assert re.findall(r'class="button primary"[^>]*>([^<]*)', page) == ["Create report"]
    assert re.findall(r'aria-current="step">\s*<div>\s*<h2><a href="([^"]*)', page) == ["/reports/"]

    researcher_client.post(reverse("evaluation:report_new", args=[round.path]))
    page = researcher_client.get(reverse("home")).text
    assert re.findall(r'class="button primary" href="([^"]*)', page) == [Report.objects.get().get_absolute_url()]


def test_built_in_sets_are_loaded_from_the_empty_page(researcher_client):
    load = reverse("kgharvest:relation_load_shipped")
    assert f'action="{load}"' in researcher_client.get(reverse("home")).text

    page = researcher_client.post(load, follow=True).text
    assert "105 relations in 4 sets loaded." in page
    assert RelationSet.objects.filter(is_shipped=True).count() == 4

    launch = researcher_client.post(load, {"try": "1"}).url
    assert launch == f"/harvests/new/?relation={Relation.objects.get(relation_set__name='demo', name='capital_of').pk}"


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


def rounds_of_an_annotator(user) -> list[Round]:
    """Return a finished round, a closed round, and a round with statements left."""
    rounds = [factories.make_round(2, name=name, judgments_per_task=1) for name in ("finished", "over", "current")]
    for round, n in zip(rounds, (2, 1, 1), strict=True):
        annotator = join_round(round, user)
        for task in next_batch(annotator, timezone.now())[:n]:
            factories.judge(annotator, task)
    close_round(rounds[1])
    return rounds


def test_annotators_see_only_their_rounds(client):
    user = factories.make_user()
    client.force_login(user)
    factories.make_round(2, name="secret")
    assert "No open rounds" in client.get(reverse("home")).text

    finished, over, current = rounds_of_an_annotator(user)

    page = client.get(reverse("home")).text
    judge = '<a class="button primary" href="([^"]*)">Continue judging'
    assert re.findall(judge, page) == [reverse("annotation:judge", args=[current.pk])]
    assert re.findall('<progress aria-label="([^"]*)" value="1" max="2"', page) == ["current"]
    answers = [reverse("annotation:judge_answers", args=[round.pk]) for round in (over, finished)]
    assert re.findall('<li><a href="([^"]*)', page) == answers
    assert "secret" not in page


def test_an_annotator_with_nothing_left_is_not_asked_to_continue(client):
    user = factories.make_user()
    client.force_login(user)
    *_, current = rounds_of_an_annotator(user)
    close_round(current)

    page = client.get(reverse("home")).text

    assert "All your statements are judged" in page
    assert "Continue judging" not in page


def test_an_annotator_of_a_paused_round_has_neither_finished_nor_anything_to_do(client):
    user = factories.make_user()
    client.force_login(user)
    round = factories.make_round(2)
    factories.judge(join_round(round, user), next_batch(round.annotators.get(), timezone.now())[0])
    pause_round(round)

    page = client.get(reverse("home")).text

    assert "No open rounds" in page
    assert "All your statements are judged" not in page


@pytest.mark.parametrize("person", [factories.make_user, factories.make_researcher])
def test_number_of_queries_does_not_grow_with_joined_rounds(client, person):
    user, n_queries = person(), []
    client.force_login(user)
    for n_rounds in (4, 4):
        for number in range(n_rounds):
            annotator = join_round(factories.make_round(2), user)
            if number % 2:
                factories.judge(annotator, next_batch(annotator, timezone.now())[0])
                release_batch(annotator)
        with CaptureQueriesContext(connection) as captured:
            page = client.get(reverse("home")).text
        n_queries.append(len(captured))

    assert page.count("/judge/") == 8
    assert n_queries[0] == n_queries[1]


def test_a_researcher_who_judges_sees_both(client):
    user = factories.make_researcher()
    client.force_login(user)
    rounds_of_an_annotator(user)

    page = client.get(reverse("home")).text

    assert ">Continue judging</a>" in page
    assert 'class="timeline"' in page
    assert page.count("button primary") == 1
