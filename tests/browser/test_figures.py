"""Report figures in a browser: links from marks to statements, with mouse and keyboard."""

import pytest
from playwright.sync_api import expect

from annotation.rounds.services import close_round, open_round
from evaluation.reports.services import create_report
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def report():
    """Report on two LMs and two relations. Every second tuple of lm-b is false."""
    owner = factories.make_researcher()
    jobs = []
    for name in ("capital_of", "part_of"):
        relation = factories.make_relation(name)
        for model in ("lm-a", "lm-b"):
            lm = jobs[("lm-a", "lm-b").index(model)].language_model if len(jobs) > 1 else None
            tuples = [(f"{model} head {n}", f"{name} tail {n}") for n in range(4)]
            language_model = lm or factories.make_language_model(model)
            jobs.append(factories.make_harvest(tuples, relation=relation, language_model=language_model))
    round = open_round({"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]}, by=owner)
    tasks = round.tasks.order_by("position")
    labels = ["false" if task.entities[0] in ("lm-b head 1", "lm-b head 3") else "true" for task in tasks]
    factories.judge_all(round, labels, labels, labels)
    close_round(round, owner)
    return create_report(round, owner)


def test_three_clicks_lead_from_closed_round_to_false_tuples(visit, report):
    visitor = visit(report.created_by)
    page = visitor.page
    page.goto(report.round.get_absolute_url())

    page.locator(f'a[href="{report.get_absolute_url()}"]').first.click()
    page.locator("#figure-averages").get_by_role("link", name="lm-b · multi: .50").click()
    page.get_by_role("link", name="Rejected 4").click()

    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator("tbody tr").first.get_by_role("listitem")).to_have_count(3)  # the individual judgments
    assert visitor.complaints == []


def test_arrow_keys_navigate_figure_and_legend_hides_lms(visit, report):
    visitor = visit(report.created_by)
    page = visitor.page
    page.goto(f"{report.get_absolute_url()}#relations")
    heat_map = page.locator("#figure-heat-map")
    heat_map.scroll_into_view_if_needed()
    marks = heat_map.locator("a.mark:visible")
    expect(marks).to_have_count(6)

    assert marks.evaluate_all("marks => marks.filter(mark => mark.tabIndex === 0).length") == 1
    heat_map.locator('a.mark[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "part_of, lm-b · multi: .50 (.50 to .50), n = 4: 2 accepted, 2 rejected"
    expect(heat_map.locator(".plot-tip")).to_contain_text("2 rejected")
    assert visitor.axe_violations() == []

    heat_map.get_by_role("button", name="lm-a · multi").click()
    expect(marks).to_have_count(3)
    assert page.url.endswith("?off=0#relations")
    page.reload()
    page.locator("#figure-averages").scroll_into_view_if_needed()
    expect(page.locator("#figure-averages a.mark")).to_have_count(1)
    page.emulate_media(color_scheme="dark")
    assert visitor.axe_violations("color-contrast") == []
    assert visitor.complaints == []


def test_selected_table_columns_persist_across_reload(visit, report):
    visitor = visit(report.created_by, width=1920)
    page = visitor.page
    page.goto(f"{report.get_absolute_url()}#annotators")
    annotators = page.locator("#annotators")
    share = annotators.locator("[data-table=annotators] thead th", has_text="Unjudgeable")
    expect(share).to_be_visible()

    annotators.get_by_text("Columns", exact=True).first.click()
    annotators.get_by_role("checkbox", name="Unjudgeable", exact=True).first.uncheck()
    page.get_by_role("checkbox", name="Compact tables").check()
    expect(share).to_be_hidden()
    page.reload()

    expect(share).to_be_hidden()
    expect(page.get_by_role("checkbox", name="Compact tables")).to_be_checked()
    assert visitor.axe_violations() == []
    assert visitor.complaints == []
