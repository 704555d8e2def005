"""Round panels on harvest and launch pages: verdicts, accuracy by round, and links to a new round."""

from __future__ import annotations

import pytest
from django.urls import reverse

from annotation.models import Round
from annotation.monitoring.cells import count_cells
from annotation.rounds.services import open_round
from kgharvest.models import HarvestJob, Project, Role
from kgharvest.pages.number_format import interval
from tests.factories import (
    judge_all,
    make_harvest,
    make_harvest_job,
    make_launch,
    make_member,
    make_project,
    make_relation,
)

pytestmark = pytest.mark.django_db

NEW = reverse("annotation:round_new")


@pytest.fixture
def harvest(db) -> HarvestJob:
    relation = make_relation("capable of", statement="<ENT0> can <ENT1>.")
    return make_harvest([(animal, "swim") for animal in ("dog", "horse", "stone", "whale")], relation=relation)


def test_harvest_page_shows_statements_verdicts_and_accuracy_by_round(researcher_client, harvest):
    project = Project.objects.get(slug="default")
    round = open_round({"name": "pilot", "cells": [{"job": harvest.pk, "n": 3}]}, None, project)
    labels = ["false" if task.entities[0] == "stone" else "true" for task in round.tasks.order_by("position")]
    judge_all(round, *[labels] * 3)

    page = researcher_client.get(harvest.get_absolute_url()).text

    assert "<b><bdi>dog</bdi></b> can <b><bdi>swim</bdi></b>." in page
    [cell] = count_cells(round)
    assert interval(cell["low"], cell["high"]) in page
    for task in round.tasks.all():
        assert f'is-{task.verdict}" href="{task.get_absolute_url()}"' in page
    assert researcher_client.get(round.tasks.first().get_absolute_url()).status_code == 200


def test_round_form_of_a_harvest_suggests_a_free_name(researcher_client, harvest):
    address = f"{NEW}?job={harvest.pk}"
    assert f'href="{address}"' in researcher_client.get(harvest.get_absolute_url()).text
    form = researcher_client.get(address).context["form"]

    opened = researcher_client.post(
        NEW, {**form.initial, "n": 2, "who_can_join": "account", "action": "open"}, follow=True
    ).text

    round = Round.objects.get()
    assert (round.name, round.status, round.n_tasks) == ("capable-of-1", "open", 2)
    assert "Round capable-of-1 opened with 2 statements." in opened
    assert researcher_client.get(address).context["form"].initial["name"] == "capable-of-2"


def test_round_form_of_a_launch_selects_finished_harvests(researcher_client):
    launch = make_launch()
    jobs = [make_harvest([("a", "b")], launch=launch) for _ in range(2)]
    make_harvest_job("failed", launch=launch)

    address = f"{NEW}?launch={launch.pk}"
    assert f'href="{address}"' in researcher_client.get(launch.get_absolute_url()).text
    initial = researcher_client.get(address).context["form"].initial

    assert sorted(initial["jobs"]) == sorted(str(job.pk) for job in jobs)
    assert initial["name"].endswith("-1")


def test_round_links_respect_permissions(client, harvest):
    client.force_login(make_member(Role.VIEWER))
    assert "Create round" not in client.get(harvest.get_absolute_url()).text

    client.force_login(make_member(project=make_project()))
    for query in (f"job={harvest.pk}", "job=x", "launch=99999"):
        assert client.get(f"{NEW}?{query}").context["form"].initial == {"jobs": []}
