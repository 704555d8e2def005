"""Keyboard: Tab reaches every control of the main pages in the order of the page, with a visible focus."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from evaluation.reports.services import create_report
from evaluation.sharing.services import share_report
from kgharvest.models import HarvestJob
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Visible controls in the order of the page. Tab reaches one radio button of a group.
CONTROLS = """
[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((control) =>
  control.checkVisibility({ checkVisibilityCSS: true }) && !control.disabled && control.tabIndex >= 0 &&
  (control.type !== "radio" || control.checked))
"""
# Index of the focused control, and whether an outline or shadow shows the focus. Links of rows outline the row, and
# radio buttons that look like buttons outline their text.
FOCUSED = f"""
() => {{
  const control = document.activeElement;
  if (control === document.body) return null;
  const styles = [getComputedStyle(control), getComputedStyle(control, "::after")];
  if (control.nextElementSibling) styles.push(getComputedStyle(control.nextElementSibling));
  const hasOutline = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  const isVisible = styles.some((style) => hasOutline(style) || style.boxShadow !== "none");
  return [{CONTROLS}.indexOf(control), isVisible];
}}
"""
MOST_CONTROLS = 300


@pytest.fixture
def report():
    """Report on a judged round."""
    owner = factories.make_researcher()
    round = factories.make_round(4, name="pilot", by=owner)
    factories.judge_all(round, *[["true", "true", "true", "false"]] * 3)
    return create_report(round, owner)


def test_tab_reaches_every_control_with_visible_focus(visit, report):
    job = HarvestJob.objects.get()
    share = share_report(report, "Co-author", 7, timezone.now(), with_statements=True)
    round_page = report.round.get_absolute_url()
    paths = [
        "/", "/relations/new/", "/harvests/new/", job.get_absolute_url(), f"/rounds/new/?job={job.pk}", round_page,
        f"{round_page}invites/", report.get_absolute_url(), f"/shared/{share.secret}/", "/knowledge/",
    ]  # fmt: skip
    page = visit(report.created_by).page

    faults = {}
    for path in paths:
        page.goto(path, wait_until="networkidle")
        n_controls, steps = page.evaluate(f"{CONTROLS}.length"), []
        while len(steps) < MOST_CONTROLS:
            page.keyboard.press("Tab")
            if (step := page.evaluate(FOCUSED)) is None:
                break
            steps.append(step)
        if not n_controls or steps != [[number, True] for number in range(n_controls)]:
            faults[path] = (n_controls, steps)
    assert faults == {}


def test_menu_and_folded_section_open_by_keyboard(visit, report):
    page = visit(report.created_by).page
    page.goto(report.get_absolute_url())

    page.locator(".more-menu > summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator(".more-menu :is(a, button)").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".more-menu > summary")).to_be_focused()
    page.locator("#agreement > summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#agreement").get_by_role("table").first).to_be_visible()
