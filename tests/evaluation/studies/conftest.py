"""Studies whose harvests take no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command

from kgharvest.engine.types import HarvestResult, ScoredTuple, WeightedPrompt
from kgharvest.harvests.runner import store_result
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.factories import make_relation, make_relation_set

STUDY = """\
name = "capitals"
[[relations]]
set = "demo"
names = ["capital_of", "prevent"]
[[relations]]
name = "currency_of"
statement = "<ENT0> is the currency of <ENT1>."
seed_tuples = [["yen", "japan"], ["peso", "mexico"]]
[[harvests]]
models = ["embedded"]
settings = ["human"]
max_tuples = 8
[round]
n = 4
judgments_per_task = 1
takes_guests = true
"""


def run_fake_harvest(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Harvest `max_tuples` tuples without an LM. They depend only on the relation and the setting."""
    spec = job.payload["spec"]
    stem = f"{spec['relation']}-{spec['setting']}"
    slots = range(len(spec["seed_tuples"][0]))
    tuples = [tuple(f"{stem} {n} {slot}" for slot in slots) for n in range(spec["params"]["max_tuples"])]
    result = HarvestResult(
        prompts=(WeightedPrompt(spec["initial_prompts"][0], -1.0, 1.0),),
        tuples=tuple(ScoredTuple(entities, entities, -1.0 - rank, -2.0) for rank, entities in enumerate(tuples)),
        rejected={},
        stats={},
    )
    return lambda: store_result(job.harvestjob, result, None)


@pytest.fixture
def fake_harvests(settings, monkeypatch, db, enqueued) -> None:
    demo = make_relation_set("demo", is_shipped=True)  # loading the built-in sets takes a second
    for name in ("capital_of", "prevent"):
        make_relation(name, relation_set=demo)
    settings.JOB_RUNNERS = settings.JOB_RUNNERS | {"harvest": "tests.evaluation.studies.conftest.run_fake_harvest"}
    monkeypatch.setattr("evaluation.management.commands.study.LOOK_EVERY_S", 0.001)


@pytest.fixture
def study(tmp_path) -> Path:
    """A study file."""
    path = tmp_path / "capitals.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def run(study, capsys) -> Callable[..., str]:
    """Function that runs a verb of the command on the study and returns its output."""

    def run(verb: str = "run", *options: str) -> str:
        capsys.readouterr()
        call_command("study", verb, str(study), *options)
        return capsys.readouterr().out

    return run
