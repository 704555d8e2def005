"""Proposed sentences about pay for papers: derived from the ledger, replaceable, and without personal data."""

from __future__ import annotations

import pytest

from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.statements.services import proposed_on, save_statements, statements_on, unsaid_on
from kgharvest.contrib.recruiting.models import Panel, Platform
from kgharvest.contrib.recruiting.pay.bonuses import grant_bonus
from kgharvest.contrib.recruiting.pay.hourly import pay_in_words
from tests.factories import make_round
from tests.kgharvest.contrib.recruiting.pay.standing_in import complete_place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]


@pytest.fixture
def panel(make_panel):
    """Create a panel of five people paid 2.00 for two minutes, one with a 0.50 bonus: a median of 60.00 per hour."""
    panel = make_panel(statements_per_place=2, hourly_floor=900)
    people = [complete_place(panel, f"person {number}", seconds=(60, 60)) for number in range(5)]
    grant_bonus(people[0], 50, "Thank you.")
    return panel


def test_pay_sentences_contain_platform_and_median(panel):
    assert pay_in_words(panel.round) == (
        "5 participants recruited on Prolific completed the work, at USD 2.00 for 2 statements each; total pay, "
        "including bonuses and participants who left early, was USD 10.50. The median pay of 5 participants was "
        "USD 60.00 per hour of active time; the minimum was set to USD 9.00."
    )


def test_median_requires_five_participants(make_panel):
    panel = make_panel()
    complete_place(panel, seconds=(60,))

    assert "Too few participants were timed to report a median hourly rate." in pay_in_words(panel.round)


def test_rounds_without_panels_and_sandboxes_have_no_pay_sentences(panel):
    assert pay_in_words(make_round()) == ""
    Panel.objects.update(platform=Platform.MTURK, is_sandbox=True)
    assert pay_in_words(panel.round) == ""


def test_report_proposes_pay_sentences_and_accepts_replacements(panel, researcher):
    report = create_report(panel.round)

    assert proposed_on(report)["pay"] == "money"
    assert proposed_on(report)["pay_adequacy"] == pay_in_words(panel.round)
    assert not {"pay", "pay_adequacy"} & {question.key for question in unsaid_on(report)}
    save_statements(panel.round, {"pay_adequacy": "Above the minimum wage."}, researcher)
    assert statements_on(panel.round) == {"pay_adequacy": "Above the minimum wage."}


def test_pay_sentences_contain_no_ids_or_codes(panel):
    sentences = pay_in_words(panel.round)

    assert not any(submission.participant_id in sentences for submission in panel.submissions.all())
    assert not any(submission.annotator.code in sentences for submission in panel.submissions.all())
