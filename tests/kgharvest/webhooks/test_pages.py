"""Webhook pages for owners: creation, delivery log, and changes. A secret is shown once."""

from __future__ import annotations

import re
from ipaddress import ip_network

import pytest
from django.utils import timezone

from kgharvest.accounts.models import Role
from kgharvest.models import Delivery, Webhook
from kgharvest.webhooks.delivery import outbox
from kgharvest.webhooks.models import secret_of
from tests.factories import make_member, make_project
from tests.kgharvest.webhooks.receiver import receiving

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(client, settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    owner = make_member(Role.OWNER, make_project("Animals"))
    client.force_login(owner)
    return owner


def test_webhook_lifecycle_on_its_pages(client, owner):
    assert "No webhooks" in client.get("/projects/animals/webhooks/").text
    with receiving() as (url, receiver):
        page = client.post("/projects/animals/webhooks/", {"url": url, "events": ["report.made"]}).text
        secret = re.search(r"whsec_[\w+/]+=", page)[0]
        hook = Webhook.objects.get()
        assert secret == secret_of(hook.secret_key)
        assert secret not in client.get("/projects/animals/webhooks/").text

        own = f"/projects/animals/webhooks/{hook.pk}/"
        assert "No deliveries yet" in client.get(own).text
        client.post(f"{own}test/")
        outbox.send(outbox.claim(timezone.now()))
    assert len(receiver.requests) == 1
    assert "delivered" in client.get(own).text

    rotated = client.post(f"{own}rotate/").text
    assert re.search(r"whsec_[\w+/]+=", rotated)[0] != secret
    assert client.post(own, {"url": url, "events": ["job.finished"]}).status_code == 302
    client.post(f"{own}disable/")
    assert "is disabled. Enable it first" in client.post(f"{own}test/", follow=True).text
    client.post(f"{own}enable/")
    client.post(f"{own}test/")
    waiting = Delivery.objects.waiting().get()
    assert "within seconds" in client.post(f"{own}deliveries/{waiting.pk}/send-again/", follow=True).text
    assert " deleted." in client.post(f"{own}delete/", follow=True).text
    audit_log = client.get("/projects/animals/audit/").text
    for sentence in (
        "created the webhook",
        "rotated the secret of the webhook",
        "disabled the webhook",
        "deleted the webhook",
    ):
        assert sentence in audit_log


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data", "which is not a public internet address"),
        ("https://user:key@example.org/", "Remove the username and password"),
        ("gopher://127.0.0.1/", "Invalid URL"),
    ],
)
def test_a_private_address_is_rejected_in_the_form(client, owner, url, reason):
    page = client.post("/projects/animals/webhooks/", {"url": url, "events": ["report.made"]}).text

    assert reason in page
    assert not Webhook.objects.exists()


def test_webhooks_of_another_project_are_not_found(client, owner):
    client.post("/projects/animals/webhooks/", {"url": "http://127.0.0.1:9/", "events": ["report.made"]})
    hook = Webhook.objects.get()
    client.force_login(make_member(Role.OWNER, make_project("Stones")))

    for path in ("", "test/", "rotate/", "delete/", "disable/"):
        assert client.post(f"/projects/animals/webhooks/{hook.pk}/{path}").status_code == 404
        assert client.post(f"/projects/stones/webhooks/{hook.pk}/{path}").status_code == 404
    assert Webhook.objects.get() == hook
