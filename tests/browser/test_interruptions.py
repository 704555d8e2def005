"""Interrupted judging: expired leases, lost connections, quality limits, and quotas. Also adjudication."""

import re
from datetime import timedelta

import psycopg
import pytest
from django.db import OperationalError
from django.utils import timezone
from playwright.sync_api import expect

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from annotation.models import Adjudication, Assignment, Judgment
from annotation.quality.limits import resume_annotator, set_limits
from kgharvest.bulk.prepared import PreparedSelect
from tests import factories
from tests.factories import judging_page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TUPLES = [("vaccine", "measles"), ("seat belt", "injury"), ("umbrella", "sunrise"), ("lock", "theft")]
QUOTA_REACHED = "You have reached the limit for this round. Thank you!"


def start_judging(visit, round, user=None, **options):
    """Join a round in a new browser and open the first statement."""
    visitor = visit(user or factories.make_user(), **options)
    visitor.page.goto(f"/join/{round.join_token}/")
    visitor.page.get_by_role("button", name="Start judging").click()
    expect(visitor.page.get_by_text("Saved", exact=True)).to_be_visible()
    visitor.page.wait_for_load_state("networkidle")  # a page request renews the leases that tests expire
    return visitor


def answer_with(page, keys: str) -> None:
    for key in keys:
        statement = page.locator("#statement").inner_text()
        page.keyboard.press(key)
        page.wait_for_function("was => document.querySelector('#statement')?.innerText !== was", arg=statement)


def test_annotator_continues_after_late_answer_notice(visit):
    round = factories.make_round(TUPLES[:2], name="pilot", judgments_per_task=1, batch_size=1)
    user = factories.make_user()
    visitor = start_judging(visit, round, user, width=360)
    Assignment.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    other = join_round(round, factories.make_user())
    for _ in range(2):
        factories.judge(other, next_batch(other, timezone.now())[0])

    visitor.page.keyboard.press("t")

    expect(visitor.page.get_by_text("One answer was late").first).to_be_visible()
    assert visitor.axe_violations() == []
    visitor.page.get_by_role("link", name="Continue", exact=True).click()
    expect(visitor.page.get_by_role("heading", name="No statements left")).to_be_visible()
    assert Judgment.objects.filter(annotator__user=user).values_list("is_counted", flat=True).get() is False
    assert Judgment.objects.counted().count() == 2


def test_answers_stay_queued_across_reload_while_database_is_down(visit, monkeypatch):
    def fail(*args, **kwargs):
        raise OperationalError("connection refused") from psycopg.OperationalError("connection refused")

    round = factories.make_round(8, name="pilot", judgments_per_task=1)
    visitor = start_judging(visit, round)
    page = visitor.page
    page.wait_for_function("caches.match(location.pathname)")
    with monkeypatch.context() as away:
        away.setattr(PreparedSelect, "__call__", fail)
        page.keyboard.press("t")
        expect(page.get_by_text("1 unsent, retrying")).to_be_visible()
        page.reload()
        expect(page.get_by_text("1 unsent, retrying")).to_be_visible()
        page.keyboard.press("f")
        expect(page.get_by_text("2 unsent, retrying")).to_be_visible()
        assert Judgment.objects.count() == 0

    expect(page.get_by_text("Saved", exact=True)).to_be_visible(timeout=30_000)
    assert sorted(Judgment.objects.values_list("label", flat=True)) == ["false", "true"]


