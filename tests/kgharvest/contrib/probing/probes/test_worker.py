"""A probe in the hands of real workers."""

from __future__ import annotations

import json

import pytest

from tests.kgharvest.jobs.installation import Installation, kill_group, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db]  # a database is made, of which each installation has a copy

RELATIONS = {
    "name": "known",
    "relations": [
        {
            "name": name,
            "statement": "<ENT0> goes with <ENT1> .",
            "initial_prompts": ["<ENT0> is the capital of <ENT1> .", "the capital of <ENT1> is <ENT0> ."],
            "seed_tuples": [["paris", "france"], ["rome", "italy"]],
        }
        for name in ("capital_of", "language_of")
    ],
}
QUEUE = """
from kgharvest.contrib.probing.probes.facts import probe_relations
from kgharvest.contrib.probing.probes.services import ProbeParams, ProbeRequest, queue_probe
from kgharvest.harvests.language_models import get_language_model
from kgharvest.relations.names import relations_of_set
lm, relations = get_language_model("embedded-small"), probe_relations(relations_of_set("known"))
print(queue_probe(ProbeRequest(lm, relations, {methods}, "known", "world", ProbeParams(epochs={epochs}))).pk)
"""
CELLS = "SELECT relation_id || method || is_control FROM probing_proberecord ORDER BY id"


@pytest.fixture
def real(tmp_path, migrated_database) -> Installation:
    installation = Installation(tmp_path, migrated_database, TEST_REAL_LM="1")
    (tmp_path / "known.json").write_text(json.dumps(RELATIONS))
    installation.manage("import_relations", str(tmp_path / "known.json"))
    return installation


def queue(real: Installation, methods: list[str], epochs: int) -> int:
    code = QUEUE.format(methods=methods, epochs=epochs)
    return int(real.manage("shell", "-v0", "-c", code).split()[-1])


def test_a_killed_workers_probe_is_taken_over_and_ends_once(real):
    probe = queue(real, ["manual", "soft"], epochs=30)
    with real.worker() as worker:
        wait_until(lambda: real.job(probe)["stage"].startswith("soft") and real.job(probe)["done"] >= 5)
        kill_group(worker)
    kept = real.values(CELLS)
    assert len(kept) >= 5

    with real.worker("two"):
        wait_until(lambda: real.job(probe)["status"] == "succeeded")

    assert real.job(probe)["attempts"] == 2
    assert real.values(CELLS)[: len(kept)] == kept
    assert len(set(real.values(CELLS))) == len(real.values(CELLS)) == 8


def test_cancelling_stops_learning_that_would_last_for_hours(real):
    probe = queue(real, ["manual", "bertese"], epochs=100_000)

    with real.worker():
        wait_until(lambda: real.job(probe)["stage"].startswith("bertese"))
        real.cancel(probe)

    assert real.job(probe)["status"] == "cancelled"
    assert len(real.values(CELLS)) == 4
