"""API of project webhooks."""

from __future__ import annotations

import pytest

from kgharvest.models import Delivery, Project, Webhook
from kgharvest.webhooks.models import secret_of
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

HOOK = "https://1.1.1.1/hook"  # an IP address needs no DNS lookup; nothing is sent


@pytest.fixture
def project() -> Project:
    return factories.make_project("Birds")


@pytest.fixture
def api(project):
    return client_of(factories.make_member("owner", project))


@pytest.fixture
def hooks() -> str:
    return "/api/v1/projects/birds/webhooks/"


def test_webhook_is_created_changed_tested_and_deleted(api, hooks):
    created = api.post(hooks, {"url": HOOK, "events": ["report.made"]}, JSON)
    hook = created.headers["Location"]
    secret = created.json()["secret"]

    assert secret == secret_of(Webhook.objects.get().secret_key)
    assert api.get(hook).json() == {name: value for name, value in created.json().items() if name != "secret"}
    assert api.get(hooks).json()["results"] == [api.get(hook).json()]
    changed = api.patch(hook, {"events": ["round.complete"]}, JSON).json()
    assert (changed["url"], changed["events"]) == (HOOK, ["round.complete"])
    assert api.post(f"{hook}secret/").json()["secret"] != secret
    assert api.post(f"{hook}disable/").json()["disabled_at"]
    assert error_of(api.post(f"{hook}test/"))["code"] == "WebhookDisabled"
    assert api.post(f"{hook}enable/").json()["disabled_at"] is None
    assert api.post(f"{hook}test/").status_code == 202
    assert api.delete(hook).status_code == 204
    assert not Webhook.objects.exists()


def test_deliveries_are_listed_and_resent(api, hooks):
    hook = api.post(hooks, {"url": HOOK, "events": ["report.made"]}, JSON).headers["Location"]
    first, second = (api.post(f"{hook}test/").json()["id"] for _ in range(2))
    Delivery.objects.filter(pk=first).update(state="failed", status=500, error="Status 500.")

    assert [row["id"] for row in api.get(f"{hook}deliveries/").json()["results"]] == [second, first]
    [failed] = api.get(f"{hook}deliveries/", {"state": "failed"}).json()["results"]
    assert (failed["id"], failed["status"], failed["error"]) == (first, 500, "Status 500.")
    assert api.post(f"{hook}deliveries/{first}/send-again/").json()["state"] == "waiting"


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"url": "https://127.0.0.1/", "events": ["report.made"]}, 409, "BadAddress"),
        ({"url": "https://lab..example.org/", "events": ["report.made"]}, 409, "BadAddress"),
        ({"url": f"https://{'a' * 64}.example.org/", "events": ["report.made"]}, 409, "BadAddress"),
        ({"url": HOOK, "events": []}, 400, "Invalid"),
        ({"url": HOOK, "events": ["none"]}, 400, "Invalid"),
    ],
)
def test_an_invalid_webhook_is_rejected(api, hooks, sent, status, code):
    refused = api.post(hooks, sent, JSON)

    assert (refused.status_code, error_of(refused)["code"]) == (status, code)


def test_read_scope_can_view_but_not_change_webhooks(project, hooks):
    owner = factories.make_member("owner", project)
    hook = client_of(owner).post(hooks, {"url": HOOK, "events": ["report.made"]}, JSON).headers["Location"]
    reader = client_of(owner, "read")

    assert "secret" not in reader.get(hook).json()
    assert [reader.post(hooks, {}, JSON).status_code, reader.post(f"{hook}secret/").status_code] == [403, 403]
