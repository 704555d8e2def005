"""Creating relations and launching harvests in a browser, with and without JavaScript."""

import pytest
from playwright.sync_api import expect

from kgharvest.models import Launch, Relation
from tests import factories

VISIBLE_CONTROLS = "main :is(input, select, textarea, button, summary):visible"

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def no_broker(enqueued):
    """Queue harvests without a broker."""


def test_relation_preview_updates_while_typing(visit):
    page = visit(factories.make_researcher()).page
    page.goto("/relations/new/")

    page.get_by_label("Statement").fill("<ENT0> prevents <ENT2>.")
    page.get_by_label("Seed tuples", exact=True).fill("vaccine | measles\nseat belt | injury")
    expect(page.get_by_text("The slot <ENT1> is missing")).to_be_visible()
    page.get_by_label("Statement").fill("<ENT0> prevents <ENT1>.")
    expect(page.get_by_text("seat belt prevents injury.")).to_be_visible()

    page.get_by_label("Name").fill("prevent")
    page.get_by_label("Set", exact=True).fill("mine")
    page.get_by_role("button", name="Save relation").press("Enter")
    expect(page.get_by_role("heading", level=1, name="prevent")).to_be_visible()
    assert Relation.objects.get().path == "mine/prevent"


def test_relations_can_be_searched_selected_and_launched_by_keyboard(visit):
    match = factories.make_relation("prevents", relation_set=factories.make_relation_set("one"))
    other = factories.make_relation_set("other")
    for _ in range(2):
        factories.make_relation(relation_set=other)
    page = visit(factories.make_researcher()).page
    page.goto("/harvests/new/")

    expect(page.get_by_text("1 harvest,")).to_be_visible()  # the newest relation is selected
    assert page.locator(VISIBLE_CONTROLS).count() <= 8
    page.get_by_role("group", name="Relations").get_by_role("checkbox", checked=True).uncheck()
    page.get_by_text("More relations", exact=True).click()
    page.get_by_label("Search").fill("prevent")
    expect(page.get_by_role("checkbox", name="other")).to_be_hidden()
    page.locator("[data-picker]").get_by_role("checkbox", name="prevents").focus()
    page.keyboard.press("Space")
    page.get_by_label("Search").fill("")
    page.get_by_role("checkbox", name="other").focus()
    page.keyboard.press("Space")
    expect(page.get_by_text("3 of 3 selected")).to_be_visible()
    expect(page.get_by_text("3 harvests,")).to_be_visible()
    page.get_by_role("button", name="Start harvest").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_contain_text("3 harvests")
    assert {job.relation_id for job in Launch.objects.get().jobs.all()} == {
        match.pk,
        *other.relations.values_list("pk", flat=True),
    }


def test_relation_set_is_launched_and_cancelled_without_javascript(visit):
    relation_set = factories.make_relation_set("mine")
    for _ in range(3):
        factories.make_relation(relation_set=relation_set)
    page = visit(factories.make_researcher(), java_script_enabled=False, width=360).page
    page.goto("/harvests/new/")

    page.get_by_text("More relations", exact=True).click()
    page.get_by_role("checkbox", name="mine").check()
    page.get_by_role("button", name="Estimate duration").click()
    expect(page.get_by_text("3 harvests,")).to_be_visible()
    page.get_by_role("button", name="Start harvest").click()
    page.get_by_role("button", name="Cancel unfinished harvests").click()

    expect(page.get_by_text("3 harvests cancelled.")).to_be_visible()


def test_launch_page_updates_harvest_statuses(visit):
    launch = factories.make_launch()
    first, _ = (factories.make_harvest_job(launch=launch) for _ in range(2))
    page = visit(factories.make_researcher()).page
    page.goto(launch.get_absolute_url())

    launch.jobs.filter(pk=first.pk).update(status="failed", error="The LM is not at home.")

    row = page.locator(f"tr[data-job='{first.pk}']")
    expect(row.get_by_text("Failed")).to_be_visible()
    expect(row.get_by_role("button", name="Retry")).to_be_visible()
    expect(page.get_by_text("0 of 2")).to_be_visible()  # failed harvests do not count as progress
    expect(page.locator(".state-bar .is-failed")).to_have_attribute("width", "500")
    expect(page.get_by_role("img", name="1 queued 1 failed")).to_be_visible()
