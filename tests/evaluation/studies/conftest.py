"""Studies whose harvests take no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from django.core.management import call_command

from evaluation.models import ScoreEvaluation
from evaluation.scores.facts import facts_from_json
from evaluation.scores.scorers import document_of, score_samples
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


def run_fake_scores(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Score tuples without an LM: the n-th of all scores gives every n-th tuple, from 0, the largest score."""
    payload = job.payload
    scorers = {
        name: lambda relation, tuples, tick, n=n: np.array([float(row % n == 0) for row in range(len(tuples))])
        for n, name in enumerate(payload["scorers"], start=1)
    }
    scored = score_samples(facts_from_json(payload["relations"]), scorers, payload["seed"])
    document = document_of(scored, payload["seed"]) | {"harvests": payload["harvests"], "facts": payload["facts"]}
    rows = scored.rows()
    return lambda: ScoreEvaluation.objects.filter(pk=job.pk).update(document=document, samples=rows)


@pytest.fixture
def fake_harvests(settings, monkeypatch, db, enqueued) -> None:
    demo = make_relation_set("demo", is_shipped=True)  # loading the built-in sets takes a second
    for name in ("capital_of", "prevent"):
        make_relation(name, relation_set=demo)
    runners = "tests.evaluation.studies.conftest.run_fake_"
    fake = {"harvest": f"{runners}harvest", "evaluate_scores": f"{runners}scores"}
    settings.JOB_RUNNERS = settings.JOB_RUNNERS | fake
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
