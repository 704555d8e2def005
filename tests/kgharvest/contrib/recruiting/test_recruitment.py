"""Recruited annotators: withdrawal, failed comprehension checks, and erasure of platform ids."""

import json

import pytest
from django.utils import timezone

from annotation.invites.erasure import erase_annotator
from annotation.invites.services import join_round
from annotation.models import Annotator
from annotation.questionnaire.services import take_check
from annotation.questionnaire.withdrawal import withdraw_annotator
from kgharvest.contrib.recruiting import recruitment
from kgharvest.contrib.recruiting.models import PanelEvent, PayEntry, Submission
from kgharvest.contrib.recruiting.panels.identifiers import digest, encrypted
from kgharvest.contrib.recruiting.panels.services import enter
from kgharvest.contrib.recruiting.pay.ledger import owe, record_paid
from kgharvest.contrib.recruiting.platforms import RemoteSubmission
from kgharvest.contrib.recruiting.reconciliation import apply_remote
from kgharvest.contrib.recruiting.recruitment import forget_settled_submissions
from tests.factories import make_round

pytestmark = pytest.mark.django_db


@pytest.fixture
def submission():
    round = make_round(4, on_withdrawal="keep")
    panel = round.panels.create(name="link", status="published", reward=300)
    submission = enter(panel, "PARTICIPANT-1", "SESSION-1", timezone.now())
    submission.annotator = join_round(round, place_size=50)
    submission.save()
    return submission


def has_stored_ids(submission: Submission) -> bool:
    """Return True if platform ids of the participant are stored."""
    submission.refresh_from_db()
    return bool(submission.participant_id or submission.session_id)


def test_withdrawal_frees_the_place_and_erases_ids(submission):
    assert withdraw_annotator(submission.annotator) == []

    assert not has_stored_ids(submission)
    assert submission.status == "returned"
    assert submission.panel.submissions.holding_places().count() == 0


def test_erasure_does_not_wait_for_other_participants_payments(submission, monkeypatch):
    monkeypatch.setattr(recruitment, "SUBMISSIONS_AT_ONCE", 1)
    panel, now = submission.panel, timezone.now()
    Submission.objects.update(status="approved")
    owe(submission, "reward", "reward", 300, "All statements are judged.")
    settled = panel.submissions.create(
        participant=encrypted("PARTICIPANT-2"),
        participant_digest=digest("PARTICIPANT-2"),
        session_digest=digest("SESSION-2"),
        annotator=submission.annotator,
        status="approved",
        entered_at=now,
    )
    Annotator.objects.update(erased_at=now)

    forget_settled_submissions(now)

    settled.refresh_from_db()
    assert (settled.participant, bool(has_stored_ids(submission))) == ("", True)


def test_ids_are_kept_until_the_participant_is_paid(submission):
    now = timezone.now()
    Submission.objects.update(status="completed")
    owe(submission, "reward", "reward", 300, "All statements are judged.")

    [unreviewed_warning] = withdraw_annotator(submission.annotator)
    Submission.objects.update(status="approved")
    [unpaid_warning] = erase_annotator(submission.annotator)
    forget_settled_submissions(now)
    assert has_stored_ids(submission)
    record_paid(submission, "reward", "reward", 300, "Approved.")
    forget_settled_submissions(now)

    assert "Review it first" in unreviewed_warning
    assert "USD 3.00 is owed. Pay it first" in unpaid_warning
    assert not has_stored_ids(submission)
    assert PayEntry.objects.filter(submission=submission).count() == 2


def test_withdrawal_erases_platform_messages_about_the_person(submission):
    now = timezone.now()
    bodies = {"one": {"participant_id": "PARTICIPANT-1"}, "two": {"participant_id": "PARTICIPANT-2"}}
    for event_id, body in bodies.items():
        PanelEvent.objects.create(platform="link", event_id=event_id, body=encrypted(json.dumps(body)), handled_at=now)

    withdraw_annotator(submission.annotator)

    assert {event.event_id: bool(event.text) for event in PanelEvent.objects.all()} == {"one": False, "two": True}


def test_reconciliation_does_not_restore_erased_ids(submission):
    now = timezone.now()
    withdraw_annotator(submission.annotator)
    remote = RemoteSubmission("PARTICIPANT-1", "SESSION-1", Submission.Status.APPROVED, "APPROVED", now)

    assert apply_remote(submission.panel, remote, now) is False

    assert Submission.objects.count() == 1
    assert not has_stored_ids(submission)


def test_failing_the_check_twice_screens_out_and_is_owed():
    round = make_round(4, check_questions="Is a rare case enough?\n- yes\n+ no")
    panel = round.panels.create(name="link", status="published", reward=300, screen_out_reward=40)
    submission = enter(panel, "P1", "S1", timezone.now())
    annotator = join_round(round, place_size=50)
    panel.submissions.update(annotator=annotator)

    for _ in range(2):
        take_check(annotator, {"check-1": "yes"}, timezone.now())

    submission.refresh_from_db()
    assert submission.status == "screened out"
    [entry] = PayEntry.objects.filter(submission=submission)
    assert (entry.side, entry.purpose, entry.amount) == ("owed", "screen_out", 40)
    assert panel.submissions.holding_places().count() == 0