@pytest.mark.parametrize("layout", ["one", "page"])
def test_offline_reload_restores_judging_position(visit, layout):
    round = factories.make_round(8, name="pilot", judgments_per_task=1, layout=layout)
    visitor = start_judging(visit, round)
    page = visitor.page
    page.wait_for_function("caches.match(location.pathname)")
    answered = page.locator(".recent li" if layout == "one" else ".choice :checked")
    for key in "tf":
        page.keyboard.press(key)
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    page.context.set_offline(True)
    page.keyboard.press("u")
    expect(page.get_by_text("1 unsent")).to_be_visible()

    page.reload()

    expect(page.get_by_text("1 unsent")).to_be_visible()
    expect(answered).to_have_count(3)
    expect(page.locator("[data-done]")).to_have_text("3")
    page.keyboard.press("t")
    expect(page.get_by_text("2 unsent")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    labels = Judgment.objects.order_by("judged_at").values_list("label", flat=True)
    assert list(labels) == ["true", "false", "unjudgeable", "true"]


def test_answer_buttons_keep_position_and_disable_without_statements(visit):
    round = factories.make_round(9, name="pilot", judgments_per_task=1, batch_size=9)
    visitor = start_judging(visit, round)
    page = visitor.page
    button = page.get_by_role("button", name="True")
    tops = set()
    for _ in range(8):
        tops.add(button.bounding_box()["y"])
        answer_with(page, "t")
    assert len(tops) == 1
    assert page.locator("progress").get_attribute("max") == "9"
    page.context.set_offline(True)
    answer_with(page, "t")
    expect(page.get_by_text("More statements will load when you are back online")).to_be_visible()
    expect(button).to_be_disabled()


def test_answer_counts_after_unclaimed_lease_expires(visit):
    round = factories.make_round(TUPLES[:2], name="pilot", judgments_per_task=1, batch_size=1)
    page = start_judging(visit, round).page
    Assignment.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    answer_with(page, "t")
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()

    assert Judgment.objects.counted().count() == 1


def test_limit_pauses_annotator_without_reason_until_resumed(visit):
    round = factories.make_round(24, name="pilot", batch_size=1)
    set_limits(round, longest_run=9)
    annotator = join_round(round, factories.make_user())
    for _ in range(9):
        factories.judge(annotator, next_batch(annotator, timezone.now())[0])
    visitor = visit(annotator.user, width=360)
    page = visitor.page
    page.goto(judging_page())
    expect(page.get_by_text("9 judged")).to_be_visible()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()

    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="You are paused")).to_be_visible()

    text = page.get_by_role("main").inner_text()
    assert "You are paused in round pilot. Your answers are stored." in text
    assert not re.search("row|equal|gold|second", text)
    assert visitor.axe_violations() == []
    resume_annotator(annotator)
    page.goto(judging_page())
    expect(page.get_by_text("10 judged")).to_be_visible()


@pytest.mark.parametrize("limit", [{"max_per_annotator": 3}, {"dominance_cap": 0.25}])
def test_quota_reached_page_allows_changing_answers(visit, limit):
    round = factories.make_round(TUPLES, name="pilot", **limit)
    visitor = start_judging(visit, round, width=360)
    page = visitor.page

    expect(page.get_by_text("3 left")).to_be_visible()
    answer_with(page, "tf")
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name=QUOTA_REACHED)).to_be_visible()

    assert visitor.axe_violations() == []
    page.get_by_role("link", name="Change").first.click()
    expect(page.get_by_text("Your answer:")).to_be_visible()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name=QUOTA_REACHED)).to_be_visible()
    assert sorted(Judgment.objects.current().values_list("label", flat=True)) == ["false", "true", "true"]


def test_expert_adjudicates_undecided_statements_by_keyboard(visit):
    researcher = factories.make_researcher()
    round = factories.make_round(TUPLES[:2], name="pilot", by=researcher)
    factories.judge_all(round, ["true"] * 2, ["false"] * 2, ["unjudgeable"] * 2)
    visitor = visit(researcher, width=360)
    page = visitor.page
    page.goto("/projects/default/rounds/pilot/")

    page.get_by_role("link", name="Adjudicate").click()
    expect(page.get_by_text("2 statements left")).to_be_visible()
    assert visitor.axe_violations() == []
    page.keyboard.press("t")
    expect(page.get_by_text("Adjudicated as True")).to_be_visible()
    page.wait_for_load_state("load")
    page.keyboard.press("c")
    page.keyboard.type("Not true since 1970.")
    page.keyboard.press("Enter")  # must not submit a decision
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", name="Nothing to adjudicate")).to_be_visible()

    assert sorted(Adjudication.objects.values_list("label", "comment")) == [
        ("false", "Not true since 1970."),
        ("true", ""),
    ]
    assert set(round.tasks.values_list("verdict", flat=True)) == {"undecided"}
