"""Small load test. tests/load/run.py runs the full one."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import connection

from tests.factories import make_round
from tests.load.course import check_course, run_course
from tests.load.web_server import WebServer, url_of
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(280)]


def test_tasks_get_exactly_k_judgments_despite_server_kill():
    round = make_round(16, batch_size=3)

    with WebServer(url_of(connection), settings.SECRET_KEY, "--threads", "4") as server:
        course = run_course(round, server, n_annotators=6, n_processes=2, n_kills=1)

    assert course.acknowledged
    check_course(round, course)


@on_postgresql
def test_load_test_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
