"""Probes through the API."""

from __future__ import annotations

import json

import pytest

from evaluation.scores.facts import BUILT_IN
from kgharvest.contrib.probing.models import Probe
from kgharvest.relations.services import SHIPPED, import_relations
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

PROBES = "/api/v1/probes/"


@pytest.fixture
def api():
    return client_of()


@pytest.fixture
def demo():
    return import_relations(SHIPPED / "demo.json")


def test_a_set_is_probed_with_the_facts_of_the_embedded_world(api, demo, enqueued):
    asked = {"sets": [demo.pk], "model": "embedded", "methods": ["manual"], "with_control": False, "seed": 3}

    queued = api.post(PROBES, asked, JSON)

    probe = Probe.objects.get()
    assert (queued.status_code, queued.json()["facts"], enqueued) == (202, BUILT_IN, [probe.pk])
    assert queued.headers["Location"].endswith(f"{PROBES}{probe.pk}/")
    assert (probe.payload["seed"], probe.payload["with_control"]) == (3, False)
    assert api.get(queued.headers["Location"]).json() == queued.json()
    assert [row["id"] for row in api.get(PROBES, {"status": "queued"}).json()["results"]] == [probe.pk]
    assert api.get(f"{PROBES}{probe.pk}/records/").getvalue() == b""


def test_a_probe_says_where_its_lm_is(api, demo, enqueued):
    asked = {"sets": [demo.pk], "model": "embedded", "methods": ["manual"]}

    probes = [
        Probe.objects.get(pk=api.post(PROBES, asked | more, JSON).json()["id"])
        for more in ({}, {"device": "cuda", "dtype": "bfloat16", "model": "some/bert@v1"})
    ]

    assert [(probe.queue, probe.lm) for probe in probes] == [
        ("harvest", "embedded on cpu, float32"),
        ("gpu", "some/bert@v1 on cuda, bfloat16"),
    ]


def test_facts_and_prompts_come_with_the_request(api, enqueued):
    relation = factories.make_relation("capital")
    facts = [{"part": part, "sub": f"{part} land", "obj": f"{part} town"} for part in ("train", "dev", "test")]
    prompts = [{"template": "[Y] is the capital of [X] ."}]

    api.post(
        PROBES,
        {"relations": [relation.pk], "model": "embedded", "methods": ["manual"], "facts": facts, "prompts": prompts},
        JSON,
    )

    probed = Probe.objects.get().relations.get()
    assert probed.facts["dev"] == [["dev land", "dev town"]]
    assert "<ENT1> is the capital of <ENT0> ." in probed.prompts


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"sets": []}, 400),
        ({"methods": ["magic"]}, 400),
        ({"epochs": 10**9}, 400),
        ({"learning_rate": "nan"}, 400),
        ({"facts": [{"part": "train", "sub": "a", "obj": "b", "relation": "no such"}]}, 409),
        ({"facts": [{"part": "train", "sub": "a"}]}, 400),
        ({"model": "../.."}, 409),
        ({"device": "tpu"}, 400),
        ({"dtype": "float8"}, 400),
        ({"dtype": "int8"}, 400),  # on a CPU
    ],
)
def test_a_wrong_probe_is_refused(api, demo, wrong, status):
    asked = {"sets": [demo.pk], "model": "embedded", "methods": ["manual"]}

    response = api.post(PROBES, json.dumps(asked | wrong), JSON)

    assert (response.status_code, bool(error_of(response)["message"])) == (status, True)
    assert not Probe.objects.exists()


def test_probes_of_other_projects_are_not_there(api, demo):
    other = client_of(factories.make_researcher(project=factories.make_project()))
    made = other.post(PROBES, {"sets": [demo.pk], "model": "embedded", "methods": ["manual"]}, JSON)

    assert api.get(made.headers["Location"]).status_code == 404
    assert api.get(f"{made.headers['Location']}records/").status_code == 404
