"""Bonus files: amounts match the ledger, and payments are recorded once."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgharvest.contrib.recruiting.models import Submission
from kgharvest.contrib.recruiting.panels.services import enter
from kgharvest.contrib.recruiting.pay.bonuses import bulk_lines, grant_bonus, note_paid, open_bonuses, table_lines
from kgharvest.contrib.recruiting.pay.ledger import Balance, balance_of, owe
from kgharvest.contrib.recruiting.platforms import OutcomeUnknown, PlatformRefused
from tests.kgharvest.contrib.recruiting.pay.standing_in import StandIn, complete_place, payments
from tests.kgharvest.contrib.recruiting.pay.test_commands import run_job
from tests.postgres import at_once
from tests.refusals import codes_of, refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]


@pytest.fixture
def panel(make_panel):
    return make_panel(by_hand=True)


def table(panel) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(table_lines(open_bonuses(panel))))))


def test_bulk_file_contains_only_ids_and_amounts(panel):
    ada, bea = complete_place(panel, "ada"), complete_place(panel, "bea")
    grant_bonus(ada, 5, "Thank you.")
    grant_bonus(bea, 1234, "Thank you.")
    grant_bonus(bea, 66, "For comments.")

    assert bulk_lines(open_bonuses(panel)) == "ada-session,0.05\nbea-session,13.00\n"


def test_table_contains_reasons_and_escapes_formulas(panel):
    submission = complete_place(panel, "=HYPERLINK(1)")
    grant_bonus(submission, 250, "Thank you.")

    assert table(panel) == [
        {
            "submission": str(submission.pk),
            "participant": "'=HYPERLINK(1)",
            "session": "'=HYPERLINK(1)-session",
            "amount": "2.50",
            "currency": "USD",
            "reason": "Thank you.",
        }
    ]


def test_bulk_file_rejects_malformed_ids(panel):
    grant_bonus(complete_place(panel, "ada,1000.00\n"), 5, "Thank you.")

    with refused("NotPayable", match="has no id that fits this format"):
        bulk_lines(open_bonuses(panel))


def test_bonus_requires_a_reason(panel):
    with refused("BadReason"):
        grant_bonus(complete_place(panel), 5, "  ")


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 100_000)), max_size=10), st.integers(0, 2))
def test_totals_of_both_files_match_the_ledger(panel, grants, paid):
    with transaction.atomic():
        people = [complete_place(panel, name) for name in ("ada", "bea", "cem")]
        for person, amount in grants:
            grant_bonus(people[person], amount, "Thank you.")
        open_amount = balance_of(people[paid], "bonus").open
        if open_amount:
            note_paid(panel, [people[paid].pk], open_amount)

        still_open = sum(balance_of(person, "bonus").open for person in people)
        bulk = [line.split(",")[1] for line in bulk_lines(open_bonuses(panel)).splitlines()]
        assert sum(map(Decimal, bulk)) * 100 == still_open
        assert sum(Decimal(row["amount"]) for row in table(panel)) * 100 == still_open
        transaction.set_rollback(True)


def test_yen_amounts_have_no_decimals(make_panel):
    panel = make_panel(by_hand=True, currency="JPY")
    grant_bonus(complete_place(panel, "ada"), 120, "Thank you.")

    assert bulk_lines(open_bonuses(panel)) == "ada-session,120\n"


# Manual payments


def test_file_payments_are_recorded_and_no_longer_outstanding(panel, researcher):
    submission = complete_place(panel)
    grant_bonus(submission, 75, "Thank you.")

    assert note_paid(panel, [submission.pk], 75, researcher) == 1

    assert open_bonuses(panel) == []
    assert balance_of(panel) == Balance(275, 75)
    assert submission.pay_entries.get(side="paid").by == researcher


def test_screen_outs_are_paid_manually_without_a_platform_api(panel, make_panel, researcher):
    submission = enter(panel, "ada", "ada-session", timezone.now())
    owe(submission, "screen_out", "screen_out", 30, "A check turned the person away.")

    assert bulk_lines(open_bonuses(panel)) == "ada-session,0.30\n"
    assert note_paid(panel, [submission.pk], 30, researcher) == 1
    assert balance_of(panel) == Balance(30, 30)
    assert submission.pay_entries.get(side="paid").purpose == "screen_out"

    api_submission = enter(make_panel(external_id="another"), "bea", "bea-session", timezone.now())
    owe(api_submission, "screen_out", "screen_out", 30, "A check turned the person away.")
    assert open_bonuses(api_submission.panel) == []


def test_bonuses_granted_after_the_file_are_not_marked_as_paid(panel):
    submission = complete_place(panel)
    grant_bonus(submission, 75, "Thank you.")
    grant_bonus(submission, 10, "Thank you once more.")

    with refused("NothingOpen", match=r"USD 0\.85, not USD 0\.75"):
        note_paid(panel, [submission.pk], 75)

    assert balance_of(submission, "bonus") == Balance(85, 0)


def test_refused_payment_is_outstanding_and_uncertain_payment_is_not(make_panel):
    submission = complete_place(make_panel())
    for amount in (10, 20, 40):
        grant_bonus(submission, amount, "Thank you.")
    StandIn.trouble = [PlatformRefused("No."), OutcomeUnknown("No answer came.")]
    run_job()

    assert [bonus.amount for bonus in open_bonuses(submission.panel)] == [10]
    assert payments().total() == 1


@pytest.mark.django_db(transaction=True)
def test_concurrent_payment_records_are_stored_once(panel):
    submission = complete_place(panel)
    grant_bonus(submission, 75, "Thank you.")

    outcomes = at_once(*[lambda: note_paid(panel, [submission.pk], 75)] * 3)

    assert codes_of(outcomes) == ["NothingOpen", "NothingOpen"]
    assert Submission.objects.get().pay_entries.filter(side="paid").count() == 1
