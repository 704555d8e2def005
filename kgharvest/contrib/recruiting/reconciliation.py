"""Reconciliation: apply the platform's state to submissions and panels. Idempotent.

`apply_remote` is called for one submission after an event, and for all submissions of a panel during reconciliation.
States can arrive in any order. `RemoteSubmission.at` determines which state is newer.
"""

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
from kgharvest.contrib.recruiting.platforms import PLATFORMS, RemoteSubmission, platform_of
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.jobs import ledger
from kgharvest.models import Job

logger = logging.getLogger(__name__)

JOB_KIND = "panel_reconciliation"
EVERY = timedelta(minutes=5)  # interval between reconciliations of a panel

Status = Submission.Status


@transaction.atomic
def apply_remote(panel: Panel, remote: RemoteSubmission, now: datetime, event: PanelEvent | None = None) -> bool:
    """Apply the platform's state to the submission. Return whether anything changed.

    Records payments, and settles commands whose payment was uncertain. now: time to use if the platform does not state
    one. A participant who never opened the entry link has no submission here. A submission is then created only if the
    platform reports the participation as completed or approved.
    """
    submission = _submission_of(panel, remote, now)
    at = remote.at or now
    if submission is None or (submission.platform_status_at and submission.platform_status_at > at):
        return False
    previous_platform_status = submission.platform_status
    moved = _move(submission, remote, at)
    Submission.objects.filter(pk=submission.pk).update(
        platform_status=remote.platform_status[:30],
        platform_status_at=at,
        approves_itself_at=remote.approves_itself_at,
    )
    n_entries = submission.pay_entries.count()
    _note_pay(submission, remote, at, event)
    if moved:
        facts = {"submission": submission.pk, "panel": panel.name, "status": submission.status}
        record("submission.moved", submission, None, round=panel.round, annotator=submission.annotator, **facts)
    return moved or previous_platform_status != remote.platform_status or submission.pay_entries.count() != n_entries


def _submission_of(panel: Panel, remote: RemoteSubmission, now: datetime) -> Submission | None:
    """Lock and return the submission.

    Create it if the participant finished on the platform without opening the entry link.
    """
    submissions = panel.submissions.select_for_update(of=("self",), no_key=True)
    digests = [digest(name) for name in (remote.session, remote.participant) if name]
    submission = (
        submissions.filter(session_digest=digests[0]).first() or submissions.filter(session_digest__in=digests).first()
    )
    if submission is not None or remote.status not in (Status.COMPLETED, Status.APPROVED):
        return submission
    if submissions.filter(session_digest=forgotten(digests[0])).exists():  # the participant's ids were erased
        return None
    try:
        with transaction.atomic():
            return panel.submissions.create(
                participant=encrypted(remote.participant),
                participant_digest=digest(remote.participant),
                session=encrypted(remote.session),
                session_digest=digest(remote.session),
                entered_at=remote.at or now,
            )
    except IntegrityError:  # the participant holds a place with another session id, and only that submission counts
        return None


def _move(submission: Submission, remote: RemoteSubmission, at: datetime) -> bool:
    """Apply the platform's status, unless the submission's own status is more specific.

    Return whether the status changed.
    """
    before, status = Status(submission.status), remote.status
    if before == status or status == Status.ACTIVE:
        return False
    # The submission may have ended here without the platform knowing it. A completion on the platform replaces this end
    # only if the platform itself had reported the end.
    if status == Status.COMPLETED and before in Submission.ENDED:
        if submission.platform_status.casefold().replace("-", " ") != before:
            return False
    elif before == Status.SCREENED_OUT and status in (Status.RETURNED, Status.TIMED_OUT):
        return False
    if status in Submission.HOLDING and holds_another_place(submission):
        logger.warning("Submission %s is %s, but its participant holds another place.", submission.pk, status)
        return False
    if status in (Status.COMPLETED, Status.APPROVED):
        return move(submission, before, to=status, ended_at=None if status == Status.COMPLETED else at)
    if before in (Status.ACTIVE, Status.COMPLETED):
        return leave(submission, status, at)
    return move(submission, before, to=status, ended_at=at)


