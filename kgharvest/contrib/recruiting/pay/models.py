"""The pay ledger: what each person is owed and was paid, and what a platform was asked to do about it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q, Sum
from django.utils import timezone

from kgharvest.contrib.recruiting.events.models import PanelEvent
from kgharvest.contrib.recruiting.panels.models import Panel, Submission

LONGEST_MESSAGE = 2000


class PlatformCommandQuerySet(models.QuerySet):
    def waiting(self):
        return self.filter(state=PlatformCommand.State.WAITING)

    def unfinished(self):
        return self.filter(state__in=[PlatformCommand.State.WAITING, PlatformCommand.State.UNCERTAIN])


class PlatformCommand(models.Model):
    """Something that a platform is to do about one submission, once, whoever asks for it and however often.

    key: names it within its submission, such as "approve" or "bonus:floor"; the same one is made once. amount: of a
    bonus, in minor units of the panel's currency. message, category: what a rejected person reads, and the platform's
    reason. external_id: of a payment that is set up and not yet asked to be paid.

    UNCERTAIN: it was sent and no answer came, and sending it again could pay twice. Reconciliation finds out; until
    then nothing is sent.
    """

    class Kind(models.TextChoices):
        APPROVE = "approve"
        REJECT = "reject"
        RETURN = "return", "ask to return"
        SCREEN_OUT = "screen_out", "screen out"
        BONUS = "bonus"

    class State(models.TextChoices):
        WAITING = "waiting"
        DONE = "done"
        UNCERTAIN = "uncertain"
        FAILED = "failed"

    submission = models.ForeignKey(Submission, on_delete=models.PROTECT, related_name="commands")
    kind = models.CharField(max_length=10, choices=Kind)
    key = models.CharField(max_length=100)
    amount = models.PositiveIntegerField(default=0)
    message = models.TextField(blank=True, max_length=LONGEST_MESSAGE)
    category = models.CharField(max_length=50, blank=True)
    state = models.CharField(max_length=9, choices=State, default=State.WAITING)
    external_id = models.CharField(max_length=100, blank=True)
    n_tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(default=timezone.now)
    error = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    done_at = models.DateTimeField(null=True, blank=True)

    objects = PlatformCommandQuerySet.as_manager()

    class Meta:
        db_table = "annotation_platformcommand"
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["submission", "key"], name="platform_command_key_unique"),
            models.UniqueConstraint(
                fields=["submission"],
                condition=Q(kind__in=["approve", "reject", "return", "screen_out"], state__in=["waiting", "done"]),
                name="platform_command_ends_a_submission_once",
            ),
        ]
        indexes = [models.Index(fields=["next_try_at"], condition=Q(state="waiting"), name="platform_command_due")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class PayEntryQuerySet(models.QuerySet):
    def owed(self) -> int:
        return self._sum(PayEntry.Side.OWED)

    def paid(self) -> int:
        return self._sum(PayEntry.Side.PAID)

    def _sum(self, side: str) -> int:
        return self.filter(side=side).aggregate(sum=Sum("amount", default=0))["sum"]


class PayEntry(models.Model):
    """A line of the ledger. Lines are added, never changed or deleted; a correction is a line of its own.

    key: names the line within its submission and side, such as "reward" or "bonus:floor"; the same one is written once,
    whichever event, command or person tells of it first. amount: in minor units of the panel's currency, negative where
    a correction takes back what was owed. reason: a sentence. event, command: which of them told.
    """

    class Side(models.TextChoices):
        OWED = "owed"
        PAID = "paid"

    class Purpose(models.TextChoices):
        REWARD = "reward"
        SCREEN_OUT = "screen_out", "for whom a check turned away"
        BONUS = "bonus"

    panel = models.ForeignKey(Panel, on_delete=models.PROTECT, related_name="pay_entries")
    submission = models.ForeignKey(Submission, on_delete=models.PROTECT, related_name="pay_entries")
    side = models.CharField(max_length=4, choices=Side)
    purpose = models.CharField(max_length=10, choices=Purpose)
    key = models.CharField(max_length=100)
    amount = models.IntegerField()
    reason = models.CharField(max_length=500)
    event = models.ForeignKey(PanelEvent, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    command = models.ForeignKey(PlatformCommand, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    at = models.DateTimeField(default=timezone.now)

    objects = PayEntryQuerySet.as_manager()

    class Meta:
        db_table = "annotation_payentry"
        ordering = ["pk"]
        verbose_name_plural = "pay entries"
        constraints = [models.UniqueConstraint(fields=["submission", "side", "key"], name="pay_entry_key_unique")]

    def __str__(self) -> str:
        return f"{self.side} {self.amount} ({self.key})"
