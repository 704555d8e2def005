"""Round page in a browser: cells are filtered and sorted without a reload, and the URL stores the view."""

from __future__ import annotations

import pytest

from tests import factories

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PILOT = "/projects/default/rounds/pilot/"


@pytest.fixture
def page(visit):
    """Page of a judged round, three relations by two LMs. True: all of river and one tuple of lake. False: the rest."""
    researcher = factories.make_researcher()
    lms = [factories.make_language_model(name) for name in ("bert", "gpt")]
    jobs = [
        factories.make_harvest([(name, f"{lm} {n}") for n in range(2)], relation=relation, language_model=lm)
        for name in ("river", "lake", "sea")
        for relation in [factories.make_relation(name)]
        for lm in lms
    ]
    round = factories.open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]}, researcher)
    tasks = round.tasks.order_by("position")
    is_true = [task.entities[0] == "river" or task.entities == ["lake", "gpt 0"] for task in tasks]
    factories.judge_all(round, *[["true" if it_is else "false" for it_is in is_true]] * 3)
    visitor = visit(researcher, width=1280)
    visitor.page.goto(PILOT)
    visitor.page.axe_violations = visitor.axe_violations
    return visitor.page


def visible_relations(page) -> list[str]:
    return [row.get_by_role("rowheader").inner_text() for row in page.locator("[data-table] tbody tr:visible").all()]


def test_url_restores_cell_filter_and_sorting(page):
    assert page.axe_violations() == []
    assert visible_relations(page) == ["lake", "river", "sea"]

    page.locator("[data-key=s1]").click()
    assert visible_relations(page) == ["river", "lake", "sea"]
    page.get_by_label("Relation", exact=True).fill("e")
    assert visible_relations(page) == ["river", "lake", "sea"]
    page.get_by_label("Relation", exact=True).fill("A")
    assert visible_relations(page) == ["lake", "sea"]

    page.reload()
    assert visible_relations(page) == ["lake", "sea"]
    page.get_by_label("Relation", exact=True).fill("")
    assert visible_relations(page) == ["river", "lake", "sea"]
    expect(page.get_by_text("3 of 3 relations, 6 cells")).to_be_visible()


def test_cell_links_to_statements_and_list_shows_counts(page):
    page.get_by_role("row", name="lake").get_by_role("link", name=".50").click()
    expect(page.get_by_text("2 statements")).to_be_visible()
    page.go_back()

    page.get_by_role("link", name="list with counts").click()
    expect(page.get_by_role("row", name="lake gpt multi .50 .50 to .50")).to_be_visible()
    assert page.axe_violations() == []


def test_open_round_page_updates_cells(visit):
    researcher = factories.make_researcher()
    relation = factories.make_relation("river")
    jobs = [factories.make_harvest([("a", "b")], relation=relation) for _ in range(2)]
    document = {"name": "pilot", "judgments_per_task": 1, "cells": [{"job": job.pk, "n": None} for job in jobs]}
    round = factories.open_round(document, researcher)
    page = visit(researcher).page
    page.clock.install()
    page.goto(PILOT)
    expect(page.locator("[data-table]").get_by_text("0/1")).to_have_count(2)

    factories.judge_all(round, ["true"])
    page.clock.run_for(6_000)
    expect(page.locator("[data-figure=n_judgments]")).to_have_text("1")
    page.clock.run_for(40_000)

    expect(page.locator("[data-table]").get_by_text("1/1")).to_have_count(2)
    expect(page.get_by_text("Judgments by hour, maximum 1")).to_be_visible()
