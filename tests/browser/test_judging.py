"""Judging in a browser in both layouts: keyboard answers, offline queue, and the final report."""

import re

import pytest
from playwright.sync_api import expect

from annotation.models import Assignment, Judgment, Label, Layout, StatementReport
from annotation.rounds.services import close_round, reopen_round
from tests import factories
from tests.factories import judging_page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TUPLES = [("vaccine", "measles"), ("seat belt", "injury"), ("umbrella", "sunrise"), ("lock", "theft")]
T, F, U = Label.TRUE, Label.FALSE, Label.UNJUDGEABLE


def join(page, round, has_scripts=True) -> None:
    page.goto(f"/join/{round.join_token}/")
    page.get_by_role("main").get_by_role("button").click()
    page.wait_for_url("**/judge/**")
    if has_scripts:  # the page ignores keys until its script has loaded
        expect_saved(page)


def answer_with(page, keys: str) -> None:
    """Press one key per statement to answer it."""
    for key in keys:
        statement = page.locator("#statement").inner_text()
        page.keyboard.press(key)
        page.wait_for_function("was => document.querySelector('#statement')?.innerText !== was", arg=statement)


def expect_no_statements_left(page) -> None:
    expect(page.get_by_role("heading", name="No statements left")).to_be_visible()


def expect_saved(page) -> None:
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()


def labels_of(user) -> list[str]:
    return sorted(Judgment.objects.counted().filter(annotator__user=user).values_list("label", flat=True))


def focused_row(page) -> int:
    """Return the one-based index of the focused row, or 0 if no row has the focus."""
    return page.evaluate(
        "[...document.querySelectorAll('[data-row]')].indexOf(document.activeElement.closest('[data-row]')) + 1"
    )


# Single-statement layout


def test_three_annotators_judge_by_keyboard_up_to_the_report(visit):
    researcher = factories.make_researcher()
    round = factories.make_round(TUPLES, name="pilot", by=researcher)

    for _ in range(3):
        page = visit(factories.make_user()).page
        join(page, round)
        answer_with(page, "tttf")
        expect_no_statements_left(page)

    page = visit(researcher).page
    page.goto(round.get_absolute_url())
    page.get_by_role("main").get_by_role("button", name="report").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("pilot")
    assert Judgment.objects.counted().filter(task__round=round).count() == 3 * len(TUPLES)


def test_judging_works_by_keyboard_on_narrow_screen(visit):
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
    expect_no_statements_left(page)

    assert labels_of(user) == [F, F, T, U]


def test_comment_is_stored_with_its_answer(visit):
    page = visit(factories.make_user()).page
    join(page, factories.make_round(TUPLES, name="pilot"))

    page.keyboard.press("c")
    page.keyboard.type("true of tuft")  # contains shortcut keys of answers
    page.keyboard.press("Escape")
    answer_with(page, "tf")
    expect_saved(page)

    assert sorted(Judgment.objects.values_list("label", "comment")) == [(F, ""), (T, "true of tuft")]


def test_skipped_statements_return_on_request(visit):
    user = factories.make_user()
    page = visit(user).page
    join(page, factories.make_round(TUPLES, name="pilot"))

    answer_with(page, "sttt")
    page.get_by_role("button", name="Judge skipped").click()
    expect_saved(page)  # the script has loaded as well
    page.keyboard.press("f")
    expect_no_statements_left(page)

    assert labels_of(user) == [F, T, T, T]


def test_broken_statement_can_be_reported_by_keyboard(visit):
    page = visit(factories.make_user()).page
    join(page, factories.make_round(TUPLES, name="pilot"))

    page.keyboard.press("r")
    page.get_by_label("not a readable sentence").check()
    page.get_by_label("Comment optional", exact=True).fill("What is it?")
    page.get_by_role("button", name="Send report").click()
    expect(page.get_by_text("You reported this statement.")).to_be_visible()
    expect_saved(page)

    assert StatementReport.objects.values_list("reason", "comment").get() == ("unreadable", "What is it?")


ASKS = {"asks_wrong_part": True, "reference_links": "Search https://x.org/?q={head}+{tail}"}


