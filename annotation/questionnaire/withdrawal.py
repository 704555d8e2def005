"""Withdrawal from a round, by annotators or, at their request, by researchers.

The first transaction stores the decision and stops the annotator from judging. The judgments are then updated in
chunks. After an interruption, the same call or a periodic task resumes the withdrawal.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from annotation.invites.erasure import forget
from annotation.invites.recruitment import recruitment
from annotation.models import Annotator, Judgment, Round, StatementReport, Withdrawal
from annotation.quality.exclusion import BeingReinstated, exclude_annotator, reinstate_annotator
from annotation.questionnaire.questions import OnWithdrawal
from kgharvest.access import Action, check_may
from kgharvest.audit.tables import AuditedTable
from kgharvest.events.recording import record

WITHDRAWALS = AuditedTable(Withdrawal, "annotator__code", "on_withdrawal", "at")
REASON = "Withdrew their consent."
JUDGMENTS_AT_ONCE = 2000
INTERRUPTED_AFTER = timedelta(minutes=10)


def withdraw_annotator(annotator: Annotator, by=None) -> list[str]:
    """Withdraw an annotator according to the round's option `on_withdrawal`. Idempotent.

    Releases the annotator's place in a panel and erases the account link, name, invite, and questionnaire. Returns one
    sentence per platform id that remains stored for now, with the reason. by: None for the annotator. Raises
    NotAllowed.
    """
    check_may(by, Action.WORK, annotator.round.project)
    now = timezone.now()
    with transaction.atomic():
        recruitment().withdraw(annotator, now)
        Annotator.objects.lock(annotator.pk)
        round = Round.objects.get(pk=annotator.round_id)
        values = {"on_withdrawal": round.on_withdrawal, "by": by, "at": now}
        withdrawal, is_new = Withdrawal.objects.get_or_create(annotator=annotator, defaults=values)
        if is_new:
            what = OnWithdrawal(withdrawal.on_withdrawal).label
            Annotator.objects.filter(pk=annotator.pk).update(has_questions_left=True)  # stops further assignments
            action = "annotator.withdrawn" if by else "annotator.withdrew"
            record(action, withdrawal, by, round=round, annotator=annotator, what=what)
    if withdrawal.on_withdrawal == OnWithdrawal.DELETE:
        try:
            exclude_annotator(annotator, REASON, by)
        except BeingReinstated:  # finish the interrupted reinstatement first
            reinstate_annotator(annotator, by)
            exclude_annotator(annotator, REASON, by)
        StatementReport.objects.filter(annotator=annotator).exclude(comment="").update(comment="")
        commented = Judgment.objects.filter(annotator=annotator).exclude(comment="")
        while ids := list(commented.values_list("pk", flat=True)[:JUDGMENTS_AT_ONCE]):
            Judgment.objects.filter(pk__in=ids).update(comment="", sealed_in=None)  # sealed again without the text
    with transaction.atomic():
        recruitment().lock(annotator)
        annotator = Annotator.objects.lock(annotator.pk)
        forget(annotator, by)
        Withdrawal.objects.filter(pk=withdrawal.pk, done_at=None).update(done_at=now)
        return recruitment().forget(annotator)


def finish_withdrawals(now: datetime) -> None:
    """Finish interrupted withdrawals. Periodic task of every worker.

    Does not check permissions, because the user who entered the withdrawal may have left the project.
    """
    interrupted = Withdrawal.objects.filter(done_at=None, at__lte=now - INTERRUPTED_AFTER)
    for withdrawal in interrupted.select_related("annotator__round__project"):
        withdraw_annotator(withdrawal.annotator)
