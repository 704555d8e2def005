"""Small run of benches/namespaces.py: three hosts in network namespaces, each killed once with all its processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benches.namespaces import missing
from tests.load.web_server import ROOT

MISSING = missing("redis")
pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(500)]


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_round_and_harvests_survive_cut_links_and_killed_hosts():
    size = ["--annotators", "4", "--tasks", "8", "--harvests", "4", "--longest-pause", "1"]

    done = subprocess.run(
        [sys.executable, "benches/namespaces.py", "--small", "--broker", "redis", *size],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "All checks passed." in done.stdout
