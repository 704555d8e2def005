"""Limits for uploaded files: none grows a process by more than 500 MB or uses more than 30 seconds of CPU time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kgharvest.test_settings import run_python

MOST_MB = 500
SCRIPT = Path(__file__).with_name("hostile_files.py")
ACCEPTED = ("nothing", "a ZIP of many files")
REJECTED = (
    "empty relations",
    "a prompt of megabytes",
    "relations in wide characters",
    "relations in lines",
    "empty lines of prompts",
    "facts",
    "facts in one line",
    "a ZIP of 63 million lines",
    "a ZIP of blank lines",
    "words",
    "invalid judgments",
    "judgments in one line",
)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [[*ACCEPTED, *REJECTED], pytest.param([], marks=pytest.mark.exhaustive, id="all")])
def test_hostile_files_use_little_memory_and_are_rejected(tmp_path, cases):
    done = run_python(tmp_path, str(SCRIPT), *cases)

    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert {name: result for name, result in results.items() if result["status"] or result["mb"] > MOST_MB} == {}
    accepted = {name for name, result in results.items() if not result["error"]}
    assert accepted == set(ACCEPTED)
