"""Outbox that delivers webhook events. Each event is delivered at least once. Failures are retried for 48 hours.

A delivery is a signed POST request to the resolved address. Redirects are not followed, and time and memory are
limited.
"""

import base64
import hashlib
import hmac
import http.client
import logging
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Timer
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.lookups import IsNull
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from kgharvest import VERSION
from kgharvest.events.recording import record as record_event
from kgharvest.jobs.outbox import Outbox, Outcome, Result
from kgharvest.models import Delivery, Webhook
from kgharvest.webhooks.addresses import BadAddress, Target, resolve
from kgharvest.webhooks.models import GIVE_UP_AFTER, OLD_SECRET_LASTS, secret_of

logger = logging.getLogger(__name__)

LOG_LASTS = timedelta(days=30)  # period for which completed deliveries are kept
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 10  # limit for the whole exchange, even if the response arrives slowly


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

        Failing webhooks come last, because each delivery can take ten seconds to fail again.
        """
        due = Delivery.objects.waiting().filter(next_try_at__lte=now, webhook__disabled_at=None)
        return due.order_by(IsNull(F("webhook__failing_since"), False), "next_try_at", "pk").select_related("webhook")

    def attempt(self, delivery: Delivery) -> Outcome:
        webhook, now = delivery.webhook, timezone.now()
        secrets = [webhook.secret]
        if webhook.old_secret_key and webhook.rotated_at and now < webhook.rotated_at + OLD_SECRET_LASTS:
            secrets.append(secret_of(webhook.old_secret_key))
        headers = headers_of(delivery.event, str(delivery.event_id), delivery.body, secrets, now)
        answer = post(webhook.url, delivery.body.encode(), headers)
        fields: dict[str, Any] = {"status": answer.status}
        if not answer.error:
            return Outcome(Result.DONE, fields=fields | {"delivered_at": timezone.now()})
        is_last = timezone.now() >= delivery.give_up_at
        return Outcome(Result.FAILED if is_last else Result.RETRY, answer.error, fields=fields)

    @transaction.atomic
    def record(self, delivery: Delivery, outcome: Outcome, now: datetime) -> None:
        """Store the outcome. Disable the webhook if all of its deliveries have failed for GIVE_UP_AFTER."""
        webhook = Webhook.objects.select_for_update(of=("self",), no_key=True).filter(pk=delivery.webhook_id).first()
        if webhook is None:  # the webhook was deleted in the meantime, together with the delivery
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
        """Mark expired deliveries to disabled webhooks as failed, and delete old log rows."""
        to_disabled = Delivery.objects.waiting().filter(give_up_at__lt=now, webhook__disabled_at__isnull=False)
        to_disabled.update(state=Delivery.State.FAILED)
        Delivery.objects.exclude(state=Delivery.State.WAITING).filter(created_at__lt=now - LOG_LASTS).delete()


outbox = DeliveryOutbox()


# Sending


class Answer(NamedTuple):
    """Result of a POST request. status: HTTP status, None without a response. error: a sentence, empty on success."""

    status: int | None
    error: str


def headers_of(event: str, event_id: str, body: str, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """Return the headers of a request, with one signature for each secret (whsec_...). now: current time in UTC."""
    timestamp = str(int(now.timestamp()))
    return {
        "Content-Type": "application/json",
        "User-Agent": f"kgharvest/{VERSION}",
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(Signer(_key(secret)).sign(event_id, now, body) for secret in secrets),
        # Deprecated headers, for receivers that predate the Standard Webhooks headers.
        "X-Kgharvest-Event": event,
        "X-Kgharvest-Event-Id": event_id,
        "X-Kgharvest-Timestamp": timestamp,
        "X-Kgharvest-Signature": ",".join(
            f"sha256={hmac.new(secret.encode(), f'{timestamp}.{body}'.encode(), hashlib.sha256).hexdigest()}"
            for secret in secrets
        ),
    }


def _key(secret: str) -> bytes:
    """Decode a secret. Older secrets are unpadded, URL-safe base64."""
    return base64.b64decode(secret.removeprefix("whsec_").replace("-", "+").replace("_", "/") + "==")


def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send `body` once. Any 2xx status is a success. Never raises an exception."""
    try:
        return _exchange(resolve(url), body, headers)
    except BadAddress as refusal:
        return Answer(None, str(refusal))
    except TimeoutError:
        return Answer(None, f"No response within {ANSWER_TIMEOUT_S} seconds.")
    except ssl.SSLError as error:
        return Answer(None, f"TLS failed: {error.reason or error}.")
    except socket.gaierror as error:
        return Answer(None, f"Cannot resolve the hostname: {error.strerror}.")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Answer(None, f"No response: {reason}.")


def _exchange(target: Target, body: bytes, headers: dict[str, str]) -> Answer:
    connection = _Connection(target)
    connection.connect()
    cut = Timer(ANSWER_TIMEOUT_S, connection.cut)
    cut.start()
    try:
        connection.request("POST", target.path, body, headers)
        status = connection.getresponse().status  # the body is not read
    except (OSError, http.client.HTTPException):
        if connection.was_cut:
            raise TimeoutError from None
        raise
    finally:
        cut.cancel()
        connection.close()
    if 200 <= status < 300:
        return Answer(status, "")
    if 300 <= status < 400:
        return Answer(status, f"Status {status}: redirects are not followed. Enter the final URL.")
    return Answer(status, f"Status {status}.")


class _Connection(http.client.HTTPConnection):
    """Connection to the resolved address, with TLS for the hostname."""

    def __init__(self, target: Target):
        super().__init__(target.host, target.port, timeout=ANSWER_TIMEOUT_S)
        self._target = target
        # http.client omits the default port from the Host header.
        self.default_port = 443 if target.scheme == "https" else 80
        self.was_cut = False

    def connect(self) -> None:
        self.sock = socket.create_connection((str(self._target.address), self.port), CONNECT_TIMEOUT_S)
        if self._target.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)
        self.sock.settimeout(ANSWER_TIMEOUT_S)

    def cut(self) -> None:
        self.was_cut = True
        if self.sock is not None:
            self.sock.shutdown(socket.SHUT_RDWR)