def parts_of(user) -> list[tuple]:
    judgments = Judgment.objects.current().filter(annotator__user=user)
    return sorted(judgments.values_list("label", "wrong_part", "opened_reference"))


def open_reference(page, link) -> None:
    """Open a link in a new tab, which is closed without loading the page of another host."""
    page.context.route("https://x.org/**", lambda route: route.abort())
    with page.context.expect_page() as opened:
        link.click()
    opened.value.close()


def test_wrong_part_and_opened_reference_are_stored_by_keyboard(visit):
    user = factories.make_user()
    visitor = visit(user)
    page = visitor.page
    join(page, factories.make_round(TUPLES, name="pilot", **ASKS))

    page.keyboard.press("f")
    expect(page.get_by_role("group", name="Which part is wrong?")).to_be_visible()
    assert visitor.axe_violations() == []
    page.keyboard.press("ArrowLeft")  # closes the question
    expect(page.get_by_role("group", name="Which part is wrong?")).to_be_hidden()
    open_reference(page, page.locator("[data-references] a"))
    answer_with(page, "t")
    page.keyboard.press("f")
    answer_with(page, "3")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("f")
    answer_with(page, "2u")
    page.keyboard.press("f")
    page.keyboard.press("1")
    expect_no_statements_left(page)

    assert parts_of(user) == [(F, "0", False), (F, "1", False), (T, "", True), (U, "", False)]


def test_page_of_statements_asks_for_the_wrong_part(visit):
    user = factories.make_user()
    visitor = visit(user)
    page = visitor.page
    join(page, factories.make_round(TUPLES, name="pilot", layout=Layout.PAGE, **ASKS))

    page.keyboard.press("f")
    assert visitor.axe_violations() == []
    assert focused_row(page) == 1
    page.keyboard.press("3")
    assert focused_row(page) == 2
    open_reference(page, page.locator("[data-references] a").nth(1))
    page.keyboard.press("t")
    page.locator("[data-row]").nth(2).get_by_label("False").check()
    page.get_by_role("button", name="Submit page").click()
    expect(page.locator("[data-missing]")).to_contain_text("3, 4")
    page.locator("[data-row]").nth(2).locator("[data-part]").first.check()
    page.locator("[data-row]").nth(3).get_by_label("Unjudgeable").check()
    page.get_by_role("button", name="Submit page").click()
    expect_no_statements_left(page)

    assert parts_of(user) == [(F, "0", False), (F, "relation", False), (T, "", True), (U, "", False)]


def test_answer_buttons_are_within_thumb_reach_on_phone(visit):
    page = visit(factories.make_user(), width=360).page
    join(page, factories.make_round(TUPLES, name="pilot"))

    boxes = [button.bounding_box() for button in page.locator(".answer").all()]

    assert [box for box in boxes if box["height"] < 44 or box["y"] + box["height"] > 800 or box["y"] < 600] == []


# Page layout


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.exhaustive)])
def test_page_layout_works_by_keyboard(visit, width):
    user = factories.make_user()
    page = visit(user, width=width).page
    join(page, factories.make_round(TUPLES, name="pilot", layout=Layout.PAGE))

    expect(page.get_by_text("0 of 4 on this page, 4 left")).to_be_visible()
    page.keyboard.press("t")
    assert focused_row(page) == 2
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("3")
    assert focused_row(page) == 2
    page.keyboard.press("Backspace")
    assert focused_row(page) == 4
    page.keyboard.press("f")
    page.keyboard.press("t")
    page.locator("[data-submit]").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 unanswered: 3").last).to_be_visible()
    assert focused_row(page) == 3
    page.keyboard.press("f")
    expect(page.get_by_text("4 of 4 on this page, 0 left")).to_be_visible()
    page.keyboard.press("Enter")
    expect_no_statements_left(page)

    assert labels_of(user) == [F, F, T, T]


def test_answer_is_saved_before_page_submission(visit):
    user = factories.make_user()
    page = visit(user).page
    join(page, factories.make_round(TUPLES, name="pilot", layout=Layout.PAGE))

    page.get_by_role("radio", name="False").nth(1).check()
    expect(page.get_by_text("1 of 4 on this page")).to_be_visible()
    expect_saved(page)

    assert labels_of(user) == [F]


