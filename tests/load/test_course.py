"""A small course: tests/load/run.py runs the full one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connection

from tests.factories import make_round
from tests.load.course import check_course, run_course
from tests.load.web_server import WebServer, url_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(280)]


def test_exactly_k_judgments_through_a_server_that_is_killed():
    round = make_round(16, batch_size=3)

    with WebServer(url_of(connection), settings.SECRET_KEY, threads=4) as server:
        course = run_course(round, server, n_annotators=6, n_processes=2, n_kills=1)

    assert course.acknowledged
    check_course(round, course)


@pytest.mark.postgres
@pytest.mark.skipif("KGHARVEST_TEST_POSTGRES" not in os.environ, reason="KGHARVEST_TEST_POSTGRES names no server")
def test_the_same_on_postgresql():
    environment = {**os.environ, "DATABASE_URL": os.environ["KGHARVEST_TEST_POSTGRES"], "DEBUG": "1"}

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-m", "not postgres"],
        env=environment,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stdout
