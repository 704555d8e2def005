"""Complete study in a browser: a researcher goes from the login to the false tuples, with three annotators.

The path from the login to the first report takes at most 8 clicks and 6 page loads. Typing, judging (with the
invitation of annotators), and waiting (page reloads) do not count.

If KGHARVEST_SCREENSHOTS names a folder, screenshots in three widths and both themes are saved there.
"""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from annotation.models import Judgment, Round
from evaluation.sharing.services import share_report
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob
from tests import factories
from tests.browser.screenshots import save_screenshots

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MOST_CLICKS, MOST_LOADS = 8, 6
HEADER_CONTROLS = ".page-head .actions :is(a, button, summary):visible"
PASSWORD = "correct horse battery staple"
# Counts the clicks and page loads of a tab in its session storage. `detail` is 0 if the keyboard caused the click.
COUNTER = """
if (location.origin !== "null") {
  const count = (name) => { sessionStorage[name] = Number(sessionStorage[name] ?? 0) + 1; };
  if (performance.getEntriesByType("navigation")[0].type !== "reload") count("loads");
  addEventListener("click", ({ detail, target }) => {
    if (detail && target.closest("a, button, summary, label, input:is([type=checkbox], [type=radio])")) count("clicks");
  }, true);
  addEventListener("change", ({ target }) => { if (target.matches("select")) count("clicks"); }, true);
}
"""
FALSE = 2  # statements that all three annotators label False


@pytest.fixture(autouse=True)
def no_broker(enqueued):
    """Queue harvests without a broker; the test runs them itself."""


def judge_everything(page, round: Round) -> None:
    """Label the first FALSE statements in alphabetical order False, and the rest True."""
    false = {statement.casefold() for statement in sorted(task.statement for task in round.tasks.all())[:FALSE]}
    page.goto(f"/join/{round.join_token}/")
    page.get_by_role("button", name="Start judging").click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    save_screenshots(page, "5-judging")
    for _ in range(round.n_tasks):
        statement = page.locator("#statement").inner_text()
        page.keyboard.press("f" if statement.casefold() in false else "t")
        page.wait_for_function("was => document.querySelector('#statement')?.innerText !== was", arg=statement)
    expect(page.get_by_role("heading", name="No statements left")).to_be_visible()


def log_in(page, user) -> None:
    """Log in by keyboard, and start to count clicks and page loads."""
    user.set_password(PASSWORD)
    user.save()
    page.goto("/accounts/login/")
    page.add_init_script(COUNTER)
    page.get_by_label("Username").fill(user.username)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_study_runs_from_login_to_false_tuples(visit):
    visitor = visit()
    page = visitor.page
    log_in(page, factories.make_researcher())
    save_screenshots(page, "1-start-empty")

    page.get_by_role("link", name="Add relation").click()
    page.get_by_label("Name").fill("can")
    page.get_by_label("Set", exact=True).fill("mine")
    page.get_by_label("Statement").fill("<ENT0> can <ENT1>.")
    page.get_by_label("Seed tuples", exact=True).fill("fish | swim\nbird | fly\nhorse | run")
    page.get_by_label("Setting", exact=True).select_option("human")
    page.get_by_label("Maximum tuples").fill("8")
    save_screenshots(page, "2-relation-form")
    page.get_by_role("button", name="Save and start harvest").click()
    expect(page.get_by_role("heading", name="can ×")).to_be_visible()
    ledger.run_job(HarvestJob.objects.get().pk)
    page.reload()
    save_screenshots(page, "3-harvest")

    page.get_by_role("link", name="Create round").click()
    save_screenshots(page, "4-round-form")
    page.get_by_role("button", name="Open round").click()
    round = Round.objects.get()
    assert (round.name, round.n_tasks) == ("can-1", 8)
    expect(page.locator(HEADER_CONTROLS)).to_have_text(["Invite annotators", "Create report", "More"])

    for number in range(3):
        annotator = visit(factories.make_user(), width=360).page
        judge_everything(annotator, round)
        if number == 0:
            save_screenshots(annotator, "6-judged")
    page.reload()
    save_screenshots(page, "7-round")
    expect(page.locator(HEADER_CONTROLS)).to_have_text(["Create report", "More"])
    page.locator(".more-menu > summary").press("Enter")
    expect(page.get_by_role("link", name="Close round")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Close round")).to_be_hidden()
    page.get_by_role("main").get_by_role("button", name="Create report").click()
    expect(page).to_have_url(re.compile("/reports/"))
    clicks, loads = page.evaluate("[sessionStorage.clicks, sessionStorage.loads].map(Number)")
    assert clicks <= MOST_CLICKS
    assert loads <= MOST_LOADS
    save_screenshots(page, "8-report")

    page.locator("#table").get_by_role("link", name=".75").click()
    page.get_by_role("link", name=f"Rejected {FALSE}").click()
    expect(page.locator("tbody tr")).to_have_count(FALSE)
    save_screenshots(page, "9-false-tuples")
    page.goto("/")
    save_screenshots(page, "10-start")

    share = share_report(round.reports.get(), "Reviewers", 7, timezone.now(), password="correct horse")
    reader = visit().page
    reader.goto(f"/shared/{share.secret}/")
    reader.get_by_label("Password").fill("correct horse")
    reader.keyboard.press("Enter")
    expect(reader.get_by_role("heading", name="can-1")).to_be_visible()
    save_screenshots(reader, "11-shared")
    assert Judgment.objects.counted().count() == 3 * 8
    assert visitor.complaints == []
    assert visitor.foreign_requests() == []