def _note_pay(submission: Submission, remote: RemoteSubmission, at: datetime, event: PanelEvent | None) -> None:
    """Record the amounts owed and paid that follow from the submission's status and the platform's payments.

    An approval on the platform counts as a payment, even if the participant now holds another place here.
    """
    panel, paid = submission.panel, remote.reward_paid
    status = remote.status if remote.status in (submission.status, Status.APPROVED) else None
    if status == Status.APPROVED:
        if not pay.balance_of(submission, pay.Purpose.REWARD).owed:
            pay.owe_in_all(submission, pay.Purpose.REWARD, panel.reward, "The platform approved it.", event=event)
        if paid:
            pay.record_paid(submission, pay.Purpose.REWARD, pay.REWARD, paid, "Approved.", event=event)
        # This settles bulk approvals. It also settles repeated approvals, which the platform rejects if an earlier
        # approval succeeded.
        decision = submission.commands.exclude(kind=PlatformCommand.Kind.BONUS).order_by("-pk").first()
        if decision is not None and decision.kind == PlatformCommand.Kind.APPROVE and paid is not None:
            settle(decision, True, at)
    elif status == Status.SCREENED_OUT:
        owed = paid or panel.screen_out_reward
        pay.owe_in_all(submission, pay.Purpose.SCREEN_OUT, owed, "Screened out.", event=event)
        if paid:
            pay.record_paid(submission, pay.Purpose.SCREEN_OUT, pay.SCREEN_OUT, paid, "Screened out.", event=event)
    elif status == Status.COMPLETED and submission.completed_at:
        pay.owe_in_all(submission, pay.Purpose.REWARD, panel.reward, "All statements of the place were judged.")
    if status in (Status.RETURNED, Status.REJECTED, Status.SCREENED_OUT):
        pay.owe_in_all(submission, pay.Purpose.REWARD, 0, f"Status on the platform: {status}.", event=event)
    if remote.paid_bonuses is not None:
        _match_bonuses(submission, remote.paid_bonuses, at, event)


def _match_bonuses(submission: Submission, paid: Sequence[int], at: datetime, event: PanelEvent | None) -> None:
    """Match each bonus payment on the platform to a command.

    A payment without a command was made manually on the platform.

    A payment that the platform does not show may still be in progress, so it is not retried here. A researcher decides
    whether to retry it (`settle_by_hand`).
    """
    entries = submission.pay_entries.filter(side=pay.Side.PAID, purpose=pay.Purpose.BONUS)
    unexplained = Counter(paid) - Counter(entries.values_list("amount", flat=True))
    bonuses = submission.commands.filter(kind=PlatformCommand.Kind.BONUS)
    # Refused bonuses are matched, too, because somebody may have paid them manually on the platform. Bonuses that were
    # never sent (n_tries is 0) are not matched, because they are still due.
    for command in bonuses.exclude(state=PlatformCommand.State.DONE).exclude(n_tries=0):
        if unexplained[command.amount] > 0:
            unexplained[command.amount] -= 1
            settle(command, True, at)
    for amount in unexplained.elements():
        n = entries.filter(amount=amount, command=None).count() + 1
        key = f"bonus:there:{amount}:{n}"
        pay.record_paid(submission, pay.Purpose.BONUS, key, amount, "Bonus paid on the platform.", event=event)


