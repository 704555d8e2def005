"""Places of a panel: taken at the entry link, done with the last judgment, free again when somebody leaves.

Every change of a submission's status is `move`, one conditional UPDATE; locks are taken in the order panel, submission,
annotator.
"""

from __future__ import annotations

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
from kgharvest.contrib.recruiting.platforms import Can, platform_of
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

Status = Submission.Status
LEAST_HELD = timedelta(hours=1)  # a place, after the last answer, where no platform says that somebody is gone
HELD_TIMES = 3  # as long as a place is estimated to take, if that is longer
MANY_CAME = "Many people have just come from where you are; open your link again in ten minutes."
TAKEN_ELSEWHERE = (
    "This place was taken in another browser. Open your link there, use your return code, "
    "or ask the researchers of the study for your return link."
)
OWED_REASONS = {
    Status.COMPLETED: "All statements of the place were judged.",
    Status.SCREENED_OUT: "A check turned the person away.",
    Status.RETURNED: "The place was given back.",
}


class QuotaFull(DomainError):
    """Entering when all places are taken."""


class PlaceOfAnother(DomainError):
    """Entering as a participant whose place was taken in another browser."""


class Browser(NamedTuple):
    """The browser of a participant.

    digest: of the secret in its cookie. annotator_id: the guest who judges in it. is_signed: whether the platform
    signed the link.
    """

    digest: str
    annotator_id: int | None = None
    is_signed: bool = False

    def holds(self, submission: Submission) -> bool:
        """Return whether this browser may continue the submission."""
        # Nothing is stored yet. Links without a session id are also opened by link previews, which come first.
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
    """Return the submission of the participant who opens the entry link; entering again returns the same one.

    session: empty if the platform sends none; the participant stands for it then. study: as in the link. If all places
    are taken and the platform does not report departures, an abandoned place is reassigned. address: network of the
    browser, for the rate limit. browser: None if the caller vouches for the participant. All participants share the
    link and their ids can be guessed, so a browser that does not hold a place must name its platform's session id.
    Raises PanelNotOpen, PlaceOfAnother, QuotaFull, TookPart, NotForPeople, RoundNotOpen and TooManyAttempts.
    """
    panel = Panel.objects.select_for_update(of=("self",), no_key=True).select_related("round__project").get(pk=panel.pk)
    known = panel.submissions.filter(participant_digest=digest(participant))
    lasting = known.filter(status__in=(*Submission.HOLDING, Status.SCREENED_OUT, Status.REJECTED))
    submission = lasting.first() or known.filter(session_digest=digest(session or participant)).first()
    if submission is not None:
        _check_place_is_theirs(submission, browser, session)
    if submission is not None and not _may_resume(submission):
        if submission.status in (Status.RETURNED, Status.TIMED_OUT, Status.REJECTED):
            raise DomainError("TookPart", "You have taken part in this study already, and your part has ended.")
        return submission
    if panel.status != Panel.Status.PUBLISHED:
        raise DomainError("PanelNotOpen", "This study takes nobody new at the moment.")
    check_can_join(panel.round)
    if panel.submissions.holding_places().count() >= panel.places and not _free_abandoned_place(panel, now):
        raise QuotaFull("All places of this study are taken.")
    if submission is not None:
        return _resume(submission)
    if panel.submissions.filter(session_digest=digest(session or participant)).exists():
        raise DomainError("TookPart", "Another person used this link. Open the study from the platform's page again.")
    if address:
        check_attempt("panel_entries", f"{panel.pk}:{address}", now, MANY_CAME)
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


def _may_resume(submission: Submission) -> bool:
    """Return whether an ended part can continue: it timed out here, or was returned before consent.

    A part that the platform has ended cannot.
    """
    is_unused = submission.status == Status.RETURNED and submission.annotator_id is None
    return (submission.status == Status.TIMED_OUT or is_unused) and not submission.platform_status


