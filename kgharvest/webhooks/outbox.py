"""Webhooks of a project: create, change, disable, and test them.

`record` of kgharvest.events.recording enqueues deliveries, and kgharvest.webhooks.delivery sends them.
"""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from kgharvest.access import Action, check_may
from kgharvest.accounts.models import Project
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.events.types import TOPICS
from kgharvest.webhooks.addresses import BadAddress, resolve
from kgharvest.webhooks.models import GIVE_UP_AFTER, TEST, Delivery, Webhook, new_secret_key

MOST_WEBHOOKS = 20  # maximum number of webhooks per project


def send_test(webhook: Webhook, by=None) -> Delivery:
    """Enqueue a test event. Raises NotAllowed or WebhookDisabled."""
    _check_may_manage(webhook.project_id, by)
    if webhook.disabled_at is not None:
        raise DomainError("WebhookDisabled", f"Webhook {webhook.url} is disabled. Enable it first.")
    facts = {"message": "This is a test event. Nothing has happened."}
    delivery = Delivery.about(webhook, TEST, facts, timezone.now())
    delivery.save()
    return delivery


def send_again(delivery: Delivery, by=None) -> None:
    """Retry a pending or failed delivery now and for another 48 hours. Raises NotAllowed or WebhookDisabled."""
    _check_may_manage(delivery.webhook.project_id, by)
    if delivery.webhook.disabled_at is not None:
        raise DomainError("WebhookDisabled", f"Webhook {delivery.webhook.url} is disabled. Enable it first.")
    now = timezone.now()
    values = {"state": Delivery.State.WAITING, "next_try_at": now, "give_up_at": now + GIVE_UP_AFTER}
    Delivery.objects.filter(pk=delivery.pk).exclude(state=Delivery.State.DELIVERED).update(**values)


def create_webhook(project_id: int, url: str, events: Sequence[str], by=None) -> Webhook:
    """Create a webhook. Raises NotAllowed, BadAddress, or BadWebhook."""
    _check_may_manage(project_id, by)
    _check(url, events)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project_id)  # the lock makes concurrent calls wait
        if Webhook.objects.filter(project_id=project_id).count() >= MOST_WEBHOOKS:
            raise DomainError("BadWebhook", f"The project already has {MOST_WEBHOOKS} webhooks. Delete one first.")
        webhook = _save(Webhook(project_id=project_id, url=url, events=sorted(events), created_by=by))
        _record("made", webhook, by, events=webhook.events)
    return webhook


def edit_webhook(webhook: Webhook, url: str, events: Sequence[str], by=None) -> None:
    """Change the URL and the events. Pending deliveries are sent to the new URL.

    Raises the errors of create_webhook.
    """
    _check_may_manage(webhook.project_id, by)
    _check(url, events)
    with transaction.atomic():
        locked = _lock(webhook)
        locked.url, locked.events = url, sorted(events)
        _save(locked)
        _record("changed", locked, by, events=locked.events)


def rotate_secret(webhook: Webhook, by=None) -> Webhook:
    """Create a new secret, and return the webhook. For one day, messages are also signed with the old secret.

    Raises NotAllowed.
    """
    _check_may_manage(webhook.project_id, by)
    with transaction.atomic():
        locked = _lock(webhook)
        locked.old_secret_key, locked.secret_key = locked.secret_key, new_secret_key()
        locked.rotated_at = timezone.now()
        locked.save()
        _record("secret_rotated", locked, by)
    return locked


def disable_webhook(webhook: Webhook, by=None) -> None:
    """Disable a webhook. Idempotent. Raises NotAllowed."""
    _check_may_manage(webhook.project_id, by)
    with transaction.atomic():
        locked = _lock(webhook)
        if Webhook.objects.filter(pk=locked.pk, disabled_at=None).update(
            disabled_at=timezone.now(), failing_since=None
        ):
            _record("disabled", locked, by)


def enable_webhook(webhook: Webhook, by=None) -> None:
    """Enable a webhook. Pending deliveries become due immediately. Raises NotAllowed or BadAddress."""
    _check_may_manage(webhook.project_id, by)
    _check_url(webhook.url)
    with transaction.atomic():
        locked = _lock(webhook)
        disabled = Webhook.objects.filter(pk=locked.pk, disabled_at__isnull=False)
        if disabled.update(disabled_at=None, failing_since=None):
            locked.deliveries.waiting().update(next_try_at=timezone.now())
            _record("enabled", locked, by)


def delete_webhook(webhook: Webhook, by=None) -> None:
    """Delete a webhook with its log and pending deliveries. Raises NotAllowed."""
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
    _check_url(url)


def _check_url(url: str) -> None:
    try:
        resolve(url)
    except OSError:
        raise BadAddress(f"Cannot resolve the hostname of {url:.80}. Check the spelling.") from None


def _save(webhook: Webhook) -> Webhook:
    try:
        with transaction.atomic():
            webhook.save()
    except IntegrityError:
        raise DomainError("BadWebhook", f"The project already has a webhook for {webhook.url}. Edit it.") from None
    return webhook


def _lock(webhook: Webhook) -> Webhook:
    return Webhook.objects.select_for_update(of=("self",), no_key=True).get(pk=webhook.pk)


def _record(verb: str, webhook: Webhook, by, **facts: Any) -> None:
    # The URL is not recorded, because it may contain a key of the receiver.
    record(f"webhook.{verb}", webhook, by, webhook.project_id, webhook=webhook.pk, **facts)
