"""Probe jobs: records are stored one by one; jobs resume, are cancelled, and are taken over."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from kgharvest.contrib.probing.models import LearnedPrompt, Probe, ProbeRecord
from kgharvest.contrib.probing.probes import runner
from kgharvest.contrib.probing.probes.facts import ProbeRelation, split_world
from kgharvest.contrib.probing.probes.services import ProbeParams, ProbeRequest, create_probe, queue_probe
from kgharvest.contrib.probing.prompt_learning import learners
from kgharvest.engine.types import Cancelled, EngineError
from kgharvest.harvests.language_models import get_language_model
from kgharvest.jobs import ledger
from kgharvest.models import Job

pytestmark = pytest.mark.django_db

PROMPTS = ("<ENT0> is the capital of <ENT1> .", "the capital of <ENT1> is <ENT0> .")
PARAMS = ProbeParams(iterations=6, epochs=2)


def make_request(*methods: str, relations=("capital_of",), params=PARAMS, **facts) -> ProbeRequest:
    world = split_world()
    probed = [ProbeRelation(name, PROMPTS, facts.get(name, world.get(name)), "1-1") for name in relations]
    return ProbeRequest(get_language_model("embedded-small"), probed, methods, "demo", "world", params)


def run(probe: Probe) -> Probe:
    ledger.run_job(probe.pk)
    return Probe.objects.get(pk=probe.pk)


def cells_of(probe: Probe) -> set[tuple[str, str, bool]]:
    records = ProbeRecord.objects.filter(relation__probe=probe)
    return set(records.values_list("relation__name", "method", "is_control"))


def test_worker_stores_records_per_method_relation_and_control(enqueued):
    probe = queue_probe(make_request("majority", "manual", relations=("capital_of", "language_of")))

    done = run(probe)

    assert enqueued == [probe.pk]
    assert done.status == Job.Status.SUCCEEDED
    assert len(cells_of(probe)) == 2 * 2 * 2
    assert [row["method"] for row in done.document["summary"]] == ["majority", "manual"]
    assert (done.document["code_version"], done.document["revision"]) == (done.code_version, done.revision)
    assert done.revision


def test_disabled_control_is_not_measured():
    done = run(create_probe(make_request("manual", params=ProbeParams(with_control=False))))

    assert {is_control for *_, is_control in cells_of(done)} == {False}
    assert done.document["control"] == []


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """Return the names of measured cells, in order."""
    names: list[str] = []
    measure = runner.measure

    def record_and_measure(lm, cell, *args, **options):
        names.append(cell.name)
        return measure(lm, cell, *args, **options)

    monkeypatch.setattr(runner, "measure", record_and_measure)
    return names


def test_killed_probe_resumes_from_its_records(measured, monkeypatch):
    probe = create_probe(make_request("manual", "lpaqa-top1"))
    remaining = iter([True, True])
    store = runner._store

    def die_after_two(rows):
        store(rows)
        if not next(remaining, False):
            raise SystemExit  # like SIGKILL: the job stays unfinished

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_store", die_after_two)
        with pytest.raises(SystemExit):
            ledger.run_job(probe.pk)
    assert Job.objects.get(pk=probe.pk).status == Job.Status.RUNNING
    kept = cells_of(probe)
    assert 0 < len(kept) < 4
    measured.clear()
    Job.objects.filter(pk=probe.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))

    done = run(probe)

    assert (done.status, done.attempts) == (Job.Status.SUCCEEDED, 2)
    assert len(measured) == 4 - len(kept)
    assert len(cells_of(probe)) == 4


def test_records_of_another_code_version_are_replaced(measured):
    probe = create_probe(make_request("manual"))
    run(probe)
    Probe.objects.update(status=Job.Status.FAILED, code_version="of last year")

    ledger.retry(probe)
    done = run(probe)

    assert done.status == Job.Status.SUCCEEDED
    assert measured == ["manual, capital_of", "manual, capital_of, random weights"] * 2
    assert len(cells_of(probe)) == 2


def test_cancelled_probe_stops_at_next_forward_and_keeps_records(monkeypatch):
    probe = create_probe(make_request("manual", "soft"))
    ticks = []

    class CancellingHeartbeat(ledger.Heartbeat):
        def __call__(self, progress):
            ticks.append(progress.stage)
            if progress.stage == "soft, capital_of" and len(cells_of(probe)) == 2 and self._stage == progress.stage:
                ledger.cancel(Job.objects.get(pk=probe.pk))
                self._stage = ""  # report at once
            super().__call__(progress)

    monkeypatch.setattr(ledger, "Heartbeat", CancellingHeartbeat)

    done = run(probe)

    assert done.status == Job.Status.CANCELLED
    assert {method for _, method, _ in cells_of(probe)} == {"manual"}
    assert ticks.count("soft, capital_of") == 2  # the start of the cell and one forward pass


def test_lost_claim_stores_nothing():
    probe = create_probe(make_request("manual"))
    heartbeat = ledger.Heartbeat(probe.pk, ledger.claim(probe.pk, timezone.now()))
    ledger.cancel(probe)

    with pytest.raises(Cancelled):
        heartbeat.store(lambda: Probe.objects.update(name="too late"))

    assert Probe.objects.get(pk=probe.pk).name == "demo"


def test_unusable_relation_is_skipped_with_a_reason():
    unusable = {part: [("a", "☃ ☃")] for part in ("train", "dev", "test")}

    done = run(create_probe(make_request("manual", relations=("capital_of", "snow"), snow=unusable)))

    assert done.status == Job.Status.SUCCEEDED
    assert "snow: no usable train fact" in done.document["faults"]["snow"]
    assert [entry["relation"] for entry in done.document["relations"]] == ["capital_of"]


def test_failed_method_does_not_affect_other_methods(monkeypatch):
    learn_soft = learners.soft

    def fail_on_one(lm, task, **options):
        if task.relation == "bare":
            raise EngineError("no word to soften.")
        return learn_soft(lm, task, **options)

    monkeypatch.setattr(learners, "soft", fail_on_one)
    capitals = split_world()["capital_of"]

    done = run(create_probe(make_request("manual", "soft", relations=("capital_of", "bare"), bare=capitals)))

    assert done.status == Job.Status.SUCCEEDED
    assert done.document["faults"] == {"bare": "bare, soft: no word to soften."}
    assert {name for name, method, _ in cells_of(done) if method == "soft"} == {"capital_of"}
    assert {name for name, method, _ in cells_of(done) if method == "manual"} == {"capital_of", "bare"}


def test_probe_without_usable_relations_fails_with_the_reasons():
    multi_token = {part: [("berlin", "a tree in the garden of a house")] for part in ("train", "dev", "test")}

    done = run(create_probe(make_request("manual", relations=("of",), of=multi_token)))

    assert done.status == Job.Status.FAILED
    assert "no usable train fact (1 object of several tokens)" in done.error


@pytest.mark.parametrize("method", ["lpaqa", "autoprompt", "soft-data-dependent", "soft-deep"])
def test_stored_prompts_reproduce_the_measures(method):
    first = run(create_probe(make_request(method)))

    again = run(create_probe(make_request(method, params=ProbeParams(with_control=False, prompts_of=first.pk))))

    assert again.status == Job.Status.SUCCEEDED, again.error
    before, after = (
        ProbeRecord.objects.get(relation__probe=probe, is_control=False, method=method) for probe in (first, again)
    )
    assert (after.p1, after.mrr, after.n_parameters) == (before.p1, before.mrr, before.n_parameters)
    assert after.nll == pytest.approx(before.nll, abs=1e-6)
    assert after.forwards == 0


@pytest.mark.parametrize(
    ("relations", "changes", "sentence"),
    [
        (("capital_of",), {"revision": "another"}, "used a different LM or revision"),
        (("capital_of",), {"language_model": "embedded"}, "used a different LM or revision"),
        (("language_of",), {}, "has no prompts of manual for language_of"),
    ],
)
def test_missing_stored_prompts_are_rejected_with_a_message(relations, changes, sentence):
    first = run(create_probe(make_request("manual")))
    if "language_model" in changes:
        changes = {"language_model": get_language_model(changes["language_model"])}
    Probe.objects.filter(pk=first.pk).update(**changes)

    again = run(create_probe(make_request("manual", relations=relations, params=ProbeParams(prompts_of=first.pk))))

    assert sentence in again.error


def test_soft_tokens_have_nearest_words_and_controls_store_no_prompts():
    run(create_probe(make_request("soft")))

    prompts = LearnedPrompt.objects.all()

    assert {prompt.record.is_control for prompt in prompts} == {False}
    for prompt in prompts:
        n_soft = sum(token < 0 for segment in prompt.segments for token in segment)
        assert len(prompt.nearest) == n_soft > 0
        assert all(len(words) == runner.N_NEAREST for words in prompt.nearest)
        assert [words[0][0] for words in prompt.nearest] == [
            word.strip("‹›") for word in prompt.text.split() if word.startswith("‹")
        ]


def test_masked_methods_are_rejected_for_causal_lms():
    lm = SimpleNamespace(name="gpt2")

    runner.check_methods(lm, ["majority", "manual", "lpaqa", "lpaqa-rank", "lpaqa-top1"])
    with pytest.raises(EngineError, match=r"soft requires an LM with a mask token, and gpt2 has none. .* majority"):
        runner.check_methods(lm, ["lpaqa", "soft"])
