"""Deliver what is in the outbox: a job sends until nothing is due, and what fails again until it is 48 hours old.

A try is counted and the next one set before it is made, so that a sender that is killed at any line leaves an event
that will be sent again. Receivers may get one twice, never none.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from kgharvest.audit.trail import record
from kgharvest.engine.types import Progress
from kgharvest.jobs import ledger
from kgharvest.models import Delivery, Job, Webhook
from kgharvest.webhooks.models import GIVE_UP_AFTER
from kgharvest.webhooks.sending import Answer, headers_of, post

logger = logging.getLogger(__name__)

JOB_KIND = "deliver_webhooks"
SENT_AT_ONCE = 8
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 3600.0  # between two tries
LOG_LASTS = timedelta(days=30)  # of what is delivered or given up


def enqueue_due_deliveries(now: datetime) -> None:
    """Queue the job that sends what is due, unless there is one. A periodic task of every worker."""
    if Delivery.objects.due(now).exists():
        ledger.enqueue_once(JOB_KIND)


def run_delivery_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Send until nothing is due. The runner of the kind JOB_KIND; one job at a time, by its unique key."""
    n_sent = 0
    while deliveries := start_tries(timezone.now()):
        with heartbeat.kept_alive():
            send(deliveries)
        n_sent += len(deliveries)
        heartbeat(Progress("sending webhooks", n_sent, None))
    return forget_old


def start_tries(now: datetime) -> list[Delivery]:
    """Return what is due, at most SENT_AT_ONCE, each with its try counted and its next one set."""
    due = list(Delivery.objects.due(now).select_related("webhook")[:SENT_AT_ONCE])
    for delivery in due:
        delivery.n_tries += 1
        Delivery.objects.filter(pk=delivery.pk).update(
            n_tries=F("n_tries") + 1, next_try_at=now + wait_after(delivery.n_tries)
        )
    return due


def wait_after(n_tries: int) -> timedelta:
    """Return how long to wait after so many tries: twice as long each time up to an hour, half to all of it by chance.

    Chance, so that what failed together is not tried together.
    """
    longest = min(FIRST_WAIT_S * 2.0 ** min(n_tries - 1, 30), LONGEST_WAIT_S)
    return timedelta(seconds=longest * random.uniform(0.5, 1))


def send(deliveries: Sequence[Delivery]) -> None:
    """Make one try of each, at the same time; store how each went."""
    with ThreadPoolExecutor(SENT_AT_ONCE) as pool:
        for delivery, answer in zip(deliveries, pool.map(_try_once, deliveries), strict=True):
            _store(delivery, answer, timezone.now())


def _try_once(delivery: Delivery) -> Answer:
    """Send it, in a thread without a connection to the database."""
    now, body = timezone.now(), delivery.body.encode()
    secrets = delivery.webhook.secrets_at(now)
    return post(delivery.webhook.url, body, headers_of(delivery.event, str(delivery.event_id), body, secrets, now))


@transaction.atomic
def _store(delivery: Delivery, answer: Answer, now: datetime) -> None:
    fields: dict[str, Any] = {"status": answer.status, "error": answer.error[:300]}
    webhook = Webhook.objects.select_for_update(of=("self",), no_key=True).filter(pk=delivery.webhook_id).first()
    if webhook is None:  # deleted meanwhile, and the delivery with it
        return
    if answer.is_success:
        fields |= {"state": Delivery.State.DELIVERED, "delivered_at": now}
        Webhook.objects.filter(pk=webhook.pk).exclude(failing_since=None).update(failing_since=None)
    elif now >= delivery.give_up_at:
        fields |= {"state": Delivery.State.FAILED}
    Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.WAITING).update(**fields)
    if answer.is_success:
        return
    if webhook.failing_since is None:
        Webhook.objects.filter(pk=webhook.pk).update(failing_since=now)
    elif webhook.disabled_at is None and now - webhook.failing_since >= GIVE_UP_AFTER:
        Webhook.objects.filter(pk=webhook.pk).update(disabled_at=now)
        logger.warning("Webhook %s is disabled: everything sent to it for 48 hours failed.", webhook.pk)
        record("webhook.disabled", webhook, None, webhook.project_id, webhook=webhook.pk)


def forget_old() -> None:
    """Delete what the log need not show any more, and the jobs that sent it; give up what no webhook takes."""
    now = timezone.now()
    Delivery.objects.waiting().filter(give_up_at__lt=now, webhook__disabled_at__isnull=False).update(
        state=Delivery.State.FAILED
    )
    Delivery.objects.exclude(state=Delivery.State.WAITING).filter(created_at__lt=now - LOG_LASTS).delete()
    ledger.delete_ended(JOB_KIND)