def reconcile(panel: Panel, now: datetime) -> int:
    """Apply the platform's state of all submissions. Return the number of changed submissions.

    Raises PlatformRefused or PlatformUnavailable. Must not be called in a transaction.
    """
    platform = platform_of(panel)
    submissions = {submission.session_digest: submission for submission in panel.submissions.all()}
    entries = panel.pay_entries.filter(side=pay.Side.PAID, purpose=pay.Purpose.BONUS)
    paid_bonuses: dict[int, list[int]] = defaultdict(list)
    for pk, amount in entries.values_list("submission", "amount"):
        paid_bonuses[pk].append(amount)
    n_changed = 0
    for remote in platform.submissions():
        submission = submissions.get(digest(remote.session))
        is_up_to_date = (  # skip submissions without changes, so that most submissions need no transaction
            submission is not None
            and submission.platform_status == remote.platform_status
            and submission.approves_itself_at == remote.approves_itself_at
            and remote.status in (submission.status, Status.ACTIVE)
            and (remote.paid_bonuses is None or sorted(remote.paid_bonuses) == sorted(paid_bonuses[submission.pk]))
        )
        n_changed += not is_up_to_date and apply_remote(panel, remote, now)
    apply_status(panel, platform.status(), now)
    Panel.objects.filter(pk=panel.pk).update(reconciled_at=now, reconcile_error="")
    return n_changed


@transaction.atomic
def apply_status(panel: Panel, status: str | None, now: datetime) -> bool:
    """Pause or stop the panel if its study was paused or stopped on the platform. Return whether the panel changed."""
    changes = {
        Panel.Status.PAUSED: ([Panel.Status.PUBLISHED], "Paused on the platform."),
        Panel.Status.STOPPED: ([Panel.Status.PUBLISHED, Panel.Status.PAUSED], "Ended on the platform."),
    }
    if status not in changes:
        return False
    before, reason = changes[Panel.Status(status)]
    if not Panel.objects.filter(pk=panel.pk, status__in=before).update(status=status, ended_reason=reason):
        return False
    record("panel.moved", panel, None, round=panel.round, panel=panel.name, status=str(status), why=reason)
    return True


def ask_reconciliation(panel: Panel, by=None) -> None:
    """Queue a reconciliation of the panel, which starts within seconds. Raises NotAllowed or CannotReconcile."""
    check_may(by, Action.WORK, panel.project)
    if not _with_study().filter(pk=panel.pk).update(reconciled_at=None):
        raise DomainError("CannotReconcile", f"Panel {panel.name} has no study on a platform. Publish it first.")
    enqueue_due_reconciliations(timezone.now())


def enqueue_due_reconciliations(now: datetime) -> None:
    """Queue a reconciliation job if any panel is due. A periodic task of every worker."""
    if due_panels(now).exists():
        ledger.enqueue_once(JOB_KIND)


def due_panels(now: datetime) -> QuerySet[Panel]:
    """Return the panels to reconcile: panels that can have changed and were not reconciled within the last EVERY.

    A panel can change if it has a study and is open, or has unfinished submissions or commands.
    """
    pending = Panel.objects.filter(
        Q(submissions__status__in=[Status.ACTIVE, Status.COMPLETED])
        | Q(submissions__commands__state__in=[PlatformCommand.State.WAITING, PlatformCommand.State.UNCERTAIN])
    )
    is_open = Q(status__in=[Panel.Status.PUBLISHED, Panel.Status.PAUSED])
    is_due = Q(reconciled_at=None) | Q(reconciled_at__lte=now - EVERY)
    return _with_study().filter(is_open | Q(pk__in=pending.order_by().values("pk")), is_due)


def _with_study() -> QuerySet[Panel]:
    return Panel.objects.filter(platform__in=list(PLATFORMS)).exclude(external_id="")


def run_reconciliation_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Reconcile each due panel once. Runs jobs of JOB_KIND."""
    now = timezone.now()
    panels = list(due_panels(now).select_related("round__project"))
    for number, panel in enumerate(panels, start=1):
        with heartbeat.kept_alive():
            try:
                reconcile(panel, now)
            except DomainError as reason:  # an unavailable platform must not delay the other panels
                logger.warning("Reconciling panel %s failed: %s", panel.pk, reason)
                Panel.objects.filter(pk=panel.pk).update(reconciled_at=now, reconcile_error=str(reason)[:300])
        heartbeat(Progress("reconciling panels", number, len(panels)))
    return lambda: ledger.delete_ended(JOB_KIND)
