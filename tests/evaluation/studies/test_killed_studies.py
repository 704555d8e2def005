"""Studies that are killed at random queries, or run twice at the same time, end with the same result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from django.conf import settings

from tests.programs import run_program, start_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("KGHARVEST_TEST_POSTGRES", "") != "", reason="copies a SQLite database"),
]

STUDY = """\
name = "killed"
[[relations]]
name = "capital_of"
statement = "<ENT0> is the capital of <ENT1>."
seed_tuples = [["paris", "france"], ["rome", "italy"]]
[[relations]]
name = "prevent"
statement = "<ENT0> prevents <ENT1>."
seed_tuples = [["vaccine", "disease"], ["helmet", "injury"]]
[[harvests]]
models = ["embedded"]
settings = ["human", "top1"]
max_tuples = 12
candidates = 20
max_entity_tokens = 1
[round]
n = 6
[simulation]
seed = 7
[[scores]]
settings = ["human", "top1"]
facts = { capital_of = [["oslo", "norway"], ["lima", "peru"]], prevent = [["lock", "theft"], ["roof", "rain"]] }
[report]
outputs = ["report.json", "report.md"]
"""
SIDES = 'first = { model = "embedded", setting = "top1" }, second = { model = "embedded", setting = "human" }'
PREREGISTRATION = f"""\
[preregistration]
comparisons = [{{ {SIDES} }}]
primary_outcome = "Accuracy."
exclusion_rules = "Nobody."
stopping_rule = "All judged."
analysis = "As usual."
"""
HAS_PUBLISHING = "publishing" in settings.CONTRIB_APPS
TABLES = {
    "tuples": "SELECT relation.name, job.setting, found.rank, claim.key, round(found.score, 4)"
    " FROM kgharvest_harvestedtuple found JOIN kgharvest_harvestjob job ON job.job_ptr_id = found.job_id"
    " JOIN kgharvest_knowledgetuple claim ON claim.id = found.knowledge_tuple_id"
    " JOIN kgharvest_relation relation ON relation.id = job.relation_id",
    "statements": "SELECT position, statement, verdict FROM annotation_judgmenttask",
    "judgments": "SELECT annotator.code, task.position, judgment.label FROM annotation_judgment judgment"
    " JOIN annotation_annotator annotator ON annotator.id = judgment.annotator_id"
    " JOIN annotation_judgmenttask task ON task.id = judgment.task_id",
    "harvests": "SELECT count(*) FROM kgharvest_job WHERE kind = 'harvest' AND status = 'succeeded'",
    "rounds": "SELECT name, status FROM annotation_round",
    "reports": "SELECT count(*) FROM evaluation_report",
    "scores": "SELECT count(*) FROM kgharvest_job WHERE kind = 'evaluate_scores' AND status = 'succeeded'",
}
if HAS_PUBLISHING:
    TABLES["preregistrations"] = "SELECT version FROM evaluation_preregistration"
NUMBERS = ("cells", "totals", "alpha", "n_judgments", "n_tasks")  # of the report


class Installation:
    def __init__(self, folder: Path, migrated: Path, **environment: str) -> None:
        folder.mkdir()
        self.folder = folder
        shutil.copyfile(migrated, folder / "kgharvest.sqlite3")
        (folder / "killed.toml").write_text(STUDY + (PREREGISTRATION if HAS_PUBLISHING else ""))
        self.environment = {
            **os.environ,
            **environment,
            "KGHARVEST_DATA_DIR": str(folder),
            "DJANGO_SETTINGS_MODULE": "tests.evaluation.studies.killed_settings",
        }
        self.command = ["manage.py", "study", "run", str(folder / "killed.toml")]

    def run(self, kill_at: int = 0) -> bool:
        """Run the study; return whether it ended before the query `kill_at`."""
        done = run_program(self.command, self.environment | {"KILL_AT": str(kill_at)})
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode == 0

    def n_queries(self) -> int:
        """Return the number of queries of the last run that was not killed."""
        return int((self.folder / "n_queries").read_text())

    def result(self) -> dict[str, list]:
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            rows = {name: sorted(database.execute(query)) for name, query in TABLES.items()}
        report = json.loads((self.folder / "killed-results" / "report.json").read_text())
        assert {"report.md", "scores.svg"} <= {path.name for path in (self.folder / "killed-results").iterdir()}
        return rows | {name: report[name] for name in NUMBERS}


def kill_and_continue(folder: Path, migrated: Path, n_kills: int, seed: int, **environment: str) -> None:
    whole = Installation(folder / "whole", migrated, **environment)
    assert whole.run()
    expected, n_queries = whole.result(), whole.n_queries()
    killed, rng = Installation(folder / "killed", migrated, **environment), Random(seed)

    n = 0
    for _ in range(n_kills):
        # A continued run has fewer queries left, so later kills are drawn from a shorter range.
        n += not killed.run(rng.randint(1, max(1, n_queries // (n + 1))))
    assert killed.run()

    assert n > 0
    assert killed.result() == expected


def test_killed_study_ends_with_the_same_result(tmp_path, migrated_database):
    kill_and_continue(tmp_path, migrated_database, n_kills=2, seed=3)


@pytest.mark.exhaustive
def test_study_killed_ten_times_ends_with_the_same_result(tmp_path, migrated_database):
    kill_and_continue(tmp_path, migrated_database, n_kills=10, seed=5, REAL_HARVESTS="1")


def test_two_runs_at_the_same_time_do_no_harm(tmp_path, migrated_database):
    alone, together = (Installation(tmp_path / name, migrated_database) for name in ("alone", "together"))
    assert alone.run()
    log = together.folder / "log"
    programs = [start_program(together.command, together.environment | {"KILL_AT": "0"}, log, log) for _ in range(2)]

    for program in programs:
        program.join()

    assert [program.exitcode for program in programs] == [0, 0], log.read_text()
    assert together.result() == alone.result()
