"""Places of a panel.

A place is taken at the entry link, completed with the last judgment, and released if the participant leaves.

Only the function `move` changes a submission's status, with one conditional UPDATE. Rows are locked in the order panel,
submission, annotator.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils.crypto import constant_time_compare

from annotation.invites.services import check_can_join, join_round
from annotation.judging.assignment import ComesFirst, next_batch, release_leases
from annotation.judging.judgments import n_skipped
from annotation.models import Annotator, Judgment, Round
from annotation.rounds.models import RoundNotOpen
from kgharvest.access import Action, check_may
from kgharvest.accounts.throttle import check_attempt
from kgharvest.contrib.recruiting.models import Panel, PayEntry, Submission
from kgharvest.contrib.recruiting.panels.identifiers import digest, encrypted
from kgharvest.contrib.recruiting.pay.ledger import owe_in_all
from kgharvest.contrib.recruiting.platforms import platform_of
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

Status = Submission.Status
# If the platform does not report departures, a participant keeps the place for some time after the last answer: for
# MIN_HOLD or for HOLD_FACTOR times the estimated minutes, whichever is longer.
MIN_HOLD = timedelta(hours=1)
HOLD_FACTOR = 3
TOO_MANY_ENTRIES = "Too many participants from your network. Open your link again in ten minutes."
TAKEN_ELSEWHERE = (
    "This place was taken in another browser. Open your link there, use your return code, "
    "or ask the researchers for your return link."
)


class QuotaFull(DomainError):
    """All places are taken."""


class PlaceOfAnother(DomainError):
    """The participant's place was taken in another browser."""


class Browser(NamedTuple):
    """The browser of a participant.

    digest: digest of the secret in the browser's cookie. annotator_id: guest annotator of the browser's session.
    is_signed: True if the platform signed the entry link.
    """

    digest: str
    annotator_id: int | None = None
    is_signed: bool = False

    def holds(self, submission: Submission) -> bool:
        """Return whether this browser can continue the submission."""
        # Before consent, there are no answers to protect. A link preview may have entered first, and without session
        # ids, participants could not prove that the place is theirs.
        is_open = submission.annotator_id is None and not submission.panel.session_parameter
        is_of_guest = submission.annotator_id is not None and submission.annotator_id == self.annotator_id
        is_same = bool(submission.browser_digest) and constant_time_compare(submission.browser_digest, self.digest)
        return self.is_signed or is_open or is_of_guest or is_same


@transaction.atomic
def enter(
    panel: Panel,
    participant: str,
    session: str,
    now: datetime,
    study: str = "",
    address: str | None = None,
    browser: Browser | None = None,
) -> Submission:
    """Return the submission of the participant who opens the entry link. Idempotent.

    session: session id; if the platform does not send one, it is empty and the participant id is used instead. study:
    study id in the link. address: network of the browser, for the rate limit. browser: None if the caller has verified
    the participant. If all places are taken and the platform does not report departures, an abandoned place is
    reassigned. All participants use the same link and their ids can be guessed, so a browser that does not hold the
    place must present the platform's session id. Raises PanelNotOpen, PlaceOfAnother, QuotaFull, TookPart,
    NotForPeople, RoundNotOpen, or TooManyAttempts.
    """
    panel = Panel.objects.select_for_update(of=("self",), no_key=True).select_related("round__project").get(pk=panel.pk)
    previous = panel.submissions.filter(participant_digest=digest(participant))
    lasting = previous.filter(status__in=(*Submission.HOLDING, Status.SCREENED_OUT, Status.REJECTED))
    submission = lasting.first() or previous.filter(session_digest=digest(session or participant)).first()
    if submission is not None:
        _check_holds_place(submission, browser, session)
        # True if the place was returned before consent.
        is_unused = submission.status == Status.RETURNED and submission.annotator_id is None
        # Only a submission that the platform did not end can be resumed.
        if submission.platform_status or not (submission.status == Status.TIMED_OUT or is_unused):
            if submission.status in (Status.RETURNED, Status.TIMED_OUT, Status.REJECTED):
                raise DomainError("TookPart", "Your participation in this study has ended. You cannot take part again.")
            return submission
    if panel.status != Panel.Status.PUBLISHED:
        raise DomainError("PanelNotOpen", "This study does not accept new participants at the moment.")
    check_can_join(panel.round, is_recruited=True)
    if panel.submissions.holding_places().count() >= panel.places and not _free_abandoned_place(panel, now):
        raise QuotaFull("All places of this study are taken.")
    if submission is not None:
        return _resume(submission)
    if panel.submissions.filter(session_digest=digest(session or participant)).exists():
        raise DomainError("TookPart", "Another person used this link. Open the study from the platform's page again.")
    if address:
        check_attempt("panel_entries", f"{panel.pk}:{address}", now, TOO_MANY_ENTRIES)
    return panel.submissions.create(
        participant=encrypted(participant),
        participant_digest=digest(participant),
        session=encrypted(session) if session else "",
        session_digest=digest(session or participant),
        study=study,
        annotator=_annotator_of_earlier(panel, participant, session, browser),
        entered_at=now,
        browser_digest=browser.digest if browser else "",
    )


