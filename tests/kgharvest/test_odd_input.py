"""Fuzzing with odd requests, commands, and files: a small sample of the thousands drawn by the benches."""

from __future__ import annotations

import logging

import pytest

from benches import fuzz_files, fuzz_requests

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

N_REQUESTS, N_COMMANDS = 400, 60


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_odd_requests_cause_no_server_error(enqueued):
    failures: list[str] = []

    statuses, n_failed = fuzz_requests.fuzz(fuzz_requests.populate(), 7, range(N_REQUESTS), failures.append)

    assert n_failed == 0, "\n".join(failures)
    assert statuses.total() == N_REQUESTS
    assert statuses[200] > N_REQUESTS / 20  # not every request is rejected early


def test_odd_commands_cause_no_traceback(tmp_path, enqueued, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)  # folder for output files with odd names
    failures: list[str] = []
    fuzz_files.populate(tmp_path)

    n_run, n_failed = fuzz_files.fuzz(tmp_path, 7, range(N_COMMANDS), failures.append)

    assert n_failed == 0, "\n".join(failures)
    assert n_run.total() == N_COMMANDS