def test_annotator_layout_choice_persists(visit):
    page = visit(factories.make_user()).page
    round = factories.make_round(TUPLES, name="pilot")
    join(page, round)

    page.get_by_role("button", name="Show a page of statements").click()
    expect(page.locator("[data-row]")).to_have_count(4)
    page.goto(judging_page(round.name))

    expect(page.locator("[data-row]")).to_have_count(4)


# Judging without JavaScript


def test_answers_work_as_plain_forms_without_javascript(visit):
    user = factories.make_user()
    page = visit(user, java_script_enabled=False).page
    join(page, factories.make_round(TUPLES[:3], name="pilot"), has_scripts=False)

    page.get_by_role("button", name="True").click()
    page.get_by_role("button", name="Skip").click()
    page.locator("summary").click()
    page.get_by_label("Comment, sent with your answer").fill("Who knows?")
    page.get_by_role("button", name="Unjudgeable").click()
    page.get_by_role("button", name="Judge skipped").click()
    page.get_by_role("button", name="Report").click()
    page.get_by_label("Other", exact=True).check()
    page.get_by_role("button", name="Send report").click()
    page.get_by_role("button", name="False").click()
    expect_no_statements_left(page)

    assert labels_of(user) == [F, T, U]
    assert Judgment.objects.filter(comment="Who knows?").count() == StatementReport.objects.count() == 1


def test_page_form_without_javascript_counts_unanswered_statements(visit):
    user = factories.make_user()
    page = visit(user, java_script_enabled=False).page
    join(page, factories.make_round(TUPLES, name="pilot", layout=Layout.PAGE), has_scripts=False)

    page.get_by_role("radio", name="True").first.check()
    page.get_by_role("radio", name="False").nth(1).check()
    page.get_by_role("button", name="Skip").nth(2).click()  # keeps the answers above
    expect(page.locator("[data-row]")).to_have_count(1)
    page.get_by_role("button", name="Submit page").click()
    expect(page.get_by_text("1 statement is unanswered")).to_be_visible()
    page.get_by_role("radio", name="Unjudgeable").first.check()
    page.get_by_role("button", name="Submit page").click()
    expect(page.get_by_role("heading", name="Only skipped statements remain")).to_be_visible()

    assert labels_of(user) == [F, T, U]


def test_answer_responses_deliver_new_statements(visit):
    user = factories.make_user()
    round = factories.make_round(12, name="pilot", batch_size=6)
    page = visit(user).page
    join(page, round)
    methods = []
    # Count only JSON requests: the page is also fetched at some point for the offline cache.
    page.on("request", lambda sent: methods.append(sent.method) if "json" in sent.headers.get("accept", "") else None)

    for n_done in range(1, 12):
        expect(page.get_by_text("Loading …")).to_be_hidden()
        page.keyboard.press("t")
        expect(page.locator("[data-done]")).to_have_text(str(n_done))
    expect_saved(page)

    assert set(methods) == {"POST"}
    assert len(labels_of(user)) == 11


# Offline judging


@pytest.mark.parametrize("layout", Layout.values)
def test_offline_answers_survive_reload_and_are_saved_once(visit, layout):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot", layout=layout)
    page = visit(user).page
    join(page, round)

    page.context.set_offline(True)
    page.keyboard.press("t")
    page.keyboard.press("f")
    expect(page.get_by_text("2 unsent, offline")).to_be_visible()
    page.evaluate("location.reload()")
    page.wait_for_timeout(300)
    page.context.set_offline(False)
    page.goto(judging_page(round.name))
    expect_saved(page)
    page.reload()
    expect_saved(page)

    assert labels_of(user) == [F, T]
    assert Judgment.objects.count() == 2


