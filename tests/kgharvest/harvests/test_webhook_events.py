"""Webhook events of ended jobs and launches."""

from __future__ import annotations

import json
from datetime import timedelta
from ipaddress import ip_network
from uuid import uuid4

import pytest
from django.utils import timezone

from kgharvest.accounts.projects import default_project
from kgharvest.events.types import TOPICS
from kgharvest.harvests.launches import cancel_launch
from kgharvest.jobs import ledger
from kgharvest.models import Delivery, Job, Launch
from kgharvest.webhooks.outbox import create_webhook
from tests.factories import make_harvest_job

pytestmark = pytest.mark.django_db


def delivered_events() -> list[tuple[str, str | int]]:
    bodies = [json.loads(body) for body in Delivery.objects.order_by("pk").values_list("body", flat=True)]
    return [(body["event"], body["facts"].get("status", body["facts"].get("n_failed"))) for body in bodies]


def test_ended_jobs_and_their_launch_are_announced_once(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    project = default_project()
    create_webhook(project.pk, "http://127.0.0.1:9/hook", list(TOPICS))
    launch = Launch.objects.create(project=project)
    now = timezone.now()
    one, lost, other = [make_harvest_job(project=project, launch=launch) for _ in range(3)]

    token = ledger.claim(one.pk, now)
    ledger._finish(one.pk, token, lambda: None)
    assert delivered_events() == [("job.finished", "succeeded")]

    is_lost = {"status": "running", "owner_token": uuid4(), "lease_expires_at": now - timedelta(seconds=1)}
    Job.objects.filter(pk=lost.pk).update(attempts=3, **is_lost)
    ledger.recover(now)
    assert delivered_events()[1:] == [("job.finished", "failed")]

    ledger.cancel(other)
    assert delivered_events()[2:] == [("launch.finished", 1)]


def test_launch_with_simultaneously_ending_jobs_is_announced_once(settings, monkeypatch):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    monkeypatch.setattr(ledger, "JOBS_AT_ONCE", 1)
    project = default_project()
    create_webhook(project.pk, "http://127.0.0.1:9/hook", list(TOPICS))
    launch = Launch.objects.create(project=project)
    for _ in range(3):
        make_harvest_job(project=project, launch=launch)

    cancel_launch(launch)

    assert delivered_events() == [("launch.finished", 0)]
