"""The lines of the pay ledger: what is owed and what was paid, each written once, by its key.

Lines are added and never changed; the database refuses both (migration pay_is_append_only). What is owed no more is a
line of its own with a negative amount.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from kgharvest.audit.tables import AuditedTable
from kgharvest.contrib.recruiting.models import Panel, PanelEvent, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.events.recording import record

REWARD, SCREEN_OUT = "reward", "screen_out"  # the keys of the lines that follow from a submission's status
Purpose, Side = PayEntry.Purpose, PayEntry.Side
PAYMENTS = AuditedTable(
    PayEntry, "submission_id", "purpose", "key", "amount", "reason", "at", condition=Q(side=PayEntry.Side.PAID)
)


class ToldBy(TypedDict, total=False):
    """Which event, command or person a line follows from."""

    event: PanelEvent | None
    command: PlatformCommand | None
    by: Any


def owe(submission: Submission, purpose: str, key: str, amount: int, reason: str, **told: Unpack[ToldBy]) -> bool:
    """Note that the person is owed `amount`, in minor units; return False where a line of this key is there already.

    Call it in the transaction of what it follows from. amount: negative where a correction takes back what was owed.
    """
    return _add(submission, Side.OWED, purpose, key, amount, reason, **told)[1]


def record_paid(
    submission: Submission, purpose: str, key: str, amount: int, reason: str, **told: Unpack[ToldBy]
) -> bool:
    """Note that the person was paid; return False if there is a line with this key already, whoever wrote it."""
    line, is_new = _add(submission, Side.PAID, purpose, key, amount, reason, **told)
    if is_new:
        panel = submission.panel
        facts = {"panel": panel.name, "submission": submission.pk, "amount": money(amount, panel.currency)}
        record("pay.paid", line, told.get("by"), panel.project.pk, **facts, purpose=str(purpose))
    return is_new


def _add(
    submission: Submission, side: str, purpose: str, key: str, amount: int, reason: str, **told: Unpack[ToldBy]
) -> tuple[PayEntry, bool]:
    line = {"panel_id": submission.panel_id, "purpose": purpose, "amount": amount, "reason": reason, **told}
    return PayEntry.objects.get_or_create(submission=submission, side=side, key=key, defaults=line)


@transaction.atomic
def owe_in_all(submission: Submission, purpose: str, amount: int, reason: str, **told: Unpack[ToldBy]) -> bool:
    """Bring what is owed for a reward or for a screen-out to `amount`, by a line for what is missing or too much.

    Return False where it is so already. Whatever came before, in any order: a place that was completed, returned, and
    approved after all has the lines reward, reward:2 and reward:3.
    """
    Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=submission.pk)
    lines = submission.pay_entries.filter(side=Side.OWED, purpose=purpose)
    missing = amount - lines.owed()
    if not missing:
        return False
    n = lines.count()
    return owe(submission, purpose, f"{purpose}:{n + 1}" if n else str(purpose), missing, reason, **told)


class Balance(NamedTuple):
    """In minor units of the panel's currency."""

    owed: int = 0
    paid: int = 0

    @property
    def open(self) -> int:
        """What is still to be paid; negative where more was paid than is owed."""
        return self.owed - self.paid


def panel_balance(panel: Panel) -> Balance:
    return _balance(panel.pay_entries.all())


def submission_balance(submission: Submission, *purposes: str) -> Balance:
    """Return the balance of one taking part; of some purposes alone where they are named."""
    lines = submission.pay_entries.all()
    return _balance(lines.filter(purpose__in=purposes) if purposes else lines)


def _balance(lines: QuerySet[PayEntry]) -> Balance:
    sums = dict(lines.order_by().values_list("side").annotate(sum=Sum("amount")))
    return Balance(sums.get(Side.OWED, 0), sums.get(Side.PAID, 0))


def balances(panel: Panel) -> Mapping[int, Balance]:
    """Return the balance of each submission that has a line, by its id."""
    rows = panel.pay_entries.order_by().values_list("submission", "side").annotate(sum=Sum("amount"))
    sums: dict[int, dict[str, int]] = defaultdict(dict)
    for submission, side, amount in rows:
        sums[submission][side] = amount
    return {pk: Balance(of.get(Side.OWED, 0), of.get(Side.PAID, 0)) for pk, of in sums.items()}
