"""Report page in a browser: length of the first screen, sections of the appendix, and the page of a share link."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from annotation.rounds.services import close_round
from evaluation.models import Report
from evaluation.reports.services import create_report
from evaluation.sharing.services import share_report
from tests import factories
from tests.browser.screenshots import resize, save_screenshots
from tests.evaluation.report_documents import make_document

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

RIGHT = "element => element.getBoundingClientRect().right"
TOP = "element => element.getBoundingClientRect().top + scrollY"
TWO_SCREENS = 1800


@pytest.fixture
def report():
    """Report on one relation and eight statements, of which three are false."""
    owner = factories.make_researcher()
    round = factories.make_round(8, name="pilot", by=owner)
    labels = ["true"] * 5 + ["false"] * 3
    factories.judge_all(round, labels, labels, labels)
    return create_report(round, owner)


def test_first_part_fits_two_screens_and_sections_load_when_opened(visit, report):
    visitor = visit(report.created_by)
    page = visitor.page
    page.goto(report.get_absolute_url())
    expect(page.locator("#table table")).to_be_visible()
    expect(page.locator("#figure-averages")).not_to_be_attached()  # a figure of one LM and setting has one point
    assert page.locator("#appendix").evaluate(TOP) <= TWO_SCREENS

    section = page.locator("#sensitivity")
    expect(section.get_by_role("table").first).not_to_be_attached()
    page.get_by_role("navigation", name="Appendix").get_by_role("link", name="Sensitivity").click()
    expect(section.get_by_role("table").first).to_be_visible()
    page.goto(f"{report.get_absolute_url()}?all=1#method")
    expect(page.get_by_text("Verdicts. A statement is accepted")).to_be_visible()
    page.get_by_text("More", exact=True).click()
    expect(page.get_by_role("link", name="Compare")).to_be_visible()

    cells = {
        (f"relation {n:02}", model, setting): (30 + n, 9, 5, 0)
        for n in range(20)
        for model in ("roberta-large", "bert-base-cased")
        for setting in ("human", "multi")
    }
    large = Report(round=report.round, document=make_document(cells), code_version="1", created_at=timezone.now())
    large.save()
    page.goto(large.get_absolute_url())
    expect(page.locator("#figure-averages svg")).to_be_visible()
    assert page.locator("#table tbody tr").count() == 20
    assert page.locator("#appendix").evaluate(TOP) <= TWO_SCREENS
    assert page.locator("#table .table-wrap").evaluate("table => table.scrollWidth <= table.clientWidth")
    resize(page, 390)
    assert page.locator("#figure-averages svg").evaluate(RIGHT) <= 390
    assert visitor.complaints == []


@pytest.mark.parametrize("is_open", [False, True])
def test_first_false_statement_of_shared_page_is_on_its_first_two_screens(visit, report, is_open):
    round = report.round
    false = list(round.tasks.filter(verdict="rejected"))
    if is_open:  # after the report was created, two annotators change their answers
        for annotator in round.annotators.all()[:2]:
            for task in false:
                factories.judge(annotator, task, "true")
        assert not round.tasks.filter(verdict="rejected").exists()
    else:
        close_round(round)
    share = share_report(report, "Reviewers", 7, timezone.now(), with_statements=True)
    visitor = visit(bypass_csp=True)
    page = visitor.page

    page.goto(f"/shared/{share.secret}/")

    for task in false:
        statement = page.get_by_role("listitem").filter(has=page.locator(f"b:text-is({task.entities[0]!r})")).first
        assert statement.evaluate(TOP) < 1600
    save_screenshots(page, f"co-author-{'open' if is_open else 'closed'}-round")
    row = page.get_by_role("row", name=report.document["cells"][0]["relation"]).first
    row.get_by_role("link", name=".62").click()  # 5 of 8: an exact tie, rounded to even
    expect(page.locator("#recount")).to_contain_text(".62")
    expect(page.locator("#recount")).not_to_contain_text(".63")
    row.get_by_role("link", name=".38").click()
    expect(page.locator("table.rows tbody tr")).to_have_count(3)
    for width in (390, 1280, 1920):
        resize(page, width)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert visitor.axe_violations() == []
    assert visitor.complaints == []
