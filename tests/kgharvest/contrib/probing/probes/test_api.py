"""API of probes."""

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


def test_probe_of_a_set_uses_built_in_facts(api, demo, enqueued):
    body = {"sets": [demo.pk], "model": "embedded", "methods": ["manual"], "with_control": False, "seed": 3}

    queued = api.post(PROBES, body, JSON)

    probe = Probe.objects.get()
    assert (queued.status_code, queued.json()["facts"], enqueued) == (202, BUILT_IN, [probe.pk])
    assert queued.headers["Location"].endswith(f"{PROBES}{probe.pk}/")
    assert (probe.payload["seed"], probe.payload["with_control"]) == (3, False)
    assert api.get(queued.headers["Location"]).json() == queued.json()
    assert [row["id"] for row in api.get(PROBES, {"status": "queued"}).json()["results"]] == [probe.pk]
    assert api.get(f"{PROBES}{probe.pk}/records/").getvalue() == b""


def test_probe_states_queue_device_and_dtype(api, demo, enqueued):
    body = {"sets": [demo.pk], "model": "embedded", "methods": ["manual"]}

    probes = [
        Probe.objects.get(pk=api.post(PROBES, body | more, JSON).json()["id"])
        for more in ({}, {"device": "cuda", "dtype": "bfloat16", "model": "some/bert@v1"})
    ]

    assert [(probe.queue, probe.lm) for probe in probes] == [
        ("harvest", "embedded on cpu, float32"),
        ("gpu", "some/bert@v1 on cuda, bfloat16"),
    ]


def test_request_contains_facts_and_prompts(api, enqueued):
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


def test_split_facts_need_no_part_and_prompts_state_their_origin(api, enqueued):
    body = {
        "relations": [factories.make_relation("capital").pk],
        "model": "embedded",
        "methods": ["soft-mined"],
        "facts": [{"sub": f"land {n}", "obj": f"town {n}"} for n in range(10)],
        "prompts": [{"template": "[Y] is the capital of [X] .", "origin": "mined"}],
    }

    refused, queued = (api.post(PROBES, body | more, JSON) for more in ({}, {"split": "random", "seed": 1}))

    assert (refused.status_code, queued.status_code) == (400, 202)
    probed = Probe.objects.get().relations.get()
    assert [len(probed.facts[part]) for part in ("train", "dev", "test")] == [8, 1, 1]
    assert probed.origins == {"mined": ["<ENT1> is the capital of <ENT0> ."]}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"sets": []}, 400),
        ({"methods": ["magic"]}, 400),
        ({"epochs": 10**9}, 400),
        ({"learning_rate": "nan"}, 400),
        ({"facts": [{"part": "train", "sub": "a", "obj": "b", "relation": "no such"}]}, 409),
        ({"facts": [{"part": "train", "sub": "a"}]}, 400),
        ({"model": "../.."}, 409),
        ({"split": "thirds"}, 400),
        ({"methods": ["soft-mined"]}, 409),
        ({"device": "tpu"}, 400),
        ({"dtype": "float8"}, 400),
        ({"dtype": "int8"}, 400),  # int8 requires a GPU
    ],
)
def test_invalid_probe_is_rejected(api, demo, change, status):
    body = {"sets": [demo.pk], "model": "embedded", "methods": ["manual"]}

    response = api.post(PROBES, json.dumps(body | change), JSON)

    assert (response.status_code, bool(error_of(response)["message"])) == (status, True)
    assert not Probe.objects.exists()


def test_probes_of_other_projects_are_not_found(api, demo):
    other = client_of(factories.make_researcher(project=factories.make_project()))
    answer = other.post(PROBES, {"sets": [demo.pk], "model": "embedded", "methods": ["manual"]}, JSON)

    assert api.get(answer.headers["Location"]).status_code == 404
    assert api.get(f"{answer.headers['Location']}records/").status_code == 404
