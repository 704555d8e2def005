"""Limits for uploaded files: none grows a process by more than 500 MB or uses more than 30 seconds of CPU time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kgharvest.test_settings import run_python

MOST_MB = 500
SCRIPT = Path(__file__).with_name("hostile_files.py")


@pytest.mark.slow
def test_hostile_files_use_little_memory_and_are_rejected(tmp_path):
    done = run_python(tmp_path, str(SCRIPT))

    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert {name: result for name, result in results.items() if result["status"] or result["mb"] > MOST_MB} == {}
    accepted = {name for name, result in results.items() if not result["error"]}
    assert accepted == {"nothing", "a ZIP of many files"}
