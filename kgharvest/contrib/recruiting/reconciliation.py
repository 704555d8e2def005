"""Bring submissions of ours to what their platform says of them, whatever came before and however often.

An event tells of one submission, reconciliation looks at all of a panel: both end in `apply_remote`. What a platform
said later counts: `RemoteSubmission.at` orders what comes in any order.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel, PanelEvent, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import digest, encrypted, forgotten
from kgharvest.contrib.recruiting.panels.services import holds_another_place, leave, move
from kgharvest.contrib.recruiting.pay import ledger as pay
from kgharvest.contrib.recruiting.pay.commands import settle
from kgharvest.contrib.recruiting.platforms import Can, RemoteSubmission, platform_class, platform_of
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.jobs import ledger
from kgharvest.models import Job

logger = logging.getLogger(__name__)

JOB_KIND = "panel_reconciliation"
EVERY = timedelta(minutes=5)  # a panel is looked at so often

Status = Submission.Status


# Submissions


@transaction.atomic
def apply_remote(panel: Panel, remote: RemoteSubmission, now: datetime, event: PanelEvent | None = None) -> bool:
    """Bring our submission to what the platform says; return whether anything changed.

    now: where the platform gives no time of its own. Somebody who is at work there and never came here is not ours yet;
    whom the platform may pay without that, is noted. Writes what was paid, and settles payments nobody knew of.
    """
    submission = _find(panel, remote, now)
    at = remote.at or now
    if submission is None or (submission.platform_status_at and submission.platform_status_at > at):
        return False
    before = (submission.status, submission.platform_status)
    moved = _move(submission, remote, at)
    Submission.objects.filter(pk=submission.pk).update(
        platform_status=remote.platform_status[:30],
        platform_status_at=at,
        approves_itself_at=remote.approves_itself_at,
    )
    n_lines = submission.pay_entries.count()
    _note_pay(submission, remote, at, event)
    if moved:
        facts = {"submission": submission.pk, "panel": panel.name, "status": submission.status}
        record("submission.moved", submission, None, round=panel.round, annotator=submission.annotator, **facts)
    return moved or before[1] != remote.platform_status or submission.pay_entries.count() != n_lines


def _find(panel: Panel, remote: RemoteSubmission, now: datetime) -> Submission | None:
    """Return our submission, locked; made now for who was done at the platform and never came here."""
    ours = panel.submissions.select_for_update(of=("self",), no_key=True)
    names = [digest(name) for name in (remote.session, remote.participant) if name]
    found = ours.filter(session_digest=names[0]).first() or ours.filter(session_digest__in=names).first()
    if found is not None or remote.status not in (Status.COMPLETED, Status.APPROVED):
        return found
    if ours.filter(session_digest=forgotten(names[0])).exists():  # whose it was is erased
        return None
    made = {
        "participant": encrypted(remote.participant),
        "participant_digest": digest(remote.participant),
        "session": encrypted(remote.session),
        "entered_at": remote.at or now,
    }
    try:
        with transaction.atomic():
            return panel.submissions.create(session_digest=digest(remote.session), **made)
    except IntegrityError:  # the person holds a place by another session, which is what we go by
        return None


def _move(submission: Submission, remote: RemoteSubmission, at: datetime) -> bool:
    """Give the submission the platform's status, unless ours says more; return whether it changed."""
    before, status = Status(submission.status), remote.status
    if before == status or status == Status.ACTIVE or _says_more(submission, status):
        return False
    if status in Submission.HOLDING and holds_another_place(submission):
        logger.warning("Submission %s is %s, but its person holds another place.", submission.pk, status)
        return False
    if status in (Status.COMPLETED, Status.APPROVED):
        return move(submission, before, to=status, ended_at=None if status == Status.COMPLETED else at)
    if before in (Status.ACTIVE, Status.COMPLETED):
        return leave(submission, status, at)
    return move(submission, before, to=status, ended_at=at)


def _says_more(submission: Submission, status: Status) -> bool:
    """Return whether the platform has not heard yet, or will not, of how this part ended here."""
    if status == Status.COMPLETED:
        ended_there = submission.platform_status.casefold().replace("-", " ") == submission.status
        return submission.status in Submission.ENDED and not ended_there
    return submission.status == Status.SCREENED_OUT and status in (Status.RETURNED, Status.TIMED_OUT)