def _check_place_is_theirs(submission: Submission, browser: Browser | None, session: str = "") -> None:
    """Raise PlaceOfAnother unless the browser holds the place or names the platform's session id of it."""
    if browser is None or browser.holds(submission):
        return
    if not (session and submission.session and submission.session_digest == digest(session)):
        raise PlaceOfAnother(TAKEN_ELSEWHERE)


def _annotator_of_earlier(panel: Panel, participant: str, session: str, browser: Browser | None) -> Annotator | None:
    """Return as whom the person has judged this round before, with room for another place; None for a newcomer.

    Nobody judges a statement twice, by whichever of the round's panels they come.
    """
    earlier = Submission.objects.filter(
        panel__round=panel.round, panel__platform=panel.platform, participant_digest=digest(participant)
    )
    if earlier.filter(status=Status.ACTIVE).exists():
        raise DomainError("TookPart", "You are taking part in this study by another link; finish that first.")
    last = earlier.exclude(annotator=None).filter(annotator__erased_at=None).order_by("-pk").first()
    if last is None:
        return None
    _check_place_is_theirs(last, browser, session)
    annotator = Annotator.objects.lock(last.annotator_id)
    Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged + panel.statements_per_place)
    return annotator


def _free_abandoned_place(panel: Panel, now: datetime) -> bool:
    """Time out the person who has been away longest, if that is too long, and return whether there was one."""
    if Can.RECONCILE in platform_of(panel).can:
        return False
    since = now - max(LEAST_HELD, HELD_TIMES * timedelta(minutes=panel.estimated_minutes))
    judged_lately = Judgment.objects.filter(annotator=OuterRef("annotator"), judged_at__gte=since)
    active = panel.submissions.filter(~Exists(judged_lately), status=Status.ACTIVE, entered_at__lt=since)
    # Locked: whoever has just become done keeps the place.
    abandoned = active.select_for_update(of=("self",), no_key=True).order_by("entered_at", "pk").first()
    return abandoned is not None and leave(abandoned, Status.TIMED_OUT, now)


def _resume(submission: Submission) -> Submission:
    """Reactivate a place that timed out or was returned before consent, for the statements that were left."""
    move(submission, Status.TIMED_OUT, Status.RETURNED, to=Status.ACTIVE, ended_at=None)
    if submission.annotator_id:
        annotator = Annotator.objects.lock(submission.annotator_id)
        n_here = annotator.judgments.current().filter(judged_at__gte=submission.entered_at).count()
        left = max(0, submission.panel.statements_per_place - n_here)
        Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged + left)
    return submission


@transaction.atomic
def join(submission: Submission, *, agrees: bool, browser: Browser | None = None) -> Annotator:
    """Return the annotator that the participant is from now on, and bind the place to the browser. Idempotent.

    Raises ConsentMissing, TookPart, RoundNotOpen, and PlaceOfAnother if another browser has joined in the meantime.
    """
    # Not joined with the annotator: PostgreSQL would join the row that it waited for with what was there before.
    locked = Submission.objects.select_for_update(of=("self",), no_key=True).select_related("panel__round")
    submission = locked.get(pk=submission.pk)
    if submission.status not in Submission.HOLDING:
        raise DomainError("TookPart", "Your part in this study has ended.")
    if submission.annotator is None:
        panel = submission.panel
        submission.annotator = join_round(panel.round, agrees=agrees, place_size=panel.statements_per_place)
        fields = {"browser_digest": browser.digest} if browser else {}
        Submission.objects.filter(pk=submission.pk).update(annotator=submission.annotator, **fields)
    elif browser is not None and not browser.holds(submission):
        raise PlaceOfAnother(TAKEN_ELSEWHERE)
    return submission.annotator


def move(submission: Submission, *before: Submission.Status, to: Submission.Status, **fields) -> bool:
    """Give a submission that has one of the states `before` the state `to`; return whether it had one of them."""
    moved = Submission.objects.filter(pk=submission.pk, status__in=before).update(status=to, **fields)
    if moved:
        submission.refresh_from_db()
    return bool(moved)


