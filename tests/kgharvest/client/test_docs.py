"""The study of docs/api.md, run as it stands there: a live server, the embedded LM, people who judge."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from annotation.models import Round
from evaluation.models import Report
from kgharvest.accounts.tokens import create_token
from kgharvest.jobs import ledger, messages
from kgharvest.models import Job
from tests import factories

DOCS = Path(__file__).resolve().parents[3] / "docs" / "api.md"
LONGEST = 30  # lines


@contextmanager
def going_on(act) -> Iterator[None]:
    """Do `act` again and again in a thread, as workers and people do."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.2):
            act()
        connection.close()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def work_and_judge() -> None:
    """Do the jobs that wait; judge the round that is open, all of it."""
    for job in Job.objects.filter(status=Job.Status.QUEUED):
        ledger.run_job(job.pk)
    for round in Round.objects.filter(status=Round.Status.OPEN, annotators=None):
        labels = ["true", "false"] * round.n_tasks
        factories.judge_all(round, *[labels[: round.n_tasks]] * round.judgments_per_task)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_study_of_the_docs_goes_from_a_relation_to_a_table(live_server, monkeypatch, capsys):
    [study] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    secret = create_token(factories.make_researcher(), "study", "write", 1, timezone.now()).secret
    monkeypatch.setenv("KGHARVEST_URL", live_server.url)
    monkeypatch.setenv("KGHARVEST_TOKEN", secret)
    monkeypatch.setattr(messages, "wake", lambda queue, request_id="": None)
    monkeypatch.setattr("kgharvest.client.resources.POLL_S", 0.2)

    with going_on(work_and_judge):
        exec(compile(study, str(DOCS), "exec"), {})

    printed = capsys.readouterr().out
    assert len(study.splitlines()) <= LONGEST
    assert f"{live_server.url}/join/" in printed
    report = Report.objects.get()
    assert {cell["setting"] for cell in report.document["cells"]} == {"human", "multi"}
    assert Round.objects.get().status == Round.Status.CLOSED
    assert "| home" in printed.rpartition("join/")[2]
