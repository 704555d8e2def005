"""Panel participants from the entry link to the completion code, and accessibility of panel pages."""

import os
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from annotation.invites.services import return_code
from kgharvest.contrib.recruiting.panels.services import enter, finish, join
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from tests import factories
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PANELS = "/projects/default/rounds/pilot/panels/"
TUPLES = [("vaccine", "measles"), ("lock", "theft"), ("umbrella", "rain"), ("helmet", "injury")]


def make_pilot(**fields):
    researcher = factories.make_researcher()
    round = factories.make_round(TUPLES, name="pilot", by=researcher, consent="Your answers are *published*.")
    values = {"name": "main", "places": 5, "statements_per_place": 2, "reward": 250, "completion_code": "C0DE-4711"}
    return researcher, make_panel(round, **{**values, **fields})


def test_participant_gets_code_after_entry_and_judging(visit):
    _, panel = make_pilot(completion_url="https://example.org/back?code={code}")
    visitor = visit()
    page = visitor.page

    page.goto(f"/enter/{panel.token}/?participant=p1")
    page.get_by_label("I have read this").check()
    page.get_by_role("button", name="Start judging").click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    expect(page.get_by_text("0 judged, 2 left")).to_be_visible()
    page.keyboard.press("t")
    expect(page.get_by_text("1 judged")).to_be_visible()

    phone = visit(width=360).page
    phone.goto(f"/return/{return_code(panel.submissions.get().annotator)}/")
    phone.get_by_role("button", name="Continue as").click()
    phone.wait_for_url(f"**/judge/{panel.round_id}/", wait_until="load")  # keys work after the script has run
    expect(phone.get_by_text("1 judged")).to_be_visible()
    assert "C0DE-4711" not in phone.content() + page.content()
    phone.keyboard.press("f")

    expect(phone.get_by_role("heading", name="All statements judged. Thank you!")).to_be_visible()
    expect(phone.get_by_label("Your code")).to_have_value("C0DE-4711")
    phone.get_by_role("button", name="Copy code").click()
    expect(phone.locator("[data-copied]")).not_to_be_empty()
    assert balance_of(panel).owed == 250
    assert visitor.complaints == []


def add_submissions(panel) -> None:
    for number in range(3):
        submission = enter(panel, f"5f3a9c1e7b{number}", "", timezone.now())
        annotator = join(submission, agrees=True)
        for task in factories.next_batch(annotator, timezone.now())[: number + 1]:
            factories.judge(annotator, task, seconds=4)
        submission.refresh_from_db()
        finish(submission, timezone.now())


PAGES = {
    "list": PANELS,
    "form": f"{PANELS}new/?platform=sona",
    "panel": f"{PANELS}main/",
    "publishing": f"{PANELS}draft/publish/",
    "stopping": f"{PANELS}main/stop/",
    "draft": f"{PANELS}draft/",
    "edit": f"{PANELS}main/edit/",
}


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.exhaustive)])
def test_researcher_pages_are_accessible_and_fit_screen(visit, width):
    researcher, panel = make_pilot()
    make_panel(panel.round, "draft", name="draft", platform="connect")
    add_submissions(panel)
    visitor = visit(researcher, width=width, color_scheme="light")

    problems_by_page = {name: page_problems(visitor, address, f"{name}-{width}") for name, address in PAGES.items()}

    assert {name: problems for name, problems in problems_by_page.items() if problems} == {}


@pytest.mark.parametrize("page", ["joining", "done", "full", "given back"])
def test_participant_pages_are_accessible_and_fit_phone(visit, page):
    _, panel = make_pilot(places=0 if page == "full" else 5, quota_full_code="LATE")
    visitor = visit(width=360, color_scheme="light")
    link = f"/enter/{panel.token}/?participant=p1"
    visitor.page.goto(link)
    if page == "given back":
        visitor.page.get_by_role("button", name="Return my place").click()
    if page == "done":
        visitor.page.get_by_label("I have read this").check()
        visitor.page.get_by_role("button", name="Start judging").click()
        visitor.page.wait_for_url(f"**/judge/{panel.round_id}/", wait_until="load")
        annotator = panel.submissions.get().annotator
        for task in factories.next_batch(annotator, timezone.now()):
            factories.judge(annotator, task)

    address = None if page == "given back" else link

    assert page_problems(visitor, address, f"{page}-360") == []


def page_problems(visitor, address: str | None, name: str) -> list[str]:
    """Return the axe violations of a page in both themes, and its width if wider than the window."""
    if address:
        visitor.page.goto(address)
    visitor.page.emulate_media(color_scheme="light")
    found = visitor.axe_violations()
    if folder := os.environ.get("KGHARVEST_SCREENSHOTS"):
        visitor.page.screenshot(path=Path(folder) / f"panels-{name}.png", full_page=True)
    visitor.page.emulate_media(color_scheme="dark")
    found += visitor.axe_violations("color-contrast")
    window = visitor.page.viewport_size["width"]
    width = visitor.page.evaluate("document.documentElement.scrollWidth")
    return [*found, *([f"{width} wide"] if width > window else [])]
