"""Annotator and invitation pages: accessible in both themes and no wider than a phone screen."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from annotation.invites.services import join_round, make_invites, return_code
from annotation.judging.judgments import skip_task
from annotation.models import Label, Layout
from annotation.questionnaire.services import answer_who_questions
from annotation.rounds.services import close_round
from tests import factories
from tests.browser.screenshots import save_screenshots
from tests.factories import judging_page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TUPLES = [("كلب", "السباحة"), ("vaccine against a long-forgotten disease", "measles"), ("lock", "theft")]


def join_as_guest(page, **spec):
    """Join a new round as a guest and return the round."""
    round = factories.make_round(TUPLES, name="pilot", who_can_join="link", **spec)
    page.goto(f"/join/{round.join_token}/")
    page.get_by_label("name or code").fill("Ada")
    page.get_by_role("button", name="Start judging").click()
    page.wait_for_url("**/judge/**")
    return round


def device_page(page):
    join_as_guest(page)
    page.get_by_role("link", name="Continue on another device").click()
    expect(page.get_by_label("Return link")).to_be_visible()


def open_judging_page(page, **spec):
    round = join_as_guest(page, **spec)
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    return round


def join_page(page):
    round = factories.make_round(TUPLES, name="pilot", who_can_join="link", consent="Your answers are *published*.")
    page.goto(f"/join/{round.join_token}/")
    page.get_by_role("button", name="Start judging").click()


def refused_join(page):
    join_page(page)
    page.get_by_label("name or code").fill("Ada")
    page.get_by_role("button", name="Start judging").click()
    expect(page.get_by_text("You must agree")).to_be_visible()


def return_page(page):
    guest = join_round(factories.make_round(TUPLES, name="pilot", who_can_join="link"), name="Ada")
    page.goto(f"/return/{return_code(guest)}/")


def single_statement(page):
    open_judging_page(page)
    page.keyboard.press("t")
    expect(page.get_by_text("1 judged")).to_be_visible()


def comment_open(page):
    open_judging_page(page)
    page.keyboard.press("c")


def instructions_open(page):
    open_judging_page(page)
    page.keyboard.press("?")


def report_open(page):
    open_judging_page(page)
    page.keyboard.press("r")


def statement_page(page):
    open_judging_page(page, layout=Layout.PAGE)
    page.keyboard.press("f")
    page.keyboard.press("s")
    page.locator("[data-submit]").click()
    expect(page.get_by_text("1 unanswered").last).to_be_visible()


def offline(page):
    open_judging_page(page)
    page.context.set_offline(True)
    page.keyboard.press("t")
    expect(page.get_by_text("1 unsent, offline")).to_be_visible()


def paused(page):
    round = open_judging_page(page)
    round.__class__.objects.update(status="paused")
    page.keyboard.press("t")
    expect(page.get_by_text("Round pilot is paused").last).to_be_visible()


def only_skipped(page):
    round = join_as_guest(page)
    for task in factories.next_batch(round.annotators.get(), timezone.now()):
        skip_task(round.annotators.get(), task.pk)
    page.goto(judging_page())


def done(page):
    round = join_as_guest(page)
    for task in factories.next_batch(round.annotators.get(), timezone.now()):
        factories.judge(round.annotators.get(), task, Label.UNJUDGEABLE)
    page.goto(judging_page())


def closed(page):
    close_round(join_as_guest(page))
    page.goto(judging_page())


PAGES = {
    "join": join_page,
    "join without consent": refused_join,
    "device": device_page,
    "return": return_page,
    "done": done,
    "single statement": single_statement,
    "page of statements": statement_page,
    "comment": comment_open,
    "report": report_open,
    "instructions": instructions_open,
    "paused": paused,
    "only skipped": only_skipped,
    "closed": closed,
    "invalid link": lambda page: page.goto("/join/forged/"),
    "return without code": lambda page: page.goto("/return/"),
    "invalid code": lambda page: page.goto("/return/1-AAAA-AAAA-AAAA-AAAA/"),
    "instructions page": lambda page: open_judging_page(page) and page.goto(f"{judging_page()}instructions/"),
}


QUESTIONS = {
    "ask_language": "optional",
    "ask_age_group": "required",
    "own_questions": "Which dialect do you speak?",
    "check_questions": "Is a rare case enough?\n- Yes, any case will do\n+ No, it must be usual",
}


def questionnaire(page):
    join_as_guest(page, **QUESTIONS)
    expect(page.get_by_role("heading", name="About you")).to_be_visible()


def comprehension_check(page):
    """Fill in the questionnaire by keyboard: Tab to the questions, select with arrows, submit with Enter."""
    questionnaire(page)
    page.get_by_label("What is your first language?").focus()
    page.keyboard.type("Wel")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # 25 to 34
    page.keyboard.press("Tab")
    page.keyboard.type("Cofi")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You have two attempts.")).to_be_visible()


def second_attempt(page):
    comprehension_check(page)
    page.get_by_label("Yes, any case will do").check()
    page.keyboard.press("Enter")
    expect(page.get_by_text("This is your last attempt.")).to_be_visible()


def failed_check(page):
    second_attempt(page)
    page.get_by_label("Yes, any case will do").check()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Thank you for your time")).to_be_visible()


def withdrawing(page):
    open_judging_page(page, on_withdrawal="delete")
    page.get_by_role("link", name="Withdraw").click()
    expect(page.get_by_role("button", name="Withdraw")).to_be_visible()


def withdrawn(page):
    withdrawing(page)
    page.get_by_role("button", name="Withdraw").press("Enter")
    expect(page.get_by_role("heading", name="You have withdrawn")).to_be_visible()


PAGES |= {
    "questionnaire": questionnaire,
    "comprehension check": comprehension_check,
    "second attempt": second_attempt,
    "failed check": failed_check,
    "withdrawing": withdrawing,
    "withdrawn": withdrawn,
}


# Variants of other pages, with the same components
VARIANTS = {"join without consent", "second attempt", "invalid code", "closed", "return", "return without code"}
VARIANTS |= {"only skipped", "withdrawn"}
assert PAGES.keys() >= VARIANTS


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.exhaustive] if page in VARIANTS else []) for page in PAGES]
)
def test_annotator_page_is_accessible_and_fits_phone(visit, page):
    visitor = visit(width=360, color_scheme="light")

    PAGES[page](visitor.page)

    violations = visitor.axe_violations()
    visitor.page.emulate_media(color_scheme="dark")
    violations += visitor.axe_violations("color-contrast")
    width = visitor.page.evaluate("document.documentElement.scrollWidth")
    errors = [complaint for complaint in visitor.complaints if "status of 4" not in complaint]  # expected
    assert (violations, width, errors) == ([], 360, [])


def test_offline_page_is_accessible(visit):
    visitor = visit(width=360)

    offline(visitor.page)

    assert visitor.axe_violations() == []


def test_invites_page_is_accessible(visit):
    researcher = factories.make_researcher()
    round = factories.make_round(TUPLES, name="pilot", by=researcher)
    make_invites(round, 3, timezone.now() + timedelta(days=1))
    visitor = visit(researcher, width=360)

    visitor.page.goto("/projects/default/rounds/pilot/invites/")

    assert visitor.axe_violations() == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 360


def test_guest_continues_in_another_browser(visit):
    page = visit(width=390, has_touch=True, is_mobile=True).page
    round = factories.make_round(TUPLES, name="pilot", who_can_join="link")
    page.goto(f"/join/{round.join_token}/")
    save_screenshots(page, "guest-1-join", (390,))
    page.get_by_label("name or code").fill("Ada")
    page.get_by_role("button", name="Start judging").tap()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    save_screenshots(page, "guest-2-judging", (390,))
    page.get_by_role("button", name="True").tap()
    expect(page.get_by_text("1 judged")).to_be_visible()
    save_screenshots(page, "guest-3-judged", (390,))
    page.get_by_role("link", name="Continue on another device").tap()
    expect(page.get_by_label("Return link")).to_be_visible()
    save_screenshots(page, "guest-4-return-link", (390,))
    link = page.get_by_label("Return link").input_value()
    other_page = visit().page

    other_page.goto(link)
    other_page.get_by_role("button", name="Continue as").click()

    expect(other_page.get_by_text("1 judged")).to_be_visible()


def test_round_page_shows_questionnaire_answers_accessibly(visit):
    researcher = factories.make_researcher()
    round = factories.make_round(TUPLES, name="pilot", by=researcher, **QUESTIONS)
    for annotator in factories.make_annotators(round, 5):
        answer_who_questions(annotator, {"language": "Welsh", "age_group": "25 to 34"}, timezone.now())
    visitor = visit(researcher, width=360, color_scheme="light")

    visitor.page.goto("/projects/default/rounds/pilot/")

    expect(visitor.page.get_by_role("region", name="What is your first language?")).to_contain_text("Welsh")
    violations = visitor.axe_violations()
    visitor.page.emulate_media(color_scheme="dark")
    assert violations + visitor.axe_violations("color-contrast") == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 360
