"""Webhooks of projects, and the outbox of their deliveries."""

from __future__ import annotations

import base64
import secrets
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import models
from django.db.models import Q
from django.utils.crypto import salted_hmac

from kgharvest.accounts.models import person_or_null
from kgharvest.audit.tables import canonical_json

TEST = "test"  # the topic of test events
GIVE_UP_AFTER = timedelta(hours=48)
OLD_SECRET_LASTS = timedelta(hours=24)
STANDARD = "std:"  # prefix of secret keys whose secret is in standard base64, as Standard Webhooks libraries require
SECRET_SALT = "kgharvest.webhooks.secret"  # noqa: S105 (a salt, not a secret)


def new_secret_key() -> str:
    return STANDARD + secrets.token_hex(14)


class Webhook(models.Model):
    """A URL to which events of a project are sent.

    secret_key: key from which, together with SECRET_KEY, the signing secret is derived. A copy of the database is
    therefore not enough to forge signatures. old_secret_key: previous key, with which messages are also signed until
    OLD_SECRET_LASTS after rotated_at. failing_since: time of the first failure since the last success. disabled_at:
    time when a user disabled the webhook, or when deliveries had failed for GIVE_UP_AFTER.
    """

    project_id = models.BigIntegerField(db_index=True)
    url = models.URLField(max_length=500)
    events = models.JSONField()
    secret_key = models.CharField(max_length=32, default=new_secret_key, editable=False)
    old_secret_key = models.CharField(max_length=32, blank=True, editable=False)
    rotated_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True)
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["project_id", "url"], name="webhook_project_url_unique")]

    def __str__(self) -> str:
        return self.url

    @property
    def is_disabled_by_failures(self) -> bool:
        return self.disabled_at is not None and self.failing_since is not None

    @property
    def secret(self) -> str:
        """The signing secret. Pages and API show it only once, after it was created."""
        return secret_of(self.secret_key)


def secret_of(secret_key: str) -> str:
    """Return the secret derived from a key, in the form shown to the owner.

    Secrets of older keys, without the prefix STANDARD, must not change. They are unpadded, URL-safe base64.
    """
    digest = salted_hmac(SECRET_SALT, secret_key, algorithm="sha256").digest()
    if secret_key.startswith(STANDARD):
        return f"whsec_{base64.b64encode(digest).decode()}"
    return f"whsec_{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


class DeliveryQuerySet(models.QuerySet):
    def waiting(self):
        return self.filter(state=Delivery.State.WAITING)


class Delivery(models.Model):
    """Delivery of one event to one webhook. It is a row of the outbox, written in the transaction of the event.

    event_id: id that is the same for all attempts, so that receivers can detect duplicates. body: request body, byte
    for byte. next_try_at: time of the next attempt while the delivery is pending. give_up_at: an attempt that fails at
    or after this time is the last attempt. status: HTTP status of the last attempt; None without a response. error:
    reason of the last failure, one sentence.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        FAILED = "failed"

    event_id = models.UUIDField(unique=True, default=uuid4, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=30)
    body = models.TextField()
    state = models.CharField(max_length=9, choices=State, default=State.WAITING)
    n_tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField()
    next_try_at = models.DateTimeField()
    give_up_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True, blank=True)
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    error = models.CharField(max_length=300, blank=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "delivered", "failed"]), name="delivery_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state="delivered", delivered_at__isnull=False)
                | ~Q(state="delivered") & Q(delivered_at__isnull=True),
                name="delivery_delivered_at_a_time",
            ),
        ]
        indexes = [models.Index(fields=["next_try_at"], condition=Q(state="waiting"), name="delivery_waiting")]

    def __str__(self) -> str:
        return f"{self.event} {self.event_id}"

    @classmethod
    def about(cls, webhook: Webhook, topic: str, facts: dict[str, Any], at: datetime) -> Delivery:
        """Return an unsaved delivery that is due now. facts: JSON values, with codes instead of names of people."""
        event_id = uuid4()
        body = {"id": event_id, "event": topic, "at": at, "project": webhook.project_id, "facts": facts}
        times = {"created_at": at, "next_try_at": at, "give_up_at": at + GIVE_UP_AFTER}
        return cls(event_id=event_id, webhook=webhook, event=topic, body=canonical_json(body), **times)
