"""The page in MTurk's frame in a real browser: keys, active time, the form at the end, and no cookie."""

import os

import pytest
from playwright.sync_api import expect

from annotation.models import Judgment, Platform
from tests.factories import make_panel, make_round

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_worker_judges_by_keys_without_a_cookie(visit):
    panel = make_panel(make_round(3, consent="We keep *nothing*."), platform=Platform.MTURK, statements_per_place=2)
    visitor = visit(width=360)
    page = visitor.page

    page.goto(f"/mturk/{panel.token}/?assignmentId=3ASSIGNMENT&hitId=3HIT&workerId=A2WORKER")
    assert visitor.axe_violations() == []
    keep_picture(page, "beginning")
    page.get_by_label("I have read this and agree").check()
    page.get_by_role("button", name="Start").click()
    for n_judged in range(2):
        expect(page.get_by_text(f"{n_judged} judged, {2 - n_judged} left at most")).to_be_visible()
        assert visitor.axe_violations() == []
        page.wait_for_load_state("networkidle")  # the script that listens to keys is there
        keep_picture(page, "statement")
        page.keyboard.press("t")

    form = page.locator("form")
    expect(page.get_by_role("button", name="Submit the HIT")).to_be_visible()
    assert form.get_attribute("action") == "https://workersandbox.mturk.com/mturk/externalSubmit"
    assert visitor.axe_violations() == []
    keep_picture(page, "end")
    assert all(0 < judgment.seconds < 600 for judgment in Judgment.objects.all())
    assert page.context.cookies() == []
    assert visitor.complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def keep_picture(page, name: str) -> None:
    if folder := os.environ.get("KGHARVEST_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/mturk-{name}.png", full_page=True)