def holds_another_place(submission: Submission) -> bool:
    """Return whether its person has another place of the panel, so that this one cannot take one."""
    same_person = Submission.objects.filter(panel=submission.panel_id, participant_digest=submission.participant_digest)
    return same_person.holding_places().exclude(pk=submission.pk).exists()


def has_judged_all(annotator: Annotator, now: datetime) -> bool:
    """Return whether somebody has judged all that their place is for, or nothing is left for them in the round.

    What they skipped and nobody else has judged is left.
    """
    if annotator.has_judged_share or annotator.round.status == Round.Status.CLOSED:
        return True
    try:
        return not next_batch(annotator, now) and not n_skipped(annotator)
    except (RoundNotOpen, ComesFirst):
        return False


def finish(submission: Submission, now: datetime) -> bool:
    """End a submission whose person has nothing left to judge; free the place if they judged nothing.

    Return whether it has ended. Where the platform believes that somebody is done who is not, it has not.
    """
    if submission.status not in Submission.HOLDING or submission.completed_at:
        return True
    annotator = submission.annotator
    if annotator is None or not has_judged_all(annotator, now):
        return False
    if annotator.judgments.filter(judged_at__gte=submission.entered_at).exists():
        complete(submission, now)
    else:
        leave(submission, Status.RETURNED, now)
    return True


@transaction.atomic
def complete(submission: Submission, now: datetime) -> bool:
    """Note that the person has judged all that their place is for, and is owed the reward. Twice is once.

    The platform may have told before that they are done.
    """
    told_before = Submission.objects.filter(
        pk=submission.pk, status__in=(Status.COMPLETED, Status.APPROVED), completed_at=None
    )
    if not move(submission, Status.ACTIVE, to=Status.COMPLETED, completed_at=now) and not told_before.update(
        completed_at=now
    ):
        return False
    submission.refresh_from_db()
    panel = submission.panel
    owe_in_all(submission, PayEntry.Purpose.REWARD, panel.reward, OWED_REASONS[Status.COMPLETED])
    annotator = submission.annotator
    record("place.completed", submission, None, round=panel.round, annotator=annotator, panel=panel.name)
    return True


@transaction.atomic
def leave(submission: Submission, to: Submission.Status, now: datetime) -> bool:
    """End a submission that was not reviewed (returned, timed out, screened out); its place is free at once.

    The statements leased to the person go to others; what they judged stays. Whoever was done when the time ran out is
    owed the reward all the same. Return False where it had ended before.
    """
    if not move(submission, Status.ACTIVE, Status.COMPLETED, to=to, ended_at=now):
        return False
    if submission.annotator_id:
        annotator = Annotator.objects.lock(submission.annotator_id)
        release_leases(annotator.assignments.all())
        Annotator.objects.filter(pk=annotator.pk).update(place_size=annotator.n_judged)  # nothing more is handed out
    panel = submission.panel
    if to in (Status.RETURNED, Status.SCREENED_OUT):
        owe_in_all(submission, PayEntry.Purpose.REWARD, 0, OWED_REASONS[to])
    if to == Status.SCREENED_OUT:
        owe_in_all(submission, PayEntry.Purpose.SCREEN_OUT, panel.screen_out_reward, OWED_REASONS[to])
    facts = {"panel": panel.name, "status": submission.get_status_display()}
    record("place.left", submission, None, round=panel.round, annotator=submission.annotator, **facts)
    return True


def free_place(submission: Submission, now: datetime, by=None) -> bool:
    """Free the place of somebody who is gone, where no platform tells of it. Raises NotAllowed, PlatformTells.

    Return False where the person has ended meanwhile.
    """
    panel = submission.panel
    check_may(by, Action.WORK, panel.project)
    if submission.annotator_id and Can.RECONCILE in platform_of(panel).can:
        raise DomainError("PlatformTells", f"{panel.get_platform_display()} reports departures. End the part there.")
    with transaction.atomic():
        locked = Submission.objects.select_for_update(of=("self",), no_key=True).select_related("panel__round")
        submission = locked.get(pk=submission.pk)
        return submission.status == Status.ACTIVE and leave(submission, Status.TIMED_OUT, now)