# Pay


def _note_pay(submission: Submission, remote: RemoteSubmission, at: datetime, event: PanelEvent | None) -> None:
    """Write what is owed and was paid by the status that the submission has now, and by the payments there are.

    What the platform approved is paid, also where the person holds another place here by now.
    """
    panel = submission.panel
    status = remote.status if remote.status in (submission.status, Status.APPROVED) else None
    if status == Status.APPROVED:
        if not pay.submission_balance(submission, pay.Purpose.REWARD).owed:
            pay.owe_in_all(submission, pay.Purpose.REWARD, panel.reward, "The platform approved it.", event=event)
        _paid(submission, pay.Purpose.REWARD, pay.REWARD, remote.reward_paid, "Approved.", event)
        # Settles approvals of many at once, and repeated ones that the platform refused.
        decision = submission.commands.exclude(kind=PlatformCommand.Kind.BONUS).order_by("-pk").first()
        if decision is not None and decision.kind == PlatformCommand.Kind.APPROVE and remote.reward_paid is not None:
            settle(decision, True, at)
    elif status == Status.SCREENED_OUT:
        owed = remote.reward_paid or panel.screen_out_reward
        pay.owe_in_all(submission, pay.Purpose.SCREEN_OUT, owed, "Screened out.", event=event)
        _paid(submission, pay.Purpose.SCREEN_OUT, pay.SCREEN_OUT, remote.reward_paid, "Screened out.", event)
    elif status == Status.COMPLETED and submission.completed_at:
        pay.owe_in_all(submission, pay.Purpose.REWARD, panel.reward, "All statements of the place are judged.")
    if status in (Status.RETURNED, Status.REJECTED, Status.SCREENED_OUT):
        pay.owe_in_all(submission, pay.Purpose.REWARD, 0, f"The platform says {status}.", event=event)
    if remote.paid_bonuses is not None:
        _match_bonuses(submission, remote.paid_bonuses, at, event)


def _paid(submission: Submission, purpose: str, key: str, amount: int | None, reason: str, event) -> None:
    if amount:
        pay.record_paid(submission, purpose, key, amount, reason, event=event)


def _match_bonuses(submission: Submission, paid: Sequence[int], at: datetime, event: PanelEvent | None) -> None:
    """Find the command that each payment is of. What no command explains was paid by somebody's hand at the platform.

    One that is not there may still come, so nothing is sent again for that: a person says so (settle_by_hand).
    """
    lines = submission.pay_entries.filter(side=pay.Side.PAID, purpose=pay.Purpose.BONUS)
    unexplained = Counter(paid) - Counter(lines.values_list("amount", flat=True))
    bonuses = submission.commands.filter(kind=PlatformCommand.Kind.BONUS)
    # One that was refused may have been paid there by hand; what was never sent is still to be paid.
    for command in bonuses.exclude(state=PlatformCommand.State.DONE).exclude(n_tries=0):
        if unexplained[command.amount] > 0:
            unexplained[command.amount] -= 1
            settle(command, True, at)
    for amount in unexplained.elements():
        n = lines.filter(amount=amount, command=None).count() + 1
        reason = "A bonus that was paid at the platform."
        pay.record_paid(submission, pay.Purpose.BONUS, f"bonus:there:{amount}:{n}", amount, reason, event=event)


# Panel


def reconcile(panel: Panel, now: datetime) -> int:
    """Look at all submissions that the platform has; return how many of ours changed.

    Raises PlatformRefused, PlatformUnavailable. Call it outside of transactions.
    """
    platform = platform_of(panel)
    known_before = {submission.session_digest: submission for submission in panel.submissions.all()}
    lines = panel.pay_entries.filter(side=pay.Side.PAID, purpose=pay.Purpose.BONUS)
    noted: dict[int, list[int]] = defaultdict(list)
    for submission, amount in lines.values_list("submission", "amount"):
        noted[submission].append(amount)
    n_changed = 0
    for remote in platform.submissions():
        known = known_before.get(digest(remote.session))
        if known is None or not _is_same(known, noted[known.pk], remote):
            n_changed += apply_remote(panel, remote, now)
    if Can.STATUS in platform.can:
        apply_status(panel, platform.status(), now)
    Panel.objects.filter(pk=panel.pk).update(reconciled_at=now, reconcile_error="")
    return n_changed


