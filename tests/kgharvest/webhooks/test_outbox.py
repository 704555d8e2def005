"""Maximum number of webhooks per project."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from kgharvest.accounts.projects import default_project
from kgharvest.models import Webhook
from kgharvest.webhooks.outbox import MOST_WEBHOOKS, create_webhook
from tests.postgres import at_once
from tests.refusals import codes_of


@pytest.mark.django_db(transaction=True)
def test_concurrent_creation_respects_the_webhook_limit(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    project = default_project().pk
    urls = [f"http://127.0.0.1:{1000 + number}/" for number in range(MOST_WEBHOOKS + 3)]
    for url in urls[4:]:
        create_webhook(project, url, ["report.made"])

    outcomes = at_once(*[lambda url=url: create_webhook(project, url, ["report.made"]) for url in urls[:4]])

    assert codes_of(outcomes) == ["BadWebhook"] * 3
    assert Webhook.objects.count() == MOST_WEBHOOKS
