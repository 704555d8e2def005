"""Pay ledger: unique and immutable entries, and balances."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgharvest.audit.verification import Verification
from kgharvest.contrib.recruiting.models import PayEntry
from kgharvest.contrib.recruiting.pay.ledger import (
    Balance,
    balance_of,
    balances,
    owe,
    owe_in_all,
    record_paid,
)
from kgharvest.events.models import Event
from tests.factories import make_user
from tests.kgharvest.contrib.recruiting.pay.standing_in import complete_place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]


def test_ledger_entry_is_written_once_per_key_from_any_source(panel):
    submission = complete_place(panel)

    assert record_paid(submission, "reward", "reward", 200, "Approved.")
    assert not record_paid(submission, "reward", "reward", 200, "The platform approved it.")

    assert [entry.reason for entry in submission.pay_entries.filter(side="paid")] == ["Approved."]
    assert balance_of(submission) == Balance(200, 200)


def test_owed_and_paid_entries_can_share_a_key(panel):
    submission = complete_place(panel)

    assert owe(submission, "bonus", "bonus:1", 50, "Thank you.")
    assert record_paid(submission, "bonus", "bonus:1", 50, "Thank you.")

    assert balance_of(submission, "bonus") == Balance(50, 50)


def test_balances_per_person_and_per_panel(panel):
    ada, bea = complete_place(panel, "ada"), complete_place(panel, "bea")
    record_paid(ada, "reward", "reward", 200, "Approved.")
    owe(bea, "bonus", "bonus:1", 35, "Thank you.")

    assert balances(panel) == {ada.pk: Balance(200, 200), bea.pk: Balance(235, 0)}
    assert balance_of(panel) == Balance(435, 200)
    assert balance_of(panel).open == 235


def test_corrections_of_amounts_owed_are_separate_entries(panel):
    submission = complete_place(panel)

    assert owe_in_all(submission, "reward", 0, "Returned.")
    assert not owe_in_all(submission, "reward", 0, "Returned.")
    assert owe_in_all(submission, "reward", 200, "Approved after all.")

    lines = submission.pay_entries.values_list("key", "amount")
    assert list(lines) == [("reward", 200), ("reward:2", -200), ("reward:3", 200)]


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 500), max_size=8))
def test_owe_in_all_sets_the_total_owed(panel, amounts):
    with transaction.atomic():
        submission = complete_place(panel)
        for amount in amounts:
            owe_in_all(submission, "reward", amount, "Somebody said so.")

        assert balance_of(submission).owed == (amounts[-1] if amounts else panel.reward)
        transaction.set_rollback(True)


# Immutability


@pytest.fixture
def append_only_triggers():
    """Recreate the triggers that reject changes, because migration tests can leave a database without them."""
    migration = importlib.import_module("annotation.migrations.0029_pay_is_append_only")
    with connection.cursor() as cursor:
        editor = SimpleNamespace(connection=connection, execute=cursor.execute)
        migration.allow_changes(None, editor)
        migration.refuse_changes(None, editor)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE annotation_payentry SET amount = 1",
        "UPDATE annotation_payentry SET reason = 'x', by_id = NULL",
        "DELETE FROM annotation_payentry",
    ],
)
def test_database_rejects_changes_and_deletion_of_entries(panel, append_only_triggers, change):
    complete_place(panel)

    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(change)

    assert balance_of(panel) == Balance(200, 0)


def test_author_of_a_ledger_entry_can_be_cleared_but_not_replaced(panel, append_only_triggers):
    submission, person, other = complete_place(panel), make_user(), make_user()
    owe(submission, "bonus", "bonus:1", 10, "Thank you.", by=person)

    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        PayEntry.objects.filter(key="bonus:1").update(by=other)
    person.delete()

    assert PayEntry.objects.get(key="bonus:1").by is None


def test_audit_log_detects_altered_payments(panel):
    submission = complete_place(panel)
    record_paid(submission, "reward", "reward", 200, "Approved.")
    entry = Event.objects.get(action="pay.paid")

    assert entry.sentence == f"noted that submission {submission.pk} of the panel panel was paid USD 2.00 as reward"
    assert entry.project_id == panel.project.pk
    assert not list(Verification())
    migration = importlib.import_module("annotation.migrations.0029_pay_is_append_only")
    with connection.cursor() as cursor:
        migration.allow_changes(None, SimpleNamespace(connection=connection, execute=cursor.execute))
    PayEntry.objects.update(amount=2000)
    debt, payment = (submission.pay_entries.get(side=side) for side in ("owed", "paid"))

    found = list(Verification())
    for row in (f"The payment {payment.pk} was altered", f"The debt {debt.pk} was altered"):
        assert [sentence for sentence in found if sentence.startswith(row)]
