"""Outbox of webhook deliveries: delivers each event at least once; retries failures for 48 hours."""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.lookups import IsNull
from django.utils import timezone

from kgharvest.events.recording import record as record_event
from kgharvest.jobs.outbox import Outbox, Outcome, Result
from kgharvest.models import Delivery, Webhook
from kgharvest.webhooks.models import GIVE_UP_AFTER
from kgharvest.webhooks.sending import headers_of, post

logger = logging.getLogger(__name__)

LOG_LASTS = timedelta(days=30)  # retention of completed deliveries


class DeliveryOutbox(Outbox):
    job_kind = "deliver_webhooks"
    model = Delivery
    stage = "sending webhooks"
    states = {
        Result.DONE: Delivery.State.DELIVERED,
        Result.RETRY: Delivery.State.WAITING,
        Result.FAILED: Delivery.State.FAILED,
    }
    rows_at_once = 8

    def due(self, now: datetime) -> QuerySet[Delivery]:
        """Return due deliveries to enabled webhooks, earliest first.

        Failing webhooks come last, as each delivery can take ten seconds to fail again.
        """
        due = Delivery.objects.waiting().filter(next_try_at__lte=now, webhook__disabled_at=None)
        return due.order_by(IsNull(F("webhook__failing_since"), False), "next_try_at", "pk").select_related("webhook")

    def attempt(self, delivery: Delivery) -> Outcome:
        now = timezone.now()
        secrets = delivery.webhook.secrets_at(now)
        headers = headers_of(delivery.event, str(delivery.event_id), delivery.body, secrets, now)
        answer = post(delivery.webhook.url, delivery.body.encode(), headers)
        fields: dict[str, Any] = {"status": answer.status}
        if answer.is_success:
            return Outcome(Result.DONE, fields=fields | {"delivered_at": timezone.now()})
        is_last = timezone.now() >= delivery.give_up_at
        return Outcome(Result.FAILED if is_last else Result.RETRY, answer.error, fields=fields)

    @transaction.atomic
    def record(self, delivery: Delivery, outcome: Outcome, now: datetime) -> None:
        """Store the outcome. Disable the webhook if all its deliveries have failed for GIVE_UP_AFTER."""
        webhook = Webhook.objects.select_for_update(of=("self",), no_key=True).filter(pk=delivery.webhook_id).first()
        if webhook is None:  # deleted in the meantime, together with the delivery
            return
        super().record(delivery, outcome, now)
        rows = Webhook.objects.filter(pk=webhook.pk)
        if outcome.result is Result.DONE:
            rows.exclude(failing_since=None).update(failing_since=None)
        elif webhook.failing_since is None:
            rows.update(failing_since=now)
        elif webhook.disabled_at is None and now - webhook.failing_since >= GIVE_UP_AFTER:
            rows.update(disabled_at=now)
            logger.warning("Webhook %s disabled: all deliveries failed for 48 hours.", webhook.pk)
            record_event("webhook.disabled", webhook, None, webhook.project_id, webhook=webhook.pk)

    def clean_up(self, now: datetime) -> None:
        """Mark expired deliveries to disabled webhooks as failed; delete old log rows."""
        to_disabled = Delivery.objects.waiting().filter(give_up_at__lt=now, webhook__disabled_at__isnull=False)
        to_disabled.update(state=Delivery.State.FAILED)
        Delivery.objects.exclude(state=Delivery.State.WAITING).filter(created_at__lt=now - LOG_LASTS).delete()


outbox = DeliveryOutbox()
