"""Round creation pages and annotator training in a browser."""

import pytest
from playwright.sync_api import expect

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.invites.services import join_round
from annotation.rounds import forms
from annotation.rounds.services import create_draft, open_round
from tests import factories
from tests.factories import judging_page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SEEDS = [[f"head {n}", f"tail {n}"] for n in range(8)]


ROUNDS = "/projects/default/rounds/"


@pytest.fixture
def harvest():
    relation = factories.make_relation("goes_with", seed_tuples=SEEDS)
    candidates = gold_candidates(relation)
    decide_on_gold(relation, {candidate.code: number < 4 for number, candidate in enumerate(candidates[:5])})
    return factories.make_harvest([(f"found {n}", f"thing {n}") for n in range(30)], relation=relation)


def spec(harvest, name: str) -> dict:
    return {
        "name": name,
        "cells": [{"job": harvest.pk, "n": 12}],
        "gold_share": 0.1,
        "training_size": 4,
    }


@pytest.fixture
def researcher(harvest):
    user = factories.make_researcher()
    create_draft(spec(harvest, "draft"), user)
    create_draft(spec(harvest, "broken") | {"training_size": 20}, user)
    return user


def test_round_creation_pages_are_accessible(visit, researcher, harvest):
    visitor = visit(researcher, width=360, color_scheme="dark")
    paths = [
        f"/rounds/new/?job={harvest.pk}", f"{ROUNDS}draft/", f"{ROUNDS}broken/", f"{ROUNDS}draft/preview/",
        f"{ROUNDS}draft/edit/", f"{ROUNDS}draft/edit/?json", f"{ROUNDS}draft/delete/", "/rounds/gold/",
        f"/rounds/gold/{harvest.relation_id}/", f"{ROUNDS}draft/instructions/{harvest.relation_id}/",
    ]  # fmt: skip

    violations_at, widths = {}, {}
    for path in paths:
        visitor.page.goto(path, wait_until="networkidle")
        for details in visitor.page.locator("details").all():
            details.evaluate("details => { details.open = true; }")
        violations_at[path] = visitor.axe_violations()
        widths[path] = visitor.page.evaluate("document.documentElement.scrollWidth")

    assert {path: violations for path, violations in violations_at.items() if violations} == {}
    assert {path: width for path, width in widths.items() if width > 360} == {}
    assert visitor.complaints == []


def test_plan_updates_with_selected_harvests(visit, researcher, harvest):
    factories.make_harvest([("a", "b")], relation=factories.make_relation("part_of"))
    page = visit(researcher).page
    page.goto("/rounds/new/")

    page.get_by_text("Filter harvests").click()
    page.get_by_label("Relation").fill("goes")
    page.get_by_role("button", name="Select all listed").click()
    page.get_by_label("Statements per harvest").fill("25")

    page.get_by_text("± 7.9 points").wait_for()  # Wilson at 25 / (1 - 25 / 30) = 150, as 25 of 30 are judged
    assert page.locator("[data-chosen]").inner_text() == "1"
    assert page.locator(".pick-list li:visible").count() == 1


def test_form_shows_four_fields_and_opens_closed_sections_for_an_invalid_field(visit, researcher, harvest):
    page = visit(researcher).page
    page.goto(f"/rounds/new/?job={harvest.pk}")
    fields = page.locator(".round-form").locator("input, select, textarea").locator("visible=true")
    names = [field.get_attribute("name") for field in fields.all()]
    assert list(dict.fromkeys(names)) == ["name", "jobs", "n", "who_can_join"]
    assert page.get_by_role("main").get_by_role("button").all_inner_texts() == ["Open round", "Save as draft"]
    expect(page.locator(".plan table")).to_have_count(2)
    for table in page.locator(".plan .table-wrap").all():
        assert table.evaluate("table => table.scrollWidth <= table.clientWidth")

    advanced, section = page.get_by_text("Advanced", exact=True), page.get_by_text("Gold statements", exact=True)
    advanced.click()
    section.click()
    page.get_by_label("Gold (%)").fill("90")
    section.click()
    advanced.click()
    page.get_by_role("button", name="Save as draft").last.click()

    expect(page.get_by_label("Gold (%)")).to_be_focused()


@pytest.mark.parametrize("has_scripts", [True, False])
def test_training_works_by_keyboard_and_without_javascript(visit, harvest, has_scripts):
    round = open_round(spec(harvest, "pilot"))
    user = factories.make_user()
    join_round(round, user)
    visitor = visit(user, width=360, java_script_enabled=has_scripts)
    page = visitor.page
    page.goto(judging_page())

    for _ in range(4):
        if has_scripts:
            assert visitor.axe_violations() == []
            page.keyboard.press("t")
            page.get_by_role("link", name="Continue").wait_for()
            assert visitor.axe_violations() == []
            page.keyboard.press("Enter")
        else:
            page.get_by_role("button", name="True").click()
            page.get_by_role("link", name="Continue").click()
        page.wait_for_url("**/training/")

    assert page.get_by_role("heading", level=1).inner_text() == "2 of 4 correct"
    page.get_by_role("link", name="Start judging").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Judge statements of pilot"


def test_server_filters_long_harvest_list_before_select_all(visit, monkeypatch):
    monkeypatch.setattr(forms, "SHOWN_JOBS", 3)
    match = factories.make_harvest([("a", "b")], relation=factories.make_relation("zebra"))
    for number in range(4):
        factories.make_harvest([("a", "b")], relation=factories.make_relation(f"other_{number}"))
    page = visit(factories.make_researcher()).page
    page.goto("/rounds/new/")
    expect(page.get_by_text("3 of 5 listed")).to_be_visible()

    page.get_by_text("Filter harvests").click()
    page.get_by_role("searchbox", name="Relation").fill("zeb")
    page.get_by_role("button", name="Select all listed").click()

    expect(page.get_by_text("1 of 1 listed")).to_be_visible()
    chosen = page.locator("input[name=jobs]:checked")
    assert [box.get_attribute("value") for box in chosen.all()] == [str(match.pk)]
