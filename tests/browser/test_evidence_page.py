"""Evidence page of a report, opened from disk: numbers link to their rows, and the page sends no requests."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from evaluation.reports.files import EVIDENCE, write_report
from evaluation.reports.services import create_report
from tests.browser.visitor import Visitor
from tests.evaluation.reports.studies import make_study
from tests.factories import make_researcher

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def report():
    return create_report(make_study(make_researcher()))


@pytest.fixture
def address(report, tmp_path) -> str:
    path = tmp_path / "evidence.html"
    path.write_bytes(write_report(report, EVIDENCE))
    return path.as_uri()


@pytest.fixture
def open_page(chromium):
    contexts = []

    def opened(address: str, width: int = 1280, **options) -> Visitor:
        # Tests that run axe pass bypass_csp=True, because the page's CSP blocks injected scripts.
        context = chromium.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        visitor = Visitor(context)
        visitor.page.goto(address)
        return visitor

    yield opened
    for context in contexts:
        context.close()


def rows_of(page):
    return page.locator("table.rows tbody tr")


def test_number_links_to_its_rows_and_back_by_keyboard(open_page, address, report):
    visitor = open_page(address)
    page = visitor.page
    [cell] = [c for c in report.document["cells"] if (c["relation"], c["model"]) == ("capital_of", "lm-b")]
    number = page.get_by_role("row", name="capital_of").get_by_role("link", name=".38")

    number.focus()
    page.keyboard.press("Enter")

    expect(page.locator("#rows")).to_have_text("capital_of · lm-b · multi")
    expect(page.locator("#rows")).to_be_focused()
    expect(rows_of(page)).to_have_count(cell["rejected"])
    assert set(rows_of(page).locator("td:nth-child(2)").all_inner_texts()) == {"Rejected"}
    expect(page.locator("#recount")).to_contain_text(f"{cell['accepted']} accepted, {cell['rejected']} rejected")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(number).to_be_focused()
    assert visitor.complaints == []
    assert visitor.requests == [address]


def test_rows_reproduce_accuracy_of_stratified_cell(open_page, address, report):
    [cell] = [cell for cell in report.document["cells"] if cell["weighting"] == "stratified"]
    page = open_page(f"{address}#relation=capital_of&model=lm-a&setting=multi").page

    accuracy = f"{cell['accuracy']:.2f}".lstrip("0")
    expect(page.locator("#recount")).to_contain_text(f"Report: {accuracy} accepted")
    expect(page.locator("#recount")).to_contain_text(f"from these rows: {accuracy}, weighted by the size of strata")


def test_url_restores_filters(open_page, address):
    visitor = open_page(address)
    page = visitor.page

    page.get_by_role("combobox", name="Relation").select_option("near")
    page.get_by_role("combobox", name="Verdict").select_option("accepted")
    page.get_by_role("searchbox", name="Text").fill("Emoji 😀")
    shown = rows_of(page).all_inner_texts()
    assert page.url.partition("#")[2].startswith("relation=near&verdict=accepted&text=Emoji")
    again = open_page(page.url).page

    assert 0 < len(shown) < 8
    assert rows_of(again).all_inner_texts() == shown
    expect(again.get_by_role("searchbox", name="Text")).to_have_value("Emoji 😀")
    expect(again.get_by_role("combobox", name="Relation")).to_have_value("near")
    page.get_by_role("button", name="Clear").click()
    expect(rows_of(page)).to_have_count(45)
    expect(page.locator("#rows")).to_have_text("All statements")


def test_comparison_shows_both_lms_with_escaped_text(open_page, address):
    visitor = open_page(address)
    page = visitor.page

    page.get_by_role("link", name="+4.2").click()

    expect(page.locator("#rows")).to_have_text("lm-a, lm-b · multi")
    expect(page.get_by_role("combobox", name="LM")).to_have_value("+")
    expect(rows_of(page)).to_have_count(45)
    expect(page.locator("q")).to_have_text("Nobody <b>knows</b> that.")
    expect(rows_of(page).first).to_contain_text("</script><script>alert(1)</script>")
    page.get_by_role("combobox", name="Verdict").select_option("rejected")
    expect(page.locator("#rows")).to_have_text("lm-a, lm-b · multi")
    assert visitor.complaints == []


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "light"),
        pytest.param(1280, "dark", marks=pytest.mark.exhaustive),
        pytest.param(1920, "light", marks=pytest.mark.exhaustive),
    ],
)
def test_evidence_page_is_accessible_and_fits_screen(open_page, address, width, scheme):
    visitor = open_page(f"{address}#relation=near", width, color_scheme=scheme, bypass_csp=True)
    page = visitor.page
    expect(page.locator("#rows")).to_have_text("near")

    assert visitor.axe_violations() == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_evidence_page_csp_blocks_script_requests(open_page, address):
    visitor = open_page(address)

    refused = visitor.page.evaluate(
        "() => fetch('http://127.0.0.1:9/').then(() => 'asked', error => error.constructor.name)"
    )

    assert refused == "TypeError"
    assert any("Content Security Policy" in complaint for complaint in visitor.complaints)
    assert visitor.requests == [address]
