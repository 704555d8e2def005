"""Odd requests, commands and files, a few of those that the benches draw by thousands."""

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


def test_no_request_is_a_bug(enqueued):
    said: list[str] = []

    statuses, n_failed = fuzz_requests.fuzz(fuzz_requests.populate(), 7, range(N_REQUESTS), said.append)

    assert n_failed == 0, "\n".join(said)
    assert statuses.total() == N_REQUESTS
    assert statuses[200] > N_REQUESTS / 20  # it is not all refused at the door


def test_no_command_ends_with_a_traceback(tmp_path, enqueued, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)  # outputs of odd names go there
    said: list[str] = []
    fuzz_files.populate(tmp_path)

    n_run, n_failed = fuzz_files.fuzz(tmp_path, 7, range(N_COMMANDS), said.append)

    assert n_failed == 0, "\n".join(said)
    assert n_run.total() == N_COMMANDS
