"""Places of a panel: taken at the entry link, done with the last judgment, free again when somebody leaves.

Every change of a submission's status is `move`, one conditional UPDATE; locks are taken in the order panel, submission,
annotator.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from annotation.judging.assignment import release_leases
from annotation.models import Annotator, Panel, Submission
from annotation.recruiting.panels.identifiers import digest, encrypted
from annotation.recruiting.services import check_can_join
from kgharvest.errors import DomainError


class PanelNotOpen(DomainError):
    """Entering by the link of a panel that is a draft, paused or stopped."""


class QuotaFull(DomainError):
    """Entering when all places are taken."""


class TookPart(DomainError):
    """Entering again after one's part has ended."""


@transaction.atomic
def enter(panel: Panel, participant: str, session: str, now: datetime) -> Submission:
    """Return the submission of a person who comes by the entry link; coming again while it is active is once.

    session: empty where the platform has none; the participant stands for it then. Raises PanelNotOpen, QuotaFull,
    TookPart, NotForPeople and RoundNotOpen.
    """
    panel = Panel.objects.select_for_update(of=("self",), no_key=True).select_related("round__project").get(pk=panel.pk)
    session_digest = digest(session or participant)
    known = panel.submissions.filter(participant_digest=digest(participant))
    submission = (
        known.filter(status__in=Submission.HOLDING).first() or known.filter(session_digest=session_digest).first()
    )
    if submission is not None:
        if submission.status in Submission.ENDED:
            raise TookPart("You have taken part in this study already, and your part has ended.")
        return submission
    if panel.status != Panel.Status.PUBLISHED:
        raise PanelNotOpen("This study takes nobody new at the moment.")
    check_can_join(panel.round)
    if panel.submissions.holding_places().count() >= panel.places:
        raise QuotaFull("All places of this study are taken.")
    earlier = known.exclude(annotator=None).order_by("-pk").first()
    return panel.submissions.create(
        participant=encrypted(participant),
        participant_digest=digest(participant),
        session=encrypted(session) if session else "",
        session_digest=session_digest,
        annotator=earlier.annotator if earlier else None,
        entered_at=now,
    )


def move(submission: Submission, *before: Submission.Status, to: Submission.Status, **fields) -> bool:
    """Give a submission that has one of the states `before` the state `to`; return whether it had one of them."""
    moved = Submission.objects.filter(pk=submission.pk, status__in=before).update(status=to, **fields)
    if moved:
        submission.refresh_from_db()
    return bool(moved)


@transaction.atomic
def complete(submission: Submission, now: datetime) -> bool:
    """Note that the person has judged all that their place is for. Twice is once."""
    return move(submission, Submission.Status.ACTIVE, to=Submission.Status.COMPLETED, completed_at=now)


@transaction.atomic
def leave(submission: Submission, to: Submission.Status, now: datetime) -> bool:
    """End a submission without pay for the place (returned, timed out, screened out); its place is free at once.

    The statements leased to the person go to others; what they judged stays. Return False where it had ended before.
    """
    before = (Submission.Status.ACTIVE, Submission.Status.COMPLETED)
    if not move(submission, *before, to=to, ended_at=now):
        return False
    if submission.annotator_id:
        annotator = Annotator.objects.lock(submission.annotator_id)
        release_leases(annotator.assignments.all())
        Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged)  # nothing more is handed out
    return True
