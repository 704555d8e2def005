"""Prolific events: stored before the response, retried until handled, and applied once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, PanelEvent, Submission
from kgharvest.contrib.recruiting.panels.services import complete, enter
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from kgharvest.contrib.recruiting.platforms import platform_of
from kgharvest.contrib.recruiting.prolific import events
from kgharvest.contrib.recruiting.prolific.events import BODIES_LAST, outbox, store
from kgharvest.contrib.recruiting.prolific.platform import STATUSES
from kgharvest.contrib.recruiting.prolific.views import LARGEST_EVENT
from kgharvest.contrib.recruiting.reconciliation import EVERY, ask_reconciliation, due_panels, run_reconciliation_job
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests import factories
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import (
    SECRET,
    TOKEN,
    Event,
    FakeProlific,
    Trouble,
    serving,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]

ADDRESS = "/recruiting/prolific/events/"
Status = Submission.Status


@pytest.fixture
def fake(settings) -> Iterator[FakeProlific]:
    with serving() as fake:
        settings.PROLIFIC = {"token": TOKEN, "url": fake.url, "webhook_secret": SECRET}
        yield fake
    assert fake.violations == []


@pytest.fixture
def panel(fake) -> Panel:
    panel = make_panel(
        factories.make_round(),
        platform="prolific",
        status=Panel.Status.PUBLISHED,
        places=5,
        reward=150,
        participant_parameter="PROLIFIC_PID",
        study_parameter="STUDY_ID",
        session_parameter="SESSION_ID",
        platform_options={"title": "Title", "description": "Description"},
    )
    Panel.objects.filter(pk=panel.pk).update(external_id=platform_of(panel).publish())
    panel.refresh_from_db()
    return panel


def send(client: Client, headers: dict[str, str], body: bytes, address: str = ADDRESS) -> int:
    names = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items() if name != "Content-Type"
    }
    return client.post(address, body, content_type="application/json", **names).status_code


def handle_all(now=None) -> int:
    n_handled = 0
    while batch := outbox.claim(now or timezone.now()):
        outbox.send(batch)
        n_handled += 1
    return n_handled


# Receiving


def test_event_is_stored_once_and_encrypted(client, fake):
    event = Event("event-1", b'{"resource_id": "a", "event_type": "submission.status.change"}')

    assert [send(client, fake.headers(event), event.body) for _ in range(13)] == [204] * 13

    stored = PanelEvent.objects.get()
    assert stored.text.encode() == event.body
    assert "resource_id" not in stored.body
    assert (stored.event_id, stored.event_type, stored.handled_at) == ("event-1", "submission.status.change", None)
    assert Job.objects.filter(kind=outbox.job_kind).count() == 1


def test_unsigned_events_are_rejected_and_rate_limited(client, fake, settings):
    settings.LIMITS = settings.LIMITS | {"forged_events": (3, 60)}
    event = Event("event-1", b"{}")
    forged = fake.headers(event, "another secret")

    assert [send(client, forged, event.body) for _ in range(5)] == [403, 403, 403, 429, 429]
    assert send(client, fake.headers(event), event.body) == 429
    assert not PanelEvent.objects.exists()


def test_forms_and_large_bodies_are_rejected(client, fake):
    large = Event("event-1", b" " * (LARGEST_EVENT + 1))

    assert send(client, fake.headers(large), large.body) == 413
    assert client.post(ADDRESS, {"a": "b"}).status_code in (403, 415)
    assert client.get(ADDRESS).status_code == 405
    assert not PanelEvent.objects.exists()


def test_events_need_no_csrf_token(fake):
    event = Event("event-1", b"{}")

    assert send(Client(enforce_csrf_checks=True), fake.headers(event), event.body) == 204


# Handling


def test_repeated_unordered_deliveries_match_the_state_of_prolific(client, fake, panel):
    people = [fake.arrive(panel.external_id)[0] for _ in range(5)]
    for remote in people:
        submission = enter(panel, remote.participant, remote.id, timezone.now())
        if remote is not people[0]:
            complete(submission, timezone.now())
            fake.submit(remote, panel.completion_code)
    fake.give_back(people[0])
    fake.answer("POST", f"/api/v1/submissions/{people[1].id}/transition/", {}, {"action": "APPROVE"})
    fake.time_out(people[2])

    for headers, body in fake.deliveries(random.Random(20), times=5):
        assert send(client, headers, body) == 204
        if random.Random(body).random() < 0.2:
            handle_all()
    handle_all()

    statuses = {row.session_id: row.status for row in panel.submissions.all()}
    assert statuses == {remote.id: STATUSES[remote.status] for remote in people}
    assert PanelEvent.objects.filter(handled_at=None).count() == 0
    assert balance_of(panel).paid == 150
    paid = panel.pay_entries.get(side="paid")
    assert paid.event.event_type == "submission.status.change"


def test_return_event_frees_the_place(client, fake, panel):
    people = [fake.arrive(panel.external_id)[0] for _ in range(5)]
    for remote in people:
        enter(panel, remote.participant, remote.id, timezone.now())
    fake.give_back(people[0])
    send(client, fake.headers(fake.events[-1]), fake.events[-1].body)

    handle_all()

    newcomer, _ = fake.arrive(panel.external_id)
    assert enter(panel, newcomer.participant, newcomer.id, timezone.now()).status == Status.ACTIVE


@pytest.mark.parametrize("trouble", [Trouble.BUSY, Trouble.DOWN, Trouble.LOST])
def test_failed_event_is_retried_with_increasing_delay(client, fake, panel, trouble, monkeypatch):
    monkeypatch.setattr("kgharvest.contrib.recruiting.prolific.client.MOST_TRIES", 1)
    remote, _ = fake.arrive(panel.external_id)
    submission = enter(panel, remote.participant, remote.id, timezone.now())
    fake.give_back(remote)
    fake.trouble = lambda method, path: trouble
    send(client, fake.headers(fake.events[-1]), fake.events[-1].body)

    now = timezone.now()
    waits = []
    for _ in range(3):
        assert handle_all(now) == 1
        event = PanelEvent.objects.get()
        assert "retried later" in event.error
        assert remote.id not in event.error
        assert handle_all(now) == 0
        waits.append(event.next_try_at - now)
        now = event.next_try_at
    fake.trouble = lambda method, path: Trouble.NONE
    handle_all(now)

    submission.refresh_from_db()
    event.refresh_from_db()
    assert waits[0] < waits[1] < waits[2]
    assert (submission.status, event.outcome, event.error, event.n_tries) == (Status.RETURNED, "changed", "", 4)


def test_event_is_kept_after_a_handler_exception(fake, panel, monkeypatch):
    fake.arrive(panel.external_id)
    monkeypatch.delattr(events, "handle")
    store({"X-Event-ID": "1"}, fake.events[-1].body)

    handle_all()

    event = PanelEvent.objects.get()
    assert (event.handled_at, event.error) == (None, events.UNEXPECTED)
    assert outbox.due(event.next_try_at).exists()


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"no JSON", "unreadable"),
        (b'{"event_type": "submission.status.change"}', "unreadable"),
        (b'{"event_type": "submission.status.change", "resource_id": "000000000000000000000099"}', "not of ours"),
        (b'{"event_type": "study.status.change", "resource_id": "000000000000000000000099"}', "not of ours"),
        (b'{"event_type": "study.has_high_return_rate", "resource_id": "1"}', "of no concern"),
    ],
)
def test_irrelevant_events_are_marked_with_an_outcome(client, fake, body, outcome):
    send(client, fake.headers(Event("1", body)), body)

    handle_all()

    assert PanelEvent.objects.get().outcome == outcome


def test_pausing_the_study_on_prolific_pauses_the_panel(client, fake, panel):
    fake.answer("POST", f"/api/v1/studies/{panel.external_id}/transition/", {}, {"action": "PAUSE"})
    send(client, fake.headers(fake.events[-1]), fake.events[-1].body)

    handle_all()

    panel.refresh_from_db()
    assert (panel.status, panel.ended_reason) == ("paused", "Paused on the platform.")


def test_event_bodies_expire_and_ids_are_kept(client, fake):
    event = Event("1", b'{"resource_id": "a", "event_type": "x"}')
    send(client, fake.headers(event), event.body)
    job = Job.objects.get(kind=outbox.job_kind)
    PanelEvent.objects.update(handled_at=timezone.now() - BODIES_LAST - timedelta(seconds=1))

    ledger.run_job(job.pk)

    assert PanelEvent.objects.get().body == ""
    assert send(client, fake.headers(event), event.body) == 204
    assert PanelEvent.objects.count() == 1


def test_event_arriving_at_the_end_of_a_job_is_queued_again(fake, enqueued):
    store({"X-Event-ID": "1"}, b"{}")
    job = Job.objects.get(kind=outbox.job_kind)
    token = ledger.claim(job.pk, timezone.now())
    store_result = outbox(job, ledger.Heartbeat(job.pk, token))
    store({"X-Event-ID": "2"}, b"{}")  # arrives after the last check of the running job
    assert enqueued == [job.pk]

    ledger._finish(job.pk, token, store_result)

    assert len(enqueued) == 2
    assert Job.objects.unfinished().filter(kind=outbox.job_kind).count() == 1


def test_one_queued_job_handles_events(fake, panel):
    store({"X-Event-ID": "1"}, b"{}")
    for _ in range(3):
        outbox.enqueue_if_due(timezone.now())

    [job] = Job.objects.filter(kind=outbox.job_kind)
    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert job.status == "succeeded"
    assert PanelEvent.objects.get().outcome == "unreadable"


# Reconciliation


def reconcile_job() -> Job:
    return Job.objects.filter(kind="panel_reconciliation").latest("pk")


def test_panels_are_reconciled_periodically_and_on_request(fake, panel):
    now = timezone.now()
    ask_reconciliation(panel)
    ledger.run_job(reconcile_job().pk)
    panel.refresh_from_db()

    assert panel.reconciled_at is not None
    assert list(due_panels(panel.reconciled_at + EVERY / 2)) == []
    assert list(due_panels(panel.reconciled_at + EVERY)) == [panel]
    Panel.objects.update(status=Panel.Status.STOPPED)
    assert list(due_panels(now + 2 * EVERY)) == []
    panel.submissions.create(participant_digest="a", session_digest="b", entered_at=now)
    assert list(due_panels(now + 2 * EVERY)) == [panel]  # an open submission keeps the panel due


def test_failed_panel_does_not_delay_other_panels(fake, panel):
    missing = make_panel(
        panel.round, name="lost", platform="prolific", status=Panel.Status.PUBLISHED, external_id="f" * 24
    )
    job = Job.objects.create(kind="panel_reconciliation")
    token = ledger.claim(job.pk, timezone.now())

    run_reconciliation_job(job, ledger.Heartbeat(job.pk, token))

    missing.refresh_from_db(), panel.refresh_from_db()
    assert missing.reconcile_error == "Prolific rejected the request: There is no study [id]"
    assert panel.reconcile_error == ""
    assert None not in (missing.reconciled_at, panel.reconciled_at)


def test_fake_events_match_the_documentation(fake, panel):
    remote, _ = fake.arrive(panel.external_id)

    assert json.loads(fake.events[-1].body) == {
        "resource_id": remote.id,
        "event_type": "submission.status.change",
        "participant_id": remote.participant,
        "status": "ACTIVE",
    }
