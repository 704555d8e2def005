"""What tests of races need to hold on PostgreSQL, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SERVER = "KGHARVEST_TEST_POSTGRES"


def on_postgresql(test):
    """Mark a test that runs only where a PostgreSQL server is named."""
    named = pytest.mark.skipif(SERVER not in os.environ, reason=f"{SERVER} names no server")
    return pytest.mark.postgres(named(test))


def run_on_postgresql(file: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `file` that are not marked as PostgreSQL's own, on that server, in another process."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-m", "not postgres"],
        env={**os.environ, "DATABASE_URL": os.environ[SERVER], "DEBUG": "1"},
        capture_output=True,
        text=True,
    )
