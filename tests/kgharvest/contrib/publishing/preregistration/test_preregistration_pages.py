"""Pages, files, and API of preregistrations."""

import hashlib
import json

import pytest

from annotation.rounds.services import close_round, open_draft
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.models import Preregistration
from tests.factories import judge_all
from tests.kgharvest.contrib.publishing.preregistration.planning import PLAN, SIDES, freeze, make_draft, planned

pytestmark = pytest.mark.django_db

DRAFT = "/projects/default/rounds/study/"


def test_form_is_linked_from_the_draft_and_freezes_the_plan(researcher_client):
    make_draft()
    form = f"{DRAFT}preregister/"

    assert form in researcher_client.get(DRAFT).text
    assert "lm · multi" in researcher_client.get(form).text
    form_data = PLAN | {"planned_0": "on", "expects_0": "second", "words_0": "Multi wins."}
    page = researcher_client.post(form, form_data, follow=True).text

    frozen = Preregistration.objects.get()
    assert frozen.sha256 in page
    assert "Multi wins. (lm · multi is more accurate than lm · human)" in page
    [hypothesis] = frozen.document["plan"]["hypotheses"]
    assert (hypothesis["first"]["setting"], hypothesis["expects"]) == ("human", "second")
    assert f"Preregistered {frozen.frozen_at:%Y-%m-%d}" in researcher_client.get(DRAFT).text


def test_form_requires_margin_for_similarity_and_hypothesis_for_words(researcher_client):
    make_draft()

    similarity = researcher_client.post(f"{DRAFT}preregister/", PLAN | {"expects_0": "alike"}).text
    words = researcher_client.post(f"{DRAFT}preregister/", PLAN | {"words_0": "Hm."}).text

    assert "Enter a margin" in similarity
    assert "Select a hypothesis" in words
    assert not Preregistration.objects.exists()


def test_page_rejects_a_judged_round_with_a_message(researcher_client):
    round = open_draft(make_draft())
    judge_all(round, ["true"] * 12)

    page = researcher_client.get(f"{DRAFT}preregister/", follow=True).text

    assert "before its first judgment" in page


def test_round_without_comparisons_can_be_preregistered(researcher_client):
    make_draft(1)

    page = researcher_client.get(f"{DRAFT}preregister/").text
    researcher_client.post(f"{DRAFT}preregister/", PLAN)

    assert "no comparisons" in page
    assert Preregistration.objects.get().document["plan"]["comparisons"] == []


def test_form_of_second_version_starts_with_the_first_plan(researcher_client):
    freeze(make_draft(), planned(analysis="My own analysis."))

    page = researcher_client.get(f"{DRAFT}preregister/").text

    assert "My own analysis." in page
    assert "version 2" in page


def test_json_file_matches_the_hash_and_markdown_is_escaped(researcher_client):
    frozen = freeze(make_draft(), planned(primary_outcome="# Accuracy <b>of</b> all", comparisons=[SIDES]))
    address = f"{DRAFT}preregistrations/1/preregistration"

    as_json = researcher_client.get(f"{address}.json").content
    markdown = researcher_client.get(f"{address}.md").text

    assert hashlib.sha256(as_json).hexdigest() == frozen.sha256
    assert json.loads(as_json) == frozen.document
    assert frozen.sha256 in markdown
    assert r"\# Accuracy \<b\>of\</b\> all" in markdown
    assert "lm · multi and lm · human" in markdown
    assert "`statements.sha256`" in markdown
    assert researcher_client.get(f"{address}.pdf").status_code == 404
    assert researcher_client.get(f"{DRAFT}preregistrations/2/").status_code == 404


def test_plan_text_is_escaped_in_html(researcher_client):
    freeze(make_draft(), planned(analysis="<script>alert(1)</script>"))

    assert "<script>alert(1)" not in researcher_client.get(f"{DRAFT}preregistrations/1/").text


def test_round_and_report_badges_count_deviations(researcher_client):
    draft = make_draft(3, ("multi", "human", "top1"))
    freeze(draft)
    round = open_draft(draft)
    judge_all(round, ["true", "false"] * 13 + ["true"])
    before = researcher_client.get(DRAFT).text
    report = create_report(round)

    page = researcher_client.get(f"{report.get_absolute_url()}?all").text

    assert "deviation" not in before.partition("preregistrations")[0]
    assert ", 1 deviation" in page
    assert "planned" in page
    assert "exploratory" in page
    assert ", 1 deviation" in researcher_client.get(DRAFT).text


def test_badge_uses_the_newest_report(researcher_client):
    draft = make_draft(closes_when="complete")
    freeze(draft)
    round = open_draft(draft)
    create_report(round)
    judge_all(round, *[["true"] * 12] * 3)
    close_round(round)
    create_report(round)

    assert "no deviations" in researcher_client.get(DRAFT).text


def test_unneeded_margin_is_discarded(researcher_client):
    make_draft()
    form_data = PLAN | {"expects_0": "first", "margin_0": "5"}

    researcher_client.post(f"{DRAFT}preregister/", form_data)

    [hypothesis] = Preregistration.objects.get().document["plan"]["hypotheses"]
    assert hypothesis["margin"] is None
    assert hypothesis["words"] == "lm · human is more accurate than lm · multi."


# API


def test_api_creates_lists_and_reads_preregistrations(researcher_client):
    draft = make_draft()
    address = f"/api/v1/rounds/{draft.pk}/preregistrations/"
    plan = PLAN | {"hypotheses": [{**SIDES, "expects": "alike", "margin": 5}]}

    created = researcher_client.post(address, plan, "application/json").json()
    listed = researcher_client.get(address).json()["results"]
    read = researcher_client.get(f"{address}{created['id']}/").json()
    file = researcher_client.get(f"{address}{created['id']}/preregistration.json").content

    assert [entry["sha256"] for entry in listed] == [created["sha256"]] == [read["sha256"]]
    assert read["document"]["plan"]["hypotheses"][0]["margin"] == 5
    assert hashlib.sha256(file).hexdigest() == created["sha256"]


def test_api_rejects_invalid_plans_with_a_reason(researcher_client):
    draft = make_draft()
    address = f"/api/v1/rounds/{draft.pk}/preregistrations/"

    misspelt = researcher_client.post(address, PLAN | {"hypothesis": []}, "application/json")
    empty = researcher_client.post(address, {}, "application/json")
    uncompared = PLAN | {"comparisons": [{**SIDES, "second": {"model": "lm", "setting": "top1"}}]}
    refused = researcher_client.post(address, uncompared, "application/json")

    assert (misspelt.status_code, empty.status_code, refused.status_code) == (400, 400, 409)
    assert "do not compare" in refused.json()["error"]["message"]


def test_preregistrations_of_another_round_are_not_found(researcher_client):
    frozen, other = freeze(make_draft()), make_draft(name="other")

    assert researcher_client.get(f"/api/v1/rounds/{other.pk}/preregistrations/{frozen.pk}/").status_code == 404
