"""Signed heads outside the database, and the jobs that send them and verify the log."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from annotation.models import Label
from kgharvest.audit import heads
from kgharvest.audit.heads import SEND, VERIFY, enqueue_due_jobs, head_files, read_heads
from kgharvest.environment import destinations
from kgharvest.events.chain import head, seal_all
from kgharvest.events.models import Event
from kgharvest.jobs.ledger import run_job
from kgharvest.models import Job
from kgharvest.webhooks.delivery import Answer
from tests.factories import judge_all, make_round, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(settings, tmp_path):
    """Configure a file of heads. The log has one round."""
    path = tmp_path / "heads.jsonl"
    settings.AUDIT_HEADS = [str(path)]
    judge_all(make_round(2), [Label.TRUE] * 2)
    seal_all()
    return path


def run(kind: str) -> Job:
    """Run the queued job of this kind, and return it."""
    job = Job.objects.get(kind=kind, status=Job.Status.QUEUED)
    run_job(job.pk)
    job.refresh_from_db()
    return job


def queued(kind: str) -> int:
    enqueue_due_jobs(timezone.now())
    return Job.objects.filter(kind=kind, status=Job.Status.QUEUED).count()


def ended_before(kind: str, ago: timedelta) -> None:
    Job.objects.filter(kind=kind).update(started_at=timezone.now() - ago, finished_at=timezone.now() - ago)


def test_head_is_sent_every_hour_and_after_each_report(file, settings):
    settings.AUDIT_HEADS = []
    assert queued(SEND) == 0
    settings.AUDIT_HEADS = [str(file)]

    assert queued(SEND) == 1
    assert run(SEND).status == Job.Status.SUCCEEDED
    (_, sent), *_ = read_heads(file)[0]
    assert sent == head()
    assert queued(SEND) == 0
    ended_before(SEND, timedelta(minutes=61))
    assert queued(SEND) == 1
    run(SEND)
    assert queued(SEND) == 0
    Event.objects.create(
        at=timezone.now(), action="report.made", subject_type="report", subject_id="1", facts='{"round":"pilot"}'
    )
    assert queued(SEND) == 1
    run(SEND)
    assert [place for place, _ in read_heads(file)[0]] == [f"line {number} of {file}" for number in (1, 2, 3)]


def test_head_is_sent_to_every_destination(file, settings, monkeypatch):
    posted = []
    monkeypatch.setattr(heads, "post", lambda url, body, headers: posted.append((url, body)) or Answer(200, ""))
    settings.AUDIT_HEADS = [str(file), "https://witness.example.org/heads", "mailto:ada@example.org"]
    queued(SEND)
    run(SEND)

    line = file.read_text().strip()
    assert posted == [("https://witness.example.org/heads", line.encode())]
    assert [message.to for message in mail.outbox] == [["ada@example.org"]]
    assert line in mail.outbox[0].body
    assert json.loads(line)["hash"] == head().hash


def test_failed_destination_fails_the_job_which_is_retried_later(file, settings):
    settings.AUDIT_HEADS = [str(file.parent / "missing" / "heads.jsonl"), str(file)]
    queued(SEND)
    job = run(SEND)

    assert job.status == Job.Status.FAILED
    assert str(file.parent / "missing") in job.error
    assert read_heads(file)[0]
    assert queued(SEND) == 0
    ended_before(SEND, timedelta(minutes=11))
    assert queued(SEND) == 1


def test_heads_of_another_key_are_rejected(file, settings):
    queued(SEND)
    run(SEND)
    settings.AUDIT_KEY = "another key"

    assert read_heads(file) == ([], [f"The head in line 1 of {file} is not signed with the key of this installation."])


def test_failed_verification_names_the_entry_and_the_page_shows_it(file, client):
    client.force_login(make_user("root", is_superuser=True, is_staff=True))
    Event.objects.filter(number=1).update(facts="{}")
    job = Job.objects.create(kind=VERIFY)
    run_job(job.pk)
    job.refresh_from_db()

    assert (job.status, "Entry 1 (" in job.error) == (Job.Status.FAILED, True)
    assert 'class="callout"' in client.get("/audit/").text


def test_verified_head_is_stored_with_the_number_of_outside_heads(file, client):
    client.force_login(make_user("root", is_superuser=True, is_staff=True))
    queued(SEND)
    run(SEND)
    seal_all()
    job = Job.objects.create(kind=VERIFY)
    run_job(job.pk)
    job.refresh_from_db()

    assert (job.status, job.error) == (Job.Status.SUCCEEDED, "")
    assert job.payload == {**head()._asdict(), "n_heads": 1}
    assert f"{head().number}:{head().hash}</code>, verified" in client.get("/audit/").text


def test_verification_is_due_once_a_day(file):
    assert queued(VERIFY) == 0  # the log is new
    Event.objects.filter(number=1).update(at=timezone.now() - timedelta(days=2))
    assert queued(VERIFY) == 1
    assert queued(VERIFY) == 1
    run(VERIFY)
    assert queued(VERIFY) == 0
    ended_before(VERIFY, timedelta(hours=25))
    assert queued(VERIFY) == 1


def test_missing_files_are_not_read(settings, tmp_path):
    settings.AUDIT_HEADS = [str(tmp_path / "none"), "https://example.org/x", "mailto:a@example.org"]
    assert head_files() == []


@pytest.mark.parametrize("text", ["heads.jsonl", "ftp://example.org", "mailto:ada", "/a,b"])
def test_invalid_destinations_are_rejected(monkeypatch, text):
    monkeypatch.setenv("KGHARVEST_AUDIT_HEADS", text)
    with pytest.raises(ImproperlyConfigured, match="KGHARVEST_AUDIT_HEADS"):
        destinations("KGHARVEST_AUDIT_HEADS")
