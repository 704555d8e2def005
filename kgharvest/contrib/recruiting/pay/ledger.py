"""Pay ledger: amounts owed and paid. Each entry has a unique key, so it is written only once.

Entries are append-only. The database enforces this (migration pay_is_append_only). A correction is a new entry with a
negative amount.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q, Sum

from kgharvest.audit.tables import AuditedTable
from kgharvest.contrib.recruiting.models import Panel, PayEntry, Submission
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.events.recording import record

REWARD, SCREEN_OUT = "reward", "screen_out"  # keys of the entries that follow from a submission's status
Purpose, Side = PayEntry.Purpose, PayEntry.Side
SUMS = {side.value: Sum("amount", filter=Q(side=side), default=0) for side in Side}  # names of the fields of Balance
COLUMNS = ("submission_id", "purpose", "key", "amount", "reason", "at")
PAYMENTS = AuditedTable(PayEntry, *COLUMNS, condition=Q(side=Side.PAID))
DEBTS = AuditedTable(PayEntry, *COLUMNS, condition=Q(side=Side.OWED))


def owe(submission: Submission, purpose: str, key: str, amount: int, reason: str, **source: Any) -> bool:
    """Record an amount owed, in minor units. Return False if an entry with this key exists.

    Call it in the transaction that stores the cause of the entry. amount: negative for a correction. source: event,
    command, or user (`by`) that caused the entry.
    """
    return _add_and_record("pay.owed", submission, Side.OWED, purpose, key, amount, reason, **source)


def record_paid(submission: Submission, purpose: str, key: str, amount: int, reason: str, **source: Any) -> bool:
    """Record a payment, in minor units. Return False if an entry with this key exists, from any source."""
    return _add_and_record("pay.paid", submission, Side.PAID, purpose, key, amount, reason, **source)


def _add_and_record(
    action: str, submission: Submission, side: str, purpose: str, key: str, amount: int, reason: str, **source: Any
) -> bool:
    fields = {"panel_id": submission.panel_id, "purpose": purpose, "amount": amount, "reason": reason, **source}
    entry, is_new = PayEntry.objects.get_or_create(submission=submission, side=side, key=key, defaults=fields)
    if is_new:
        panel = submission.panel
        facts = {"panel": panel.name, "submission": submission.pk, "amount": money(amount, panel.currency)}
        record(action, entry, source.get("by"), panel.project.pk, **facts, purpose=str(purpose))
    return is_new


@transaction.atomic
def owe_in_all(submission: Submission, purpose: str, amount: int, reason: str, **source: Any) -> bool:
    """Change the total owed for a reward or screen-out to `amount`, by an entry for the difference, if there is any.

    Return whether an entry was written. Earlier entries are not changed: a place that was completed, returned, and
    finally approved has the entries reward, reward:2, and reward:3.
    """
    Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=submission.pk)
    difference = amount - balance_of(submission, purpose).owed
    if not difference:
        return False
    n = submission.pay_entries.filter(side=Side.OWED, purpose=purpose).count()
    return owe(submission, purpose, f"{purpose}:{n + 1}" if n else str(purpose), difference, reason, **source)


class Balance(NamedTuple):
    """Amounts in minor units of the panel's currency."""

    owed: int = 0
    paid: int = 0

    @property
    def open(self) -> int:
        """The outstanding amount. It is negative if more was paid than is owed."""
        return self.owed - self.paid


def balance_of(owner: Panel | Submission, *purposes: str) -> Balance:
    """Return the balance of a panel or submission, optionally restricted to some purposes."""
    return Balance(**owner.pay_entries.filter(Q(purpose__in=purposes) if purposes else Q()).aggregate(**SUMS))


def balances(panel: Panel) -> Mapping[int, Balance]:
    """Return balances by submission id. Submissions without entries are absent."""
    rows = panel.pay_entries.order_by().values_list("submission").annotate(**SUMS)
    return {pk: Balance(owed, paid) for pk, owed, paid in rows}
