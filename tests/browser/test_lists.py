"""Lists in a browser: filtering while typing, sticky table headers, and URLs that restore the view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_list_filters_while_typing_and_url_restores_view(visit):
    for number in range(60):
        factories.make_harvest_job(relation=factories.make_relation(f"relation_{number:02}"))
    page = visit(factories.make_researcher(), width=1280).page
    page.goto("/harvests/?sort=relation")

    page.get_by_role("searchbox", name="Relation").press_sequentially("relation_5")
    expect(page.get_by_role("status")).to_have_text("10 harvests")
    expect(page).to_have_url(re.compile(r"q=relation_5"))
    page.get_by_role("link", name="LM", exact=True).click()
    expect(page.get_by_role("columnheader", name="LM")).to_have_attribute("aria-sort", "ascending")

    page.reload()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_role("searchbox", name="Relation").fill("relation_59")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"sort=model"))
    page.get_by_role("searchbox", name="Relation").fill("")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.evaluate("scrollTo(0, 1200)")
    assert page.locator("thead").evaluate("head => head.querySelector('th').getBoundingClientRect().top") == 0


def test_url_stores_expanded_sections(visit):
    job = factories.make_harvest([("a", "b"), ("c", "d")])
    page = visit(factories.make_researcher()).page
    page.goto(job.get_absolute_url())

    page.get_by_text("Show as table").click()
    expect(page).to_have_url(re.compile(r"open=scores"))
    page.reload()

    expect(page.get_by_role("cell", name="−1.000").first).to_be_visible()
    page.get_by_text("Show as table").click()
    expect(page).not_to_have_url(re.compile("open="))


def test_knowledge_base_shows_two_filters_until_more_are_opened(visit):
    factories.make_harvest([("a", "b")])
    page = visit(factories.make_researcher()).page
    page.goto("/knowledge/")
    filters = page.locator("main .filters :is(input, select):visible")

    expect(filters).to_have_count(2)
    page.get_by_text("More filters").press("Enter")
    page.locator(".more-filters :is(input, select):visible").first.wait_for()
    assert filters.count() > 2
