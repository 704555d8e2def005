"""Killed web servers and workers during Prolific events: no event is lost and no payment is repeated."""

from __future__ import annotations

import os
import random
from pathlib import Path

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, PanelEvent, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.services import complete, enter
from kgharvest.contrib.recruiting.pay.commands import ask
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from kgharvest.contrib.recruiting.platforms import platform_of
from kgharvest.contrib.recruiting.prolific.platform import STATUSES
from tests import factories
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import SECRET, TOKEN, FakeProlific, Trouble, serving
from tests.kgharvest.jobs.installation import kill_group, wait_until
from tests.load.web_server import WebServer, url_of
from tests.programs import start_program

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(280)]

N_PEOPLE, BONUS = 7, 41


def published_panel() -> Panel:
    panel = make_panel(
        factories.make_round(),
        platform="prolific",
        places=N_PEOPLE,
        reward=150,
        participant_parameter="PROLIFIC_PID",
        study_parameter="STUDY_ID",
        session_parameter="SESSION_ID",
        platform_options={"title": "Title", "description": "Description"},
        reconciled_at=timezone.now(),  # postpones reconciliation, so that only events report changes
    )
    Panel.objects.filter(pk=panel.pk).update(external_id=platform_of(panel).publish())
    panel.refresh_from_db()
    return panel


def run_participants(fake: FakeProlific, panel: Panel) -> list[Submission]:
    """Let participants enter and reach every final status. Return the submissions that await approval."""
    people = [fake.arrive(panel.external_id)[0] for _ in range(N_PEOPLE)]
    submissions = [enter(panel, remote.participant, remote.id, timezone.now()) for remote in people]
    for submission, remote in zip(submissions[2:], people[2:], strict=True):
        complete(submission, timezone.now())
        fake.submit(remote, panel.completion_code)
    fake.give_back(people[0])
    fake.time_out(people[1])
    fake.submit(people[1], "NOCODE")
    fake.give_back(people[2])
    return submissions[3:]


def worker(folder: Path, fake: FakeProlific):
    environment = {
        **os.environ,
        "DEBUG": "1",
        "SECRET_KEY": str(settings.SECRET_KEY),
        "DATABASE_URL": url_of(connection),
        "KGHARVEST_DATA_DIR": str(folder),
        "KGHARVEST_PROLIFIC_TOKEN": TOKEN,
        "KGHARVEST_PROLIFIC_URL": fake.url,
        "DJANGO_SETTINGS_MODULE": "tests.kgharvest.jobs.worker_settings",
    }
    log = folder / "worker.log"
    return start_program(
        ["celery", "-A", "kgharvest", "worker", "--loglevel", "INFO", "-n", "one@%h"], environment, log, log
    )


def kill_at(fake: FakeProlific, path_start: str, path_end: str, nth: int, trouble: Trouble):
    """Return a list. A worker added to it is killed while its nth matching request is pending."""
    victims: list = []
    n_seen = 0

    def kill(method: str, path: str) -> Trouble:
        nonlocal n_seen
        n_seen += path.startswith(path_start) and path.endswith(path_end)
        if not victims or n_seen < nth:
            return Trouble.NONE
        kill_group(victims.pop())
        return trouble

    fake.trouble = kill
    return victims


def deliver(server: WebServer, fake: FakeProlific, deliveries: list, kill_after: int) -> None:
    """Send all events. Kill and restart the server after `kill_after` deliveries, before any event is handled."""
    for number, (headers, body) in enumerate(deliveries):
        if number == kill_after:
            server.kill()
            server.start()
        answer = httpx.post(
            f"http://127.0.0.1:{server.port}/recruiting/prolific/events/",
            headers=headers | {"X-Forwarded-Proto": "https"},
            content=body,
            timeout=60,
            verify=False,  # loading certificates takes longer than the request
        )
        assert answer.status_code == 204
    server.kill()


def test_unordered_deliveries_survive_killed_servers_and_workers(tmp_path, settings):
    with serving() as fake:
        settings.PROLIFIC = {"token": TOKEN, "url": fake.url, "webhook_secret": SECRET}
        panel = published_panel()
        unapproved = run_participants(fake, panel)
        deliveries = fake.deliveries(random.Random(20), times=4)
        variables = {"KGHARVEST_PROLIFIC_WEBHOOK_SECRET": SECRET, "KGHARVEST_DATA_DIR": str(tmp_path)}
        with WebServer(url_of(connection), settings.SECRET_KEY, "--threads", "2", **variables) as server:
            deliver(server, fake, deliveries, kill_after=len(deliveries) // 2)
        assert PanelEvent.objects.filter(handled_at=None).count() == len(fake.events)
        for submission in unapproved:
            ask(submission, PlatformCommand.Kind.BONUS, "bonus:floor", amount=BONUS)
            ask(submission, PlatformCommand.Kind.APPROVE, "approve")

        victims = kill_at(fake, "/api/v1/submissions/", "/", 4, Trouble.LOST)
        victims.append(first := worker(tmp_path, fake))
        wait_until(lambda: not first.is_alive())
        victims = kill_at(fake, "/api/v1/bulk-bonus-payments/", "/pay/", 2, Trouble.UNANSWERED)
        victims.append(second := worker(tmp_path, fake))
        wait_until(lambda: not second.is_alive())
        fake.trouble = lambda method, path: Trouble.NONE
        PanelEvent.objects.filter(handled_at=None).update(next_try_at=timezone.now())
        PlatformCommand.objects.filter(state="waiting").update(next_try_at=timezone.now())
        third = worker(tmp_path, fake)
        try:
            wait_until(lambda: not PanelEvent.objects.filter(handled_at=None).exists())
            wait_until(lambda: not PlatformCommand.objects.filter(state="waiting").exists())
            Panel.objects.update(reconciled_at=None)
            wait_until(lambda: not PlatformCommand.objects.exclude(state="done").exists())
        finally:
            kill_group(third)

    statuses = {row.session_id: row.status for row in panel.submissions.all()}
    assert statuses == {remote.id: STATUSES[remote.status] for remote in fake.submissions.values()}
    paid = [fake.submissions[submission.session_id] for submission in unapproved]
    assert [(row.status, row.n_payments, row.bonuses) for row in paid] == [("APPROVED", 1, [BONUS])] * len(unapproved)
    assert balance_of(panel) == (len(unapproved) * (150 + BONUS),) * 2
    assert fake.violations == []
    log = (tmp_path / "worker.log").read_text()
    assert not [name for name, row in fake.submissions.items() if name in log or row.participant in log]
