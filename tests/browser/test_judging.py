"""Judging in a real browser: one key per statement, nothing lost, and at its end a report."""

import pytest
from playwright.sync_api import expect

from annotation.models import Judgment, Label
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TUPLES = [("vaccine", "measles"), ("seat belt", "injury"), ("umbrella", "sunrise"), ("lock", "theft")]


def join(page, round) -> None:
    page.goto(f"/join/{round.join_token}/")
    page.get_by_role("main").get_by_role("button").click()
    page.wait_for_url("**/judge/")  # and for its script: keys pressed before are lost


def answer_with(page, keys: str) -> None:
    """Give one answer per key, each to a statement of its own, and wait until the server has them all."""
    for key in keys:
        statement = page.locator("#statement").inner_text()
        page.keyboard.press(key)
        page.wait_for_function("was => document.querySelector('#statement')?.innerText !== was", arg=statement)


def expect_the_end(page) -> None:
    expect(page.get_by_role("heading", name="Nothing is left for you")).to_be_visible()


def labels_of(user) -> list[str]:
    return sorted(Judgment.objects.counted().filter(annotator__user=user).values_list("label", flat=True))


def test_three_annotators_with_one_key_per_statement_reach_the_report(visit):
    researcher = factories.make_researcher()
    round = factories.make_round(TUPLES, name="pilot", by=researcher)

    for _ in range(3):
        page = visit(factories.make_user()).page
        join(page, round)
        answer_with(page, "tttf")
        expect_the_end(page)

    page = visit(researcher).page
    page.goto(round.get_absolute_url())
    page.get_by_role("main").get_by_role("button", name="report").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("pilot")
    assert Judgment.objects.counted().filter(task__round=round).count() == 3 * len(TUPLES)


def test_the_keyboard_alone_is_enough_on_a_narrow_screen(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(user, width=360).page
    join(page, round)

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    answer_with(page, "1")
    page.keyboard.press("ArrowLeft")
    answer_with(page, "fu2t")
    expect_the_end(page)

    assert labels_of(user) == [Label.FALSE, Label.FALSE, Label.TRUE, Label.UNJUDGEABLE]


def test_without_scripts_every_answer_is_a_plain_form(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES[:2], name="pilot")
    page = visit(user, java_script_enabled=False).page
    join(page, round)

    page.get_by_role("button", name="True").click()
    page.get_by_role("button", name="Unjudgeable").click()
    expect_the_end(page)

    assert labels_of(user) == [Label.TRUE, Label.UNJUDGEABLE]


def test_an_answer_survives_a_server_that_is_away(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(user).page
    join(page, round)

    page.context.set_offline(True)
    answer_with(page, "tf")
    expect(page.get_by_text("Not saved yet")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()

    assert labels_of(user) == [Label.FALSE, Label.TRUE]


def test_the_answer_buttons_lie_under_the_thumb_on_a_phone(visit):
    page = visit(factories.make_user(), width=360).page
    join(page, factories.make_round(TUPLES, name="pilot"))

    boxes = [button.bounding_box() for button in page.locator(".answers button").all()]

    assert [box for box in boxes if box["height"] < 44 or box["y"] + box["height"] > 800 or box["y"] < 600] == []