@pytest.mark.parametrize("layout", Layout.values)
def test_online_only_controls_are_disabled_while_offline(visit, layout):
    round = factories.make_round(TUPLES, name="pilot", layout=layout)
    page = visit(factories.make_user()).page
    join(page, round)
    answers, withdraw = (page.get_by_role("link", name=name) for name in ("Your answers", "Withdraw"))
    other_layout = page.locator(".judge-foot button")

    page.context.set_offline(True)

    expect(page.get_by_text("Saved, offline")).to_be_visible()
    for control in (answers, withdraw, other_layout):
        expect(control).to_be_disabled()
    page.get_by_role("link", name="Instructions").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.context.set_offline(False)
    expect_saved(page)
    expect(other_layout).to_be_enabled()
    answers.click()
    expect(page.get_by_role("heading", name="Your answers")).to_be_visible()


def test_error_disappears_after_answer_is_accepted(visit):
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(factories.make_user()).page
    join(page, round)
    round.__class__.objects.update(status="paused")
    answer_with(page, "t")
    error = page.locator("[data-trouble]")
    expect(error).to_contain_text("Round pilot is paused")
    round.__class__.objects.update(status="open")

    page.evaluate("dispatchEvent(new Event('online'))")

    expect_saved(page)
    expect(error).to_be_hidden()


def test_closed_tab_loses_no_answers(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(user).page
    join(page, round)

    page.context.set_offline(True)
    answer_with(page, "tu")
    address = page.url
    page.close()
    page.context.set_offline(False)
    page = page.context.new_page()
    page.goto(address)
    expect_saved(page)

    assert labels_of(user) == [T, U]


def test_answers_to_paused_round_are_sent_after_resume(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(user).page
    join(page, round)

    round.__class__.objects.update(status="paused")
    answer_with(page, "t")
    expect(page.get_by_text("Round pilot is paused").first).to_be_visible()
    page.reload()
    expect(page.get_by_text("1 unsent")).to_be_visible()
    round.__class__.objects.update(status="open")
    page.reload()
    expect_saved(page)

    assert labels_of(user) == [T]


def test_unsent_answer_to_closed_round_can_be_copied_and_discarded(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(user).page
    join(page, round)

    close_round(round)
    page.keyboard.press("c")
    page.keyboard.type("surely")
    page.keyboard.press("Escape")
    answer_with(page, "t")
    expect(page.get_by_text("Round pilot is closed").first).to_be_visible()
    page.reload()
    expect(page.get_by_text("1 answer was not sent before the round closed.")).to_be_visible()
    expect(page.get_by_text("unsent")).to_be_hidden()
    expect(page.get_by_label("Unsaved answers")).to_have_value(
        re.compile(rf"true: ({'|'.join(round.tasks.values_list('statement', flat=True))}) \(surely\)")
    )
    page.get_by_role("button", name="Discard answers").click()

    expect(page.get_by_text("Your answers are stored.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Your answers are stored.")).to_be_visible()
    expect(page.get_by_text("before the round closed")).to_be_hidden()


def test_unsent_answer_is_sent_after_round_reopens(visit):
    user = factories.make_user()
    round = factories.make_round(TUPLES, name="pilot")
    page = visit(user).page
    join(page, round)

    close_round(round)
    answer_with(page, "t")
    page.reload()
    expect(page.get_by_text("1 answer was not sent before the round closed")).to_be_visible()
    reopen_round(round)
    page.reload()
    expect_saved(page)

    assert labels_of(user) == [T]


def test_late_answer_is_stored_and_page_reports_it(visit):
    user, other = factories.make_user(), factories.make_user()
    round = factories.make_round(TUPLES[:1], name="pilot", judgments_per_task=1)
    page = visit(user).page
    join(page, round)
    page.context.set_offline(True)
    page.keyboard.press("t")
    expect(page.get_by_text("1 unsent, offline")).to_be_visible()

    Assignment.objects.update(expires_at="2020-01-01T00:00Z")
    quick = factories.join_round(round, other)
    factories.judge(quick, factories.next_batch(quick, factories.timezone.now())[0])
    page.context.set_offline(False)

    expect(page.get_by_text("One answer was late").last).to_be_visible()
    page.get_by_role("link", name="Continue", exact=True).click()
    expect_no_statements_left(page)
    assert Judgment.objects.filter(annotator__user=user, is_counted=False).count() == 1
