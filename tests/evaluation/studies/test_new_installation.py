"""The command `study` in a new installation: nothing exists, not even the data folder."""

from __future__ import annotations

import os

import pytest

from tests.evaluation.studies.conftest import STUDY
from tests.programs import run_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("KGHARVEST_TEST_POSTGRES", "") != "", reason="needs a new SQLite database"),
]


def test_verbs_prepare_the_database(tmp_path):
    path, data_folder = tmp_path / "capitals.toml", tmp_path / "new" / "var"
    path.write_text(STUDY)
    environment = os.environ | {"KGHARVEST_DATA_DIR": str(data_folder)}

    checked = run_program(["manage.py", "study", "check", str(path)], environment)
    status = run_program(["manage.py", "study", "status", str(path)], environment)

    assert checked.returncode == 0, checked.stderr
    assert "3 relations, 3 harvests" in checked.stdout
    assert (status.returncode, len(status.stderr.splitlines())) == (1, 1), status.stderr
    assert "study run" in status.stderr
