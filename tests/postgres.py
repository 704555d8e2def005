"""Helpers for race tests: threads that start together, and runs on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection

from kgharvest.errors import DomainError

SERVER = "KGHARVEST_TEST_POSTGRES"


def on_postgresql(test):
    """Mark a test that runs only if a PostgreSQL server is configured."""
    configured = pytest.mark.skipif(SERVER not in os.environ, reason=f"{SERVER} is not set")
    return pytest.mark.postgres(configured(test))


def run_on_postgresql(file: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `file` that are not marked `postgres` on the configured server, in another process.

    The database is named after this process, so that several runs can be active.
    """
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    server = urlsplit(os.environ[SERVER])
    url = urlunsplit(server._replace(path=f"{server.path}_{Path(file).stem}_{os.getpid()}"))
    selected = "not postgres and (exhaustive or not exhaustive)"  # naming the marker includes the exhaustive tests
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-m", selected],
        env={**outer, "DATABASE_URL": url, "DEBUG": "1"},
        capture_output=True,
        text=True,
    )


@contextmanager
def parameters_counted() -> Iterator[list[int]]:
    """Collect the number of parameters of each statement; PostgreSQL allows at most 65,535."""
    counts: list[int] = []

    def count(execute, sql, params, many, context):
        if not many:
            counts.append(len(params or ()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        yield counts


def at_once(*calls: Callable):
    """Run each call in a separate thread, all starting together. Return results and DomainErrors in order."""
    barrier = Barrier(len(calls))

    def run(call):
        barrier.wait()
        try:
            return call()
        except DomainError as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def as_jsonb(value: Any) -> Any:
    """Return JSON with its keys in the order of PostgreSQL: by length, then by bytes."""
    if isinstance(value, dict):
        in_order = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: as_jsonb(value[key]) for key in in_order}
    return [as_jsonb(element) for element in value] if isinstance(value, list) else value