def _is_same(known: Submission, bonuses: Sequence[int], remote: RemoteSubmission) -> bool:
    """Return whether there is nothing to do, so that most submissions cost no transaction. bonuses: noted as paid."""
    return (
        known.platform_status == remote.platform_status
        and known.approves_itself_at == remote.approves_itself_at
        and remote.status in (known.status, Status.ACTIVE)
        and (remote.paid_bonuses is None or sorted(remote.paid_bonuses) == sorted(bonuses))
    )


@transaction.atomic
def apply_status(panel: Panel, status: str | None, now: datetime) -> bool:
    """Pause or stop our panel where it was paused or stopped at the platform; return whether it changed."""
    became = {
        Panel.Status.PAUSED: ([Panel.Status.PUBLISHED], "It was paused at the platform."),
        Panel.Status.STOPPED: ([Panel.Status.PUBLISHED, Panel.Status.PAUSED], "It has ended at the platform."),
    }
    if status not in became:
        return False
    before, reason = became[Panel.Status(status)]
    if not Panel.objects.filter(pk=panel.pk, status__in=before).update(status=status, ended_reason=reason):
        return False
    record("panel.moved", panel, None, round=panel.round, panel=panel.name, status=str(status), why=reason)
    return True


# All panels


def ask_reconciliation(panel: Panel, by=None) -> None:
    """Have a worker look at the panel within seconds. Raises NotAllowed, CannotReconcile."""
    check_may(by, Action.WORK, panel.project)
    if not _with_platform(Panel.objects.filter(pk=panel.pk)).exists():
        raise DomainError("CannotReconcile", f"{panel.name} has no study on a platform. Publish it first.")
    Panel.objects.filter(pk=panel.pk).update(reconciled_at=None)
    enqueue_due_reconciliations(timezone.now())


def enqueue_due_reconciliations(now: datetime) -> None:
    """Queue the job that looks at panels, if one is due and there is none. A periodic task of every worker."""
    if due_panels(now).exists():
        ledger.enqueue_once(JOB_KIND)


def due_panels(now: datetime) -> QuerySet[Panel]:
    """Return the panels that people may be working for, or that wait for pay, and were not looked at lately."""
    waits = Panel.objects.filter(
        Q(submissions__status__in=[Status.ACTIVE, Status.COMPLETED])
        | Q(submissions__commands__state__in=[PlatformCommand.State.WAITING, PlatformCommand.State.UNCERTAIN])
    )
    is_open = Q(status__in=[Panel.Status.PUBLISHED, Panel.Status.PAUSED])
    lately = Q(reconciled_at=None) | Q(reconciled_at__lte=now - EVERY)
    return _with_platform(Panel.objects.filter(is_open | Q(pk__in=waits.order_by().values("pk")), lately))


def _with_platform(panels: QuerySet[Panel]) -> QuerySet[Panel]:
    panels = panels.exclude(external_id="")
    used = panels.order_by().values_list("platform", flat=True).distinct()
    asked = [name for name in used if Can.RECONCILE in platform_class(name).can]
    return panels.filter(platform__in=asked)


def run_reconciliation_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Look at each panel that is due, once. The runner of the kind JOB_KIND."""
    now = timezone.now()
    panels = list(due_panels(now).select_related("round__project"))
    for number, panel in enumerate(panels, start=1):
        with heartbeat.kept_alive():
            try:
                reconcile(panel, now)
            except DomainError as reason:  # one platform that is away must not delay the other panels
                logger.warning("Panel %s could not be reconciled: %s", panel.pk, reason)
                Panel.objects.filter(pk=panel.pk).update(reconciled_at=now, reconcile_error=str(reason)[:300])
        heartbeat(Progress("looking at panels", number, len(panels)))
    return lambda: ledger.delete_ended(JOB_KIND)
