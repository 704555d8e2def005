"""Erasing people: who an annotator was is forgotten, what they judged stays.

What a panel's platform calls them is forgotten once nothing is owed to them: until then it says whom to pay.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, Sum
from django.utils import timezone

from annotation.judging.assignment import release_leases
from annotation.models import (
    Adjudication,
    Annotator,
    Invite,
    PanelEvent,
    PayEntry,
    PlatformCommand,
    RoundEvent,
    Submission,
    WhoAnswers,
)
from annotation.monitoring.progress import delete_snapshots
from annotation.recruiting.panels.identifiers import Unreadable, encrypted, forgotten
from annotation.recruiting.panels.money import money
from annotation.recruiting.pay.ledger import submission_balance
from kgharvest.access import Action, check_may
from kgharvest.audit.trail import actor_code, append, record
from kgharvest.errors import DomainError
from kgharvest.models import Project, ProjectMember, Role

SUBMISSIONS_AT_ONCE = 100


def check_may_erase(user, by) -> None:
    """Raise NotYoursToErase unless `by` owns all projects that the account works or judges in.

    An account is the installation's: what an owner may erase is known to nobody else. Superusers erase others.
    """
    if by is None or (by.is_superuser and by != user):
        return
    theirs = Project.objects.filter(Q(members__user=user) | Q(rounds__annotators__user=user)).order_by().values("pk")
    owned = Project.objects.with_role(by, [Role.OWNER]).order_by().values("pk")
    of_others = Project.objects.filter(pk__in=theirs).exclude(pk__in=owned)
    if by == user or user.is_staff or user.is_superuser or of_others.exists():
        raise DomainError(
            "NotYoursToErase",
            f"{user} works or judges in projects that you do not own, or is you; ask who runs this installation.",
        )


@transaction.atomic
def erase_annotator(annotator: Annotator, by=None) -> list[str]:
    """Forget account, name, invite and questionnaire of an annotator, and let nobody come back as them. Twice is once.

    Their code, judgments, comments, consent and what the round's log says of them under that code stay. What is leased
    to them is released. Whoever has an account keeps it (erase_account), and joins as somebody new. Returns why some
    platform's ids of theirs are kept for now, a sentence each. Raises NotAllowed: as it cannot be undone, it is for
    those who manage the project, not all who work in it.
    """
    check_may(by, Action.MANAGE, annotator.round.project)
    _lock_submissions(annotator)
    annotator = Annotator.objects.lock(annotator.pk)
    if forget(annotator, by):
        _record_erased(annotator, by)
    return forget_submissions(annotator)


def forget(annotator: Annotator, by) -> bool:
    """Do what erase_annotator does to an annotator who is locked, but for submissions; False if it was done before."""
    if not Annotator.objects.filter(pk=annotator.pk, erased_at=None).update(
        user=None, name="", erased_at=timezone.now()
    ):
        return False
    Invite.objects.filter(annotator=annotator).delete()
    WhoAnswers.objects.filter(annotator=annotator).delete()
    if annotator.user_id:
        RoundEvent.objects.filter(annotator=annotator, by=annotator.user_id).update(by=None)
    release_leases(annotator.assignments.all())
    delete_snapshots(annotator.round)  # statistics in them name people
    annotator.round.events.record("erased", by=by, annotator=annotator)
    return True


def _record_erased(annotator: Annotator, by) -> None:
    round = annotator.round
    record("annotator.erased", annotator, by, round.project_id, annotator=annotator.code, round=round.name)


@transaction.atomic
def erase_account(user, by=None) -> int:
    """Delete an account with all that names it; return in how many rounds it judged. What it judged and decided stays.

    Raises NotYoursToErase, and SoleOwner while a project would be left without an owner.
    """
    check_may_erase(user, by)
    owned = ProjectMember.objects.filter(role=Role.OWNER)
    for project, name in owned.filter(user=user).values_list("project", "project__name"):
        if not owned.filter(project=project).exclude(user=user).exists():
            raise DomainError(
                "SoleOwner", f"{user} is the only owner of the project {name!r}. Add another owner first."
            )
    for annotator in user.annotators.order_by("pk"):
        _lock_submissions(annotator)
    annotators = [Annotator.objects.lock(pk) for pk in user.annotators.order_by("pk").values_list("pk", flat=True)]
    erased = [annotator for annotator in annotators if forget(annotator, by)]
    Adjudication.objects.filter(by=user).update(by=None)
    person, pk = actor_code(user), user.pk
    user.delete()
    for annotator in annotators:
        forget_submissions(annotator)
    for annotator in erased:  # the chain's head is locked last
        _record_erased(annotator, by)
    append("account.erased", ("user", pk), by, None, [], {"person": person})
    return len(annotators)


def _lock_submissions(annotator: Annotator) -> None:
    """They come before the annotator in the order of locks."""
    list(Submission.objects.filter(annotator=annotator).select_for_update(of=("self",), no_key=True).order_by("pk"))


def forget_submissions(annotator: Annotator) -> list[str]:
    """Erase the platform's ids of the person and of each part they took, once nothing is owed; the money stays.

    Returns why some are kept for now, a sentence each: `forget_settled_submissions` erases them later.
    """
    named = Submission.objects.filter(annotator=annotator).exclude(participant="")
    reasons = []
    for submission in named.select_related("panel").order_by("pk"):
        if reason := _still_needed(submission):
            reasons.append(reason)
        else:
            _forget_submission(submission)
    return reasons


def _still_needed(submission: Submission) -> str:
    """Return why the platform's ids are needed in one sentence, or nothing."""
    panel = submission.panel
    where = f"The platform's id in the panel {panel.name} is kept for now"
    if submission.status not in Submission.ENDED:
        return f"{where}: the submission is {submission.get_status_display()}; review it first."
    if (owed := submission_balance(submission).open) > 0:
        return f"{where}: {money(owed, panel.currency)} is owed; pay it first."
    if submission.commands.unfinished().exists():
        return f"{where}: the platform has not answered what it was asked; wait for that."
    return ""


