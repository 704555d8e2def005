"""Concurrent starts, continuations, and deletions of judge runs: each tuple is requested once."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone

from annotation.judges.models import JudgeAnswer, JudgeRun
from annotation.judges.runs import AnswersWouldBeLost, continue_run, create_run
from annotation.models import Round
from annotation.rounds.services import create_draft, delete_draft
from kgharvest.accounts.projects import default_project
from kgharvest.errors import NotFound
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.factories import make_harvest, make_round
from tests.fake_chat_endpoint import completion, serving
from tests.postgres import at_once, on_postgresql, run_on_postgresql
from tests.refusals import codes_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

SPEC = {"name": "judge", "kind": "chat", "model": "gpt-x", "n_parallel": 2}


def test_two_workers_with_the_same_run_ask_each_tuple_once():
    with serving(lambda _: completion("True")._replace(delay_s=0.01)) as fake:
        run = create_run(make_round(8), SPEC | {"base_url": fake.url})

        at_once(*[partial(ledger.run_job, run.pk)] * 2)

        run.refresh_from_db()
        assert (run.status, run.attempts, run.answers.count()) == (Job.Status.SUCCEEDED, 1, 8)
        assert len(fake.requests) == 8


def test_worker_stores_nothing_after_its_run_is_taken_over():
    """Let the first worker hang at its first two tuples while the second one requests all tuples."""
    requests_started, resume = threading.Semaphore(0), threading.Event()

    def hang(_):
        requests_started.release()
        resume.wait(30)
        return completion("True")

    with serving(hang) as fake:
        run = create_run(make_round(6), SPEC | {"base_url": fake.url})

        def take_over() -> None:
            assert all(requests_started.acquire(timeout=30) for _ in range(2))
            fake.answer = lambda _: completion("False")
            for _ in range(100):  # the first worker may renew its lease before it is claimed
                Job.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() - timedelta(hours=1))
                ledger.run_job(run.pk)
                if Job.objects.get(pk=run.pk).attempts == 2:
                    break
            resume.set()

        at_once(partial(ledger.run_job, run.pk), take_over)

        run.refresh_from_db()
        assert (run.status, run.attempts) == (Job.Status.SUCCEEDED, 2)
        assert list(run.answers.values_list("raw", flat=True)) == ["False"] * 6
        assert len(fake.requests) == 6 + 2


def test_concurrent_continuations_queue_the_run_once(enqueued):
    with serving(lambda _: completion("True")) as fake:
        run = create_run(make_round(2), SPEC | {"base_url": fake.url, "max_tokens_total": 1})
        ledger.run_job(run.pk)

        outcomes = at_once(*[partial(continue_run, run, {"max_tokens_total": 10_000})] * 2)

    assert codes_of(outcomes) == ["JobNotOpen"]
    assert len(enqueued) == 1


def test_concurrent_deletion_and_run_creation_exclude_each_other():
    job = make_harvest([("a", "b"), ("c", "d")])
    for number in range(3):
        draft = create_draft({"name": f"draft-{number}", "cells": [{"job": job.pk, "n": 1}]}, None, default_project())

        deleted, created = at_once(
            partial(delete_draft, draft), partial(create_run, draft, SPEC | {"base_url": "http://127.0.0.1:9/v1"})
        )

        draft_exists = Round.objects.filter(pk=draft.pk).exists()
        assert draft_exists == isinstance(created, JudgeRun) == isinstance(deleted, AnswersWouldBeLost)
        assert draft_exists != isinstance(created, NotFound)
        assert not JudgeAnswer.objects.exists()


@on_postgresql
def test_race_tests_pass_on_postgresql():
    outcome = run_on_postgresql(__file__)

    assert outcome.returncode == 0, outcome.stdout
