"""The start page, and what apps add to it."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from tests import factories

pytestmark = pytest.mark.django_db


def test_the_steps_of_the_work_come_in_its_order(researcher_client):
    page = researcher_client.get(reverse("home")).text

    nouns = ["Relations", "Harvests", "Knowledge", "Rounds", "Reports"]
    assert re.findall(r'<h2><a href="[^"]*">(\w+)', page) == nouns
    assert re.findall(r'<li><a href="[^"]*">(\w+)', page) == nouns  # the navigation


def test_a_researcher_is_led_to_the_first_step_not_taken(researcher_client):
    assert "First, relations" in researcher_client.get(reverse("home")).text

    factories.make_relation()
    assert "Next, a harvest" in researcher_client.get(reverse("home")).text

    factories.make_harvest([["seat belt", "injury"]])
    assert "Next, a round" in researcher_client.get(reverse("home")).text


def test_visitors_are_told_what_this_is(client):
    page = client.get(reverse("home")).text

    assert "Open the link that you were sent" in page
    assert "site-nav" not in page


def test_an_annotator_without_a_round_is_told_so(client):
    client.force_login(factories.make_user())

    assert "No round is waiting for you" in client.get(reverse("home")).text
