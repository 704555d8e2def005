"""Worker kills during a judge run: stored answers are not requested again."""

from __future__ import annotations

import json

import pytest

from tests.fake_chat_endpoint import completion, serving
from tests.kgharvest.jobs.installation import Installation, kill_group, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

N_TUPLES, REPEATS, N_PARALLEL = 60, 2, 3
COUNT = "SELECT COUNT(*) FROM annotation_judgeanswer"


def test_killed_run_resumes_and_repeats_only_requests_in_progress(tmp_path, migrated_database):
    installation = Installation(tmp_path, migrated_database)
    tuples = [{"entities": [f"animal {number}", "run"], "score": -1} for number in range(N_TUPLES)]
    (tmp_path / "tuples.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in tuples))
    about = ["--relation", "can", "--model", "some-lm", "--setting", "multi"]
    installation.manage("import_tuples", str(tmp_path / "tuples.jsonl"), *about)
    job = installation.values("SELECT id FROM kgharvest_job")[0]
    (tmp_path / "round.json").write_text(json.dumps({"name": "pilot", "cells": [{"job": job, "n": 5}]}))
    installation.manage("open_round", str(tmp_path / "round.json"))

    with serving(lambda body: completion("True")._replace(delay_s=0.05)) as fake:
        spec = {"name": "judge", "kind": "chat", "model": "gpt-x", "base_url": fake.url}
        spec |= {"repeats": REPEATS, "n_parallel": N_PARALLEL}
        (tmp_path / "judge.json").write_text(json.dumps(spec))
        installation.manage("judge_tuples", "--round", "pilot", "--judge", str(tmp_path / "judge.json"))
        [run] = installation.values("SELECT job_ptr_id FROM annotation_judgerun")
        for n_stored in (20, 60):
            with installation.worker("killed") as worker:
                wait_until(lambda n_stored=n_stored: installation.values(COUNT)[0] >= n_stored)
                kill_group(worker)
            assert installation.job(run)["status"] == "running"
        with installation.worker("last"):
            wait_until(lambda: installation.job(run)["status"] == "succeeded")

    assert installation.job(run)["attempts"] == 3
    pairs = installation.values("SELECT knowledge_tuple_id || ' ' || repeat FROM annotation_judgeanswer")
    assert len(pairs) == len(set(pairs)) == N_TUPLES * REPEATS
    assert 0 <= len(fake.requests) - len(pairs) <= 2 * N_PARALLEL  # at most the requests in progress at each kill