def _check_holds_place(submission: Submission, browser: Browser | None, session: str) -> None:
    """Raise PlaceOfAnother unless the browser holds the place or presents the platform's session id."""
    if browser is None or browser.holds(submission):
        return
    if not (session and submission.session and submission.session_digest == digest(session)):
        raise PlaceOfAnother(TAKEN_ELSEWHERE)


def _annotator_of_earlier(panel: Panel, participant: str, session: str, browser: Browser | None) -> Annotator | None:
    """Return the participant's annotator from an earlier place in the round, or None.

    The annotator's `place_size` is increased for the new place. Reusing the annotator prevents a participant of several
    panels from judging a statement twice.
    """
    earlier = Submission.objects.filter(
        panel__round=panel.round, panel__platform=panel.platform, participant_digest=digest(participant)
    )
    if earlier.filter(status=Status.ACTIVE).exists():
        raise DomainError("TookPart", "You are already taking part through another link. Finish that part first.")
    last = earlier.exclude(annotator=None).filter(annotator__erased_at=None).order_by("-pk").first()
    if last is None:
        return None
    _check_holds_place(last, browser, session)
    annotator = Annotator.objects.lock(last.annotator_id)
    Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged + panel.statements_per_place)
    return annotator


def _free_abandoned_place(panel: Panel, now: datetime) -> bool:
    """Time out the abandoned submission with the earliest entry. Return False if no submission is abandoned."""
    if platform_of(panel).has_api:
        return False
    since = now - max(MIN_HOLD, HOLD_FACTOR * timedelta(minutes=panel.estimated_minutes))
    recent = Judgment.objects.filter(annotator=OuterRef("annotator"), judged_at__gte=since)
    active = panel.submissions.filter(~Exists(recent), status=Status.ACTIVE, entered_at__lt=since)
    # The row is locked, so that a participant who completes the place at this moment keeps it.
    abandoned = active.select_for_update(of=("self",), no_key=True).order_by("entered_at", "pk").first()
    return abandoned is not None and leave(abandoned, Status.TIMED_OUT, now)


def _resume(submission: Submission) -> Submission:
    """Reactivate a submission that timed out, or that was returned before consent, for its remaining statements."""
    move(submission, Status.TIMED_OUT, Status.RETURNED, to=Status.ACTIVE, ended_at=None)
    if submission.annotator_id:
        annotator = Annotator.objects.lock(submission.annotator_id)
        n_judged = annotator.judgments.current().filter(judged_at__gte=submission.entered_at).count()
        n_remaining = max(0, submission.panel.statements_per_place - n_judged)
        Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged + n_remaining)
    return submission


@transaction.atomic
def join(submission: Submission, *, agrees: bool, browser: Browser | None = None) -> Annotator:
    """Create the participant's annotator, bind the place to the browser, and return the annotator. Idempotent.

    Raises ConsentMissing, TookPart, RoundNotOpen, and PlaceOfAnother if another browser has joined in the meantime.
    """
    # Do not use select_related("annotator") here: after waiting for the lock, PostgreSQL would return an outdated
    # annotator.
    locked = Submission.objects.select_for_update(of=("self",), no_key=True).select_related("panel__round")
    submission = locked.get(pk=submission.pk)
    if submission.status not in Submission.HOLDING:
        raise DomainError("TookPart", "Your participation in this study has ended.")
    if submission.annotator is None:
        panel = submission.panel
        submission.annotator = join_round(panel.round, agrees=agrees, place_size=panel.statements_per_place)
        fields = {"browser_digest": browser.digest} if browser else {}
        Submission.objects.filter(pk=submission.pk).update(annotator=submission.annotator, **fields)
    elif browser is not None and not browser.holds(submission):
        raise PlaceOfAnother(TAKEN_ELSEWHERE)
    return submission.annotator


