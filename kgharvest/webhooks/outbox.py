"""Webhooks of a project: create, change, disable and test them.

`record` of kgharvest.events.recording enqueues deliveries, and kgharvest.webhooks.delivery sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction
from django.utils import timezone

from kgharvest.access import Action, check_may
from kgharvest.accounts.models import Project
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.events.types import TOPICS
from kgharvest.webhooks.addresses import BadAddress, resolve
from kgharvest.webhooks.models import GIVE_UP_AFTER, TEST, Delivery, Webhook, new_secret_key, secret_of

MOST_WEBHOOKS = 20  # of a project


class NewSecret(NamedTuple):
    """A webhook, and its secret, which is shown this once."""

    webhook: Webhook
    secret: str


def send_test(webhook: Webhook, by=None) -> Delivery:
    """Put a test event into the outbox of one webhook. Raises NotAllowed, WebhookDisabled."""
    _check_may_manage(webhook.project_id, by)
    if webhook.disabled_at is not None:
        raise DomainError("WebhookDisabled", f"{webhook.url} is disabled; enable it first.")
    facts = {"message": "This is a test of the webhook; nothing has happened."}
    delivery = Delivery.about(webhook, TEST, facts, timezone.now())
    delivery.save()
    return delivery


def send_again(delivery: Delivery, by=None) -> None:
    """Try an event at once that waits or was given up, for another 48 hours. Raises NotAllowed, WebhookDisabled."""
    _check_may_manage(delivery.webhook.project_id, by)
    if delivery.webhook.disabled_at is not None:
        raise DomainError("WebhookDisabled", f"{delivery.webhook.url} is disabled; enable it first.")
    now = timezone.now()
    again = {"state": Delivery.State.WAITING, "next_try_at": now, "give_up_at": now + GIVE_UP_AFTER}
    Delivery.objects.filter(pk=delivery.pk).exclude(state=Delivery.State.DELIVERED).update(**again)


# -- webhooks ----------------------------------------------------------------------------------------------------------


def create_webhook(project_id: int, url: str, events: Sequence[str], by=None) -> NewSecret:
    """Make a webhook. Raises NotAllowed, BadAddress, BadWebhook."""
    _check_may_manage(project_id, by)
    _check(url, events)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project_id)  # webhooks made at once are counted in turns
        if Webhook.objects.filter(project_id=project_id).count() >= MOST_WEBHOOKS:
            raise DomainError(
                "BadWebhook", f"A project has at most {MOST_WEBHOOKS} webhooks; delete one that nobody needs."
            )
        webhook = _save(Webhook(project_id=project_id, url=url, events=sorted(events), created_by=by))
        _record("made", webhook, by, events=webhook.events)
    return NewSecret(webhook, secret_of(webhook.secret_key))


def edit_webhook(webhook: Webhook, url: str, events: Sequence[str], by=None) -> None:
    """Give a webhook another address or other events. What waits goes to the new address. Raises as create_webhook."""
    _check_may_manage(webhook.project_id, by)
    _check(url, events)
    with transaction.atomic():
        locked = _lock(webhook)
        locked.url, locked.events = url, sorted(events)
        _save(locked)
        _record("changed", locked, by, events=locked.events)


def rotate_secret(webhook: Webhook, by=None) -> NewSecret:
    """Give a webhook a new secret. The old one signs as well for a day, so that receivers can change theirs.

    Raises NotAllowed.
    """
    _check_may_manage(webhook.project_id, by)
    with transaction.atomic():
        locked = _lock(webhook)
        locked.old_secret_key, locked.secret_key, locked.rotated_at = (
            locked.secret_key,
            new_secret_key(),
            timezone.now(),
        )
        locked.save()
        _record("secret_rotated", locked, by)
    return NewSecret(locked, secret_of(locked.secret_key))


def disable_webhook(webhook: Webhook, by=None) -> None:
    """Send nothing more to it. Doing it twice is doing it once. Raises NotAllowed."""
    _check_may_manage(webhook.project_id, by)
    with transaction.atomic():
        locked = _lock(webhook)
        if Webhook.objects.enabled().filter(pk=locked.pk).update(disabled_at=timezone.now(), failing_since=None):
            _record("disabled", locked, by)


def enable_webhook(webhook: Webhook, by=None) -> None:
    """Send to it again, what waits at once. Raises NotAllowed, BadAddress."""
    _check_may_manage(webhook.project_id, by)
    _resolve(webhook.url)
    with transaction.atomic():
        locked = _lock(webhook)
        disabled = Webhook.objects.filter(pk=locked.pk, disabled_at__isnull=False)
        if disabled.update(disabled_at=None, failing_since=None):
            locked.deliveries.waiting().update(next_try_at=timezone.now())
            _record("enabled", locked, by)


def delete_webhook(webhook: Webhook, by=None) -> None:
    """Delete it with its log; what waits is not sent. Raises NotAllowed."""
    _check_may_manage(webhook.project_id, by)
    with transaction.atomic():
        locked = _lock(webhook)
        pk = locked.pk
        locked.delete()
        locked.pk = pk
        _record("deleted", locked, by)


def _check_may_manage(project_id: int, by) -> None:
    if by is not None:
        check_may(by, Action.MANAGE, Project.objects.get(pk=project_id))


def _check(url: str, events: Sequence[str]) -> None:
    if not events or not set(events) <= TOPICS.keys():
        raise DomainError("BadWebhook", f"Choose at least one of these events: {', '.join(TOPICS)}.")
    _resolve(url)


def _resolve(url: str) -> None:
    try:
        resolve(url)
    except OSError:
        raise BadAddress(f"The host of {url:.80} is not known; look at its name again.") from None


def _save(webhook: Webhook) -> Webhook:
    try:
        with transaction.atomic():
            webhook.save()
    except IntegrityError:
        raise DomainError(
            "BadWebhook", f"The project has a webhook for {webhook.url} already; change that one."
        ) from None
    return webhook


def _lock(webhook: Webhook) -> Webhook:
    return Webhook.objects.select_for_update(of=("self",), no_key=True).get(pk=webhook.pk)


def _record(verb: str, webhook: Webhook, by, **facts: Any) -> None:
    """The address is no fact: it may hold a key of the receiver's."""
    record(f"webhook.{verb}", webhook, by, webhook.project_id, webhook=webhook.pk, **facts)
