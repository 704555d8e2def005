"""The example study of docs/api.md, run verbatim with a live server, the embedded LM, and simulated annotators."""

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
MAX_LINES = 30


@contextmanager
def repeating(act) -> Iterator[None]:
    """Repeat `act` in a background thread to simulate workers and annotators."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.2):
            act()
        connection.close()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def work_and_judge() -> None:
    """Run the queued jobs, and judge every statement of open rounds."""
    for job in Job.objects.filter(status=Job.Status.QUEUED):
        ledger.run_job(job.pk)
    for round in Round.objects.filter(status=Round.Status.OPEN, annotators=None):
        labels = ["true", "false"] * round.n_tasks
        factories.judge_all(round, *[labels[: round.n_tasks]] * round.judgments_per_task)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_example_study_runs_from_relation_to_table(live_server, monkeypatch, capsys):
    [study] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    secret = create_token(factories.make_researcher(), "study", "write", 1, timezone.now()).secret
    monkeypatch.setenv("KGHARVEST_URL", live_server.url)
    monkeypatch.setenv("KGHARVEST_TOKEN", secret)
    monkeypatch.setattr(messages, "wake", lambda queue, request_id="": None)
    monkeypatch.setattr("kgharvest.client.resources.POLL_S", 0.2)
    monkeypatch.setattr("kgharvest.engine.types.MIN_CANDIDATES", 40)
    monkeypatch.setattr("kgharvest.engine.types.CANDIDATES_PER_KEPT", 1)

    with repeating(work_and_judge):
        exec(compile(study, str(DOCS), "exec"), {})

    printed = capsys.readouterr().out
    assert len(study.splitlines()) <= MAX_LINES
    assert f"{live_server.url}/join/" in printed
    report = Report.objects.get()
    assert {cell["setting"] for cell in report.document["cells"]} == {"human", "multi"}
    assert Round.objects.get().status == Round.Status.CLOSED
    assert "| home" in printed.rpartition("join/")[2]