def _forget_submission(submission: Submission) -> None:
    with suppress(Unreadable):  # what nobody can read tells nothing
        _forget_events(submission)
    Submission.objects.filter(pk=submission.pk).update(
        participant="",
        participant_digest=forgotten(submission.participant_digest),
        session="",
        session_digest=forgotten(submission.session_digest),
        browser_digest="",
    )


def _forget_events(submission: Submission) -> None:
    """Empty the platform's messages that name the person. Raises Unreadable."""
    names = [name for name in (submission.participant_id, submission.session_id) if name]
    handled = PanelEvent.objects.filter(platform=submission.panel.platform, received_at__gte=submission.entered_at)
    for event in handled.exclude(handled_at=None).iterator(chunk_size=500):
        if any(name in event.text for name in names):
            PanelEvent.objects.filter(pk=event.pk).update(body=encrypted(""))


def forget_settled_submissions(now: datetime) -> None:
    """Erase the ids of people who were erased before everything was paid, and are paid now. A periodic task."""
    unfinished = PlatformCommand.objects.unfinished().filter(submission=OuterRef("pk"))
    waiting = Submission.objects.filter(annotator__erased_at__isnull=False, status__in=Submission.ENDED)
    waiting = waiting.exclude(participant="").filter(~Exists(unfinished))
    owed, paid = (Sum("pay_entries__amount", filter=Q(pay_entries__side=side), default=0) for side in PayEntry.Side)
    waiting = waiting.annotate(open=owed - paid)
    for submission in waiting.filter(open__lte=0).order_by("pk")[:SUBMISSIONS_AT_ONCE]:
        with transaction.atomic():
            locked = Submission.objects.select_for_update(of=("self",), no_key=True).select_related("panel")
            submission = locked.get(pk=submission.pk)
            if not _still_needed(submission):
                _forget_submission(submission)
