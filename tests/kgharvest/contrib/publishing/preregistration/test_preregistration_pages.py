"""Pages, files and API of preregistrations."""

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


def test_a_draft_leads_to_the_form_and_the_form_to_what_is_frozen(researcher_client):
    make_draft()
    form = f"{DRAFT}preregister/"

    assert form in researcher_client.get(DRAFT).text
    assert "lm · multi" in researcher_client.get(form).text
    sent = PLAN | {"planned_0": "on", "expects_0": "second", "words_0": "Multi wins."}
    page = researcher_client.post(form, sent, follow=True).text

    frozen = Preregistration.objects.get()
    assert frozen.sha256 in page
    assert "Multi wins. (lm · multi is more accurate than lm · human)" in page
    [hypothesis] = frozen.document["plan"]["hypotheses"]
    assert (hypothesis["first"]["setting"], hypothesis["expects"]) == ("human", "second")
    assert f"Preregistered {frozen.frozen_at:%Y-%m-%d}" in researcher_client.get(DRAFT).text


def test_likeness_needs_a_margin_and_words_an_expectation(researcher_client):
    make_draft()

    likeness = researcher_client.post(f"{DRAFT}preregister/", PLAN | {"expects_0": "alike"}).text
    words = researcher_client.post(f"{DRAFT}preregister/", PLAN | {"words_0": "Hm."}).text

    assert "Enter a margin" in likeness
    assert "Select a hypothesis" in words
    assert not Preregistration.objects.exists()


def test_the_page_refuses_a_judged_round_with_a_sentence(researcher_client):
    round = open_draft(make_draft())
    judge_all(round, ["true"] * 12)

    page = researcher_client.get(f"{DRAFT}preregister/", follow=True).text

    assert "before its first judgment" in page


def test_a_round_that_compares_nothing_can_be_preregistered(researcher_client):
    make_draft(1)

    page = researcher_client.get(f"{DRAFT}preregister/").text
    researcher_client.post(f"{DRAFT}preregister/", PLAN)

    assert "no comparisons" in page
    assert Preregistration.objects.get().document["plan"]["comparisons"] == []


def test_the_second_form_begins_with_the_words_of_the_first(researcher_client):
    freeze(make_draft(), planned(analysis="My own analysis."))

    page = researcher_client.get(f"{DRAFT}preregister/").text

    assert "My own analysis." in page
    assert "version 2" in page


def test_the_json_file_has_the_recorded_hash_and_markdown_is_text(researcher_client):
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


def test_what_people_write_runs_nothing(researcher_client):
    freeze(make_draft(), planned(analysis="<script>alert(1)</script>"))

    assert "<script>alert(1)" not in researcher_client.get(f"{DRAFT}preregistrations/1/").text


def test_round_and_report_wear_a_badge_with_the_deviations(researcher_client):
    draft = make_draft(3, ("multi", "human", "top1"))
    freeze(draft)
    round = open_draft(draft)
    judge_all(round, ["true", "false"] * 13 + ["true"])
    before = researcher_client.get(DRAFT).text
    report = create_report(round)

    page = researcher_client.get(report.get_absolute_url()).text

    assert "deviation" not in before.partition("preregistrations")[0]
    assert ", 1 deviation" in page
    assert "planned" in page
    assert "exploratory" in page
    assert ", 1 deviation" in researcher_client.get(DRAFT).text


def test_the_newest_report_counts_for_the_badge(researcher_client):
    draft = make_draft(closes_when="complete")
    freeze(draft)
    round = open_draft(draft)
    create_report(round)
    judge_all(round, *[["true"] * 12] * 3)
    close_round(round)
    create_report(round)

    assert "no deviations" in researcher_client.get(DRAFT).text


def test_a_margin_that_nothing_asks_for_is_left_out(researcher_client):
    make_draft()
    sent = PLAN | {"expects_0": "first", "margin_0": "5"}

    researcher_client.post(f"{DRAFT}preregister/", sent)

    [hypothesis] = Preregistration.objects.get().document["plan"]["hypotheses"]
    assert hypothesis["margin"] is None
    assert hypothesis["words"] == "lm · human is more accurate than lm · multi."


# -- the API -----------------------------------------------------------------------------------------------------------


def test_a_program_freezes_lists_and_reads(researcher_client):
    draft = make_draft()
    address = f"/api/v1/rounds/{draft.pk}/preregistrations/"
    plan = PLAN | {"hypotheses": [{**SIDES, "expects": "alike", "margin": 5}]}

    made = researcher_client.post(address, plan, "application/json").json()
    listed = researcher_client.get(address).json()["results"]
    read = researcher_client.get(f"{address}{made['id']}/").json()
    file = researcher_client.get(f"{address}{made['id']}/preregistration.json").content

    assert [entry["sha256"] for entry in listed] == [made["sha256"]] == [read["sha256"]]
    assert read["document"]["plan"]["hypotheses"][0]["margin"] == 5
    assert hashlib.sha256(file).hexdigest() == made["sha256"]


def test_a_program_is_told_what_is_wrong(researcher_client):
    draft = make_draft()
    address = f"/api/v1/rounds/{draft.pk}/preregistrations/"

    misspelt = researcher_client.post(address, PLAN | {"hypothesis": []}, "application/json")
    empty = researcher_client.post(address, {}, "application/json")
    uncompared = PLAN | {"comparisons": [{**SIDES, "second": {"model": "lm", "setting": "top1"}}]}
    refused = researcher_client.post(address, uncompared, "application/json")

    assert (misspelt.status_code, empty.status_code, refused.status_code) == (400, 400, 409)
    assert "do not compare" in refused.json()["error"]["message"]


def test_versions_of_another_round_are_not_found(researcher_client):
    frozen, other = freeze(make_draft()), make_draft(name="other")

    assert researcher_client.get(f"/api/v1/rounds/{other.pk}/preregistrations/{frozen.pk}/").status_code == 404
