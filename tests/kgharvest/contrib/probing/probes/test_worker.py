"""Probes run by real worker processes."""

from __future__ import annotations

import json

import pytest

from tests.kgharvest.jobs.installation import Installation, kill_group, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db]  # each installation copies a new database

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
from django.core.management import call_command
from kgharvest.contrib.probing.probes.facts import probe_relations
from kgharvest.contrib.probing.probes.services import ProbeParams, ProbeRequest, queue_probe
from kgharvest.harvests.language_models import get_language_model
from kgharvest.relations.names import relations_of_set
call_command("import_relations", {path!r})
lm, relations = get_language_model("embedded-small"), probe_relations(relations_of_set("known"))
print(queue_probe(ProbeRequest(lm, relations, {methods}, "known", "world", ProbeParams(epochs={epochs}))).pk)
"""
CELLS = "SELECT relation_id || method || is_control FROM probing_proberecord ORDER BY id"


@pytest.fixture
def installation(tmp_path, migrated_database) -> Installation:
    return Installation(tmp_path, migrated_database, TEST_REAL_LM="1")


def queue(installation: Installation, methods: list[str], epochs: int) -> int:
    """Import RELATIONS and queue a probe of them; return its id."""
    path = installation.folder / "known.json"
    path.write_text(json.dumps(RELATIONS))
    code = QUEUE.format(path=str(path), methods=methods, epochs=epochs)
    return int(installation.manage("shell", "-v0", "-c", code).split()[-1])


def test_probe_of_killed_worker_is_taken_over_and_finishes_once(installation):
    probe = queue(installation, ["manual", "soft"], epochs=30)
    with installation.worker() as worker:
        wait_until(lambda: installation.job(probe)["stage"].startswith("soft") and installation.job(probe)["done"] >= 5)
        kill_group(worker)
    before = installation.values(CELLS)
    assert len(before) >= 5

    with installation.worker("two"):
        wait_until(lambda: installation.job(probe)["status"] == "succeeded")

    assert installation.job(probe)["attempts"] == 2
    assert installation.values(CELLS)[: len(before)] == before
    assert len(set(installation.values(CELLS))) == len(installation.values(CELLS)) == 8


def test_cancelling_stops_long_training(installation):
    probe = queue(installation, ["manual", "bertese"], epochs=100_000)

    with installation.worker():
        wait_until(lambda: installation.job(probe)["stage"].startswith("bertese"))
        installation.cancel(probe)

    assert installation.job(probe)["status"] == "cancelled"
    assert len(installation.values(CELLS)) == 4