def move(submission: Submission, *before: Submission.Status, to: Submission.Status, **fields) -> bool:
    """Change the status to `to` if the current status is one of `before`. Return whether the status changed."""
    moved = Submission.objects.filter(pk=submission.pk, status__in=before).update(status=to, **fields)
    if moved:
        submission.refresh_from_db()
    return bool(moved)


def holds_another_place(submission: Submission) -> bool:
    """Return whether the participant holds another place of the panel. If so, this submission cannot hold a place."""
    submissions = Submission.objects.filter(panel=submission.panel_id, participant_digest=submission.participant_digest)
    return submissions.holding_places().exclude(pk=submission.pk).exists()


def finish(submission: Submission, now: datetime) -> bool:
    """Complete a submission that has no statements left to judge, or release its place if nothing was judged.

    Skipped statements that still need judgments count as left to judge. Return whether the submission has ended in
    kgharvest, even if the platform still shows it as active.
    """
    if submission.status not in Submission.HOLDING or submission.completed_at:
        return True
    annotator = submission.annotator
    if annotator is None:
        return False
    if not annotator.has_judged_share and annotator.round.status != Round.Status.CLOSED:
        try:
            if next_batch(annotator, now) or n_skipped(annotator):
                return False
        except (RoundNotOpen, ComesFirst):
            return False
    if annotator.judgments.filter(judged_at__gte=submission.entered_at).exists():
        complete(submission, now)
    else:
        leave(submission, Status.RETURNED, now)
    return True


@transaction.atomic
def complete(submission: Submission, now: datetime) -> bool:
    """Mark the place as judged and record its reward as owed. Idempotent.

    Return False if the place was completed before.

    The platform may have reported the completion earlier, so the status can already be completed or approved.
    """
    if not move(submission, Status.ACTIVE, to=Status.COMPLETED, completed_at=now):
        reported = (Status.COMPLETED, Status.APPROVED)
        unmarked = Submission.objects.filter(pk=submission.pk, status__in=reported, completed_at=None)
        if not unmarked.update(completed_at=now):
            return False
    submission.refresh_from_db()
    panel = submission.panel
    owe_in_all(submission, PayEntry.Purpose.REWARD, panel.reward, "All statements of the place were judged.")
    annotator = submission.annotator
    record("place.completed", submission, None, round=panel.round, annotator=annotator, panel=panel.name)
    return True


@transaction.atomic
def leave(submission: Submission, to: Submission.Status, now: datetime) -> bool:
    """End an unreviewed submission (returned, timed out, or screened out) and release its place immediately.

    Leased statements are released; judgments are kept. A participant who completed the place and then timed out is
    still owed the reward. Return False if the submission had already ended.
    """
    if not move(submission, Status.ACTIVE, Status.COMPLETED, to=to, ended_at=now):
        return False
    if submission.annotator_id:
        annotator = Annotator.objects.lock(submission.annotator_id)
        release_leases(annotator.assignments.all())
        Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged)  # prevents further assignments
    panel = submission.panel
    if to in (Status.RETURNED, Status.SCREENED_OUT):
        reason = "Screened out." if to == Status.SCREENED_OUT else "The place was returned."
        owe_in_all(submission, PayEntry.Purpose.REWARD, 0, reason)
    if to == Status.SCREENED_OUT:
        owe_in_all(submission, PayEntry.Purpose.SCREEN_OUT, panel.screen_out_reward, "Screened out.")
    facts = {"panel": panel.name, "status": submission.get_status_display()}
    record("place.left", submission, None, round=panel.round, annotator=submission.annotator, **facts)
    return True


def free_place(submission: Submission, now: datetime, by=None) -> bool:
    """Release the place of a participant who left, unless the platform reports departures.

    Return False if the submission has ended in the meantime. Raises NotAllowed or PlatformTells.
    """
    panel = submission.panel
    check_may(by, Action.WORK, panel.project)
    if submission.annotator_id and platform_of(panel).has_api:
        reason = f"{panel.get_platform_display()} reports departures. End the submission there."
        raise DomainError("PlatformTells", reason)
    with transaction.atomic():
        locked = Submission.objects.select_for_update(of=("self",), no_key=True).select_related("panel__round")
        submission = locked.get(pk=submission.pk)
        return submission.status == Status.ACTIVE and leave(submission, Status.TIMED_OUT, now)
