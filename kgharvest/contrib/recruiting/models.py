"""Events from platforms, commands to platforms, and the pay ledger.

The module `panels.models` contains panels and submissions.
"""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from kgharvest.accounts.models import person_or_null
from kgharvest.contrib.recruiting.panels.identifiers import decrypted
from kgharvest.contrib.recruiting.panels.models import Panel, Platform, Submission

__all__ = ["Panel", "PanelEvent", "PayEntry", "Platform", "PlatformCommand", "Submission"]

LONGEST_MESSAGE = 2000  # maximum number of characters


class PanelEventQuerySet(models.QuerySet):
    def waiting(self):
        return self.filter(handled_at=None)


class PanelEvent(models.Model):
    """Event received from a platform. The event is stored before it is acknowledged, and a job handles it later.

    body: body of the request, encrypted because it contains participant ids. event_id: id assigned by the platform,
    unique per platform. event_type: the platform's name for the type. next_try_at: time of the next attempt to handle
    it. error: error message of the last attempt, without ids. outcome: result of handling the event, in a few words.
    """

    platform = models.CharField(max_length=8, choices=Platform)
    event_id = models.CharField(max_length=200)
    event_type = models.CharField(max_length=100, blank=True)
    body = models.TextField()
    received_at = models.DateTimeField(default=timezone.now)
    handled_at = models.DateTimeField(null=True, blank=True)
    n_tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(default=timezone.now)
    outcome = models.CharField(max_length=30, blank=True)
    error = models.CharField(max_length=300, blank=True)

    objects = PanelEventQuerySet.as_manager()

    class Meta:
        db_table = "annotation_panelevent"
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["platform", "event_id"], name="panel_event_id_unique")]
        indexes = [models.Index(fields=["next_try_at"], condition=Q(handled_at=None), name="panel_event_due")]

    def __str__(self) -> str:
        return f"{self.platform} event {self.pk}"

    @property
    def text(self) -> str:
        """The decrypted body. Raises Unreadable."""
        return decrypted(self.body)


class PlatformCommandQuerySet(models.QuerySet):
    def waiting(self):
        return self.filter(state=PlatformCommand.State.WAITING)

    def unfinished(self):
        return self.filter(state__in=[PlatformCommand.State.WAITING, PlatformCommand.State.UNCERTAIN])


class PlatformCommand(models.Model):
    """Request to a platform about one submission.

    A command with a given key is executed only once, however often it is requested.

    key: unique within the submission, for example "approve" or "bonus:floor:1". amount: bonus in minor units.
    message, category: explanation and platform category of a rejection; the participant reads the message.
    external_id: id of a payment that is set up but not yet sent.

    The state UNCERTAIN means that the request was sent but not answered. A retry could pay twice, so nothing is sent
    until reconciliation determines whether the payment was made.
    """

    class Kind(models.TextChoices):
        APPROVE = "approve"
        REJECT = "reject"
        RETURN = "return", "request return"
        SCREEN_OUT = "screen_out", "screen out"
        BONUS = "bonus"

    class State(models.TextChoices):
        WAITING = "waiting", "pending"
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
    created_by = person_or_null()
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


class PayEntry(models.Model):
    """Entry of a pay ledger. Entries are never changed or deleted; a correction is a new entry.

    key: unique within submission and side, for example "reward" or "bonus:floor:1". The key ensures that an entry is
    written only once, even if several events, commands, or people report it. amount: amount in minor units of the
    panel's currency, negative for a correction that reduces the amount owed. reason: a sentence. event, command: source
    of the entry.
    """

    class Side(models.TextChoices):
        OWED = "owed"
        PAID = "paid"

    class Purpose(models.TextChoices):
        REWARD = "reward"
        SCREEN_OUT = "screen_out", "screen-out"
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
    by = person_or_null()
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "annotation_payentry"
        ordering = ["pk"]
        verbose_name_plural = "pay entries"
        constraints = [models.UniqueConstraint(fields=["submission", "side", "key"], name="pay_entry_key_unique")]

    def __str__(self) -> str:
        return f"{self.side} {self.amount} ({self.key})"
