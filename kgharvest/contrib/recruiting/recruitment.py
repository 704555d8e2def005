"""Operations on recruited annotators that the core calls, and erasure of platform ids.

A platform id is needed for payment, so it is erased only when nothing is owed to the participant.
"""

from contextlib import suppress
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum
from django.urls import reverse

from annotation.invites.recruitment import Recruitment
from annotation.models import Annotator, Round
from kgharvest.contrib.recruiting.models import PanelEvent, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable, encrypted, forgotten
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.services import leave
from kgharvest.contrib.recruiting.pay.hourly import pay_in_words
from kgharvest.contrib.recruiting.pay.ledger import balance_of

SUBMISSIONS_AT_ONCE = 100  # maximum number of submissions that one call of the periodic task erases


class PanelRecruitment(Recruitment):
    def lock(self, annotator: Annotator) -> None:
        list(_locked(annotator))

    def withdraw(self, annotator: Annotator, now: datetime) -> None:
        _end_active(annotator, Submission.Status.RETURNED, now)

    def screen_out(self, annotator: Annotator, now: datetime) -> None:
        _end_active(annotator, Submission.Status.SCREENED_OUT, now)

    def forget(self, annotator: Annotator) -> list[str]:
        """Erase the platform ids that are no longer needed, and return the reasons for keeping the other ids.

        `forget_settled_submissions` erases the other ids later. Ledger entries are kept.
        """
        with_ids = Submission.objects.filter(annotator=annotator).exclude(participant="")
        reasons = []
        for submission in with_ids.select_related("panel").order_by("pk"):
            if reason := _reason_to_keep(submission):
                reasons.append(reason)
            else:
                _forget_submission(submission)
        return reasons

    def end_page(self, annotator: Annotator) -> str | None:
        has_place = annotator.submissions.exists()
        return reverse("recruiting:panel_done", args=[annotator.round_id]) if has_place else None

    def pay_in_words(self, round: Round) -> str:
        return pay_in_words(round)


def _locked(annotator: Annotator) -> QuerySet[Submission]:
    return Submission.objects.filter(annotator=annotator).select_for_update(of=("self",), no_key=True).order_by("pk")


@transaction.atomic
def _end_active(annotator: Annotator, to: Submission.Status, now: datetime) -> None:
    for submission in _locked(annotator):
        if submission.status == Submission.Status.ACTIVE:
            leave(submission, to, now)


def _reason_to_keep(submission: Submission) -> str:
    """Return one sentence explaining why the platform ids are still needed, or an empty string."""
    panel = submission.panel
    notice = f"The platform id in panel {panel.name} has not been erased yet"
    if submission.status not in Submission.ENDED:
        return f"{notice}: the submission is {submission.get_status_display()}. Review it first."
    if (owed := balance_of(submission).open) > 0:
        return f"{notice}: {money(owed, panel.currency)} is owed. Pay it first."
    if submission.commands.unfinished().exists():
        return f"{notice}: a request to the platform is pending. Wait until it has finished."
    return ""


def _forget_submission(submission: Submission) -> None:
    """Erase the platform ids, including stored events that contain them."""
    with suppress(Unreadable):  # unreadable ids cannot be searched for in stored events
        names = [name for name in (submission.participant_id, submission.session_id) if name]
        events = PanelEvent.objects.filter(platform=submission.panel.platform, received_at__gte=submission.entered_at)
        for event in events.exclude(handled_at=None).iterator(chunk_size=500):
            if any(name in event.text for name in names):
                PanelEvent.objects.filter(pk=event.pk).update(body=encrypted(""))
    Submission.objects.filter(pk=submission.pk).update(
        participant="",
        participant_digest=forgotten(submission.participant_digest),
        session="",
        session_digest=forgotten(submission.session_digest),
        browser_digest="",
    )


def forget_settled_submissions(now: datetime) -> None:
    """Erase the platform ids of erased annotators to whom nothing is owed anymore. A periodic task."""
    unfinished = PlatformCommand.objects.unfinished().filter(submission=OuterRef("pk"))
    pending = Submission.objects.filter(annotator__erased_at__isnull=False, status__in=Submission.ENDED)
    pending = pending.exclude(participant="").filter(~Exists(unfinished))
    owed, paid = (Sum("pay_entries__amount", filter=Q(pay_entries__side=side), default=0) for side in PayEntry.Side)
    pending = pending.annotate(open=owed - paid)
    for submission in pending.filter(open__lte=0).order_by("pk")[:SUBMISSIONS_AT_ONCE]:
        with transaction.atomic():
            locked = Submission.objects.select_for_update(of=("self",), no_key=True).select_related("panel")
            submission = locked.get(pk=submission.pk)
            if not _reason_to_keep(submission):
                _forget_submission(submission)
