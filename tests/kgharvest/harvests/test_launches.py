"""Launches: plans, skipped cells, start, progress, cancellation, and retries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kgharvest.chat_models.options import ChatOptions
from kgharvest.engine.types import HarvestParams
from kgharvest.harvests import launches
from kgharvest.harvests.launches import plan_launch, progress_of, start_launch
from kgharvest.harvests.runner import HarvestRequest, lm_of, payload_of, unique_key_of
from kgharvest.models import HarvestJob, Job, Launch
from tests import factories
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def make_requests(n: int, language_model=None, **fields) -> list[HarvestRequest]:
    language_model = language_model or factories.make_language_model()
    return [
        HarvestRequest(factories.make_relation(), language_model, **{"setting": "multi", **fields}) for _ in range(n)
    ]


def make_job_for(request: HarvestRequest, status=Job.Status.SUCCEEDED, took_s: float = 10, **fields) -> HarvestJob:
    times = {"started_at": NOW - timedelta(seconds=took_s), "finished_at": NOW} if status == "succeeded" else {}
    return factories.make_harvest_job(
        status,
        relation=request.relation,
        language_model=request.language_model,
        setting=request.setting,
        unique_key=unique_key_of(request),
        lm=lm_of(request),
        **{**times, **fields},
    )


def test_finished_cells_are_skipped_unless_repeated():
    first, second = make_requests(2)
    job = make_job_for(first)

    plan = plan_launch([first, second], NOW)

    assert [skipped.job for skipped in plan.skipped] == [job]
    assert plan.requests == [second]
    assert plan_launch([first, second], NOW, again=True).requests == [first, second]


@pytest.mark.parametrize("again", [False, True])
def test_unfinished_cells_are_skipped_even_if_repeated(again):
    first, second = make_requests(2)
    job = make_job_for(first, "queued")

    plan = plan_launch([first, second], NOW, again)

    assert [skipped.job for skipped in plan.skipped] == [job]
    assert plan.requests == [second]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_failed_and_cancelled_cells_are_not_skipped(status):
    [request] = make_requests(1)
    make_job_for(request, status)

    assert plan_launch([request], NOW).requests == [request]


def test_changed_parameters_or_relations_are_not_skipped():
    [request] = make_requests(1)
    make_job_for(request)
    request.relation.seed_tuples = [["a", "b"], ["c", "d"]]
    request.relation.save()

    assert plan_launch([request], NOW).requests == [request]
    assert plan_launch(make_requests(1, params=HarvestParams(candidates=7)), NOW).skipped == []


def test_duplicate_cells_are_harvested_once():
    [request] = make_requests(1)

    assert plan_launch([request, request], NOW).requests == [request]


def test_estimate_divides_median_duration_by_worker_processes():
    requests = make_requests(8)
    for took_s in (1, 10, 100):
        make_job_for(make_requests(1, requests[0].language_model)[0], took_s=took_s)
    factories.make_worker(NOW, n_processes=3)
    factories.make_worker(NOW)

    plan = plan_launch(requests, NOW)

    assert (plan.estimate.seconds, plan.n_parallel) == (8 * 10 / 4, 4)
    assert plan_launch(requests[:1], NOW).estimate.seconds == 10  # a single harvest is not divided


def test_estimate_is_a_bound_if_past_durations_are_missing():
    timed, untimed = make_requests(2), make_requests(3, setting="soft")
    make_job_for(make_requests(1, timed[0].language_model)[0])

    assert plan_launch(timed, NOW).estimate.is_complete
    plan = plan_launch(timed + untimed, NOW)

    assert (plan.estimate.seconds, plan.estimate.n_estimated, plan.estimate.is_complete) == (20, 2, False)
    assert plan.without_past == [f"{untimed[0].language_model.name} × soft"]


def test_planning_query_count_is_independent_of_relations(django_assert_max_num_queries):
    requests = make_requests(30)
    for request in requests[:10]:
        make_job_for(request)

    with django_assert_max_num_queries(4):  # project, workers, harvests of these cells, past durations
        plan = plan_launch(requests, NOW)

    assert len(plan.requests) == 20


def test_launch_queues_and_enqueues_all_harvests(enqueued, researcher):
    launch, _ = start_launch(plan_launch(make_requests(3), NOW), researcher)

    assert launch.created_by == researcher
    assert sorted(enqueued) == sorted(launch.jobs.filter(status="queued").values_list("pk", flat=True))
    assert len(enqueued) == 3


def test_launch_with_incomplete_relation_queues_nothing(enqueued):
    seedless = HarvestRequest(factories.make_relation(seed_tuples=[]), factories.make_language_model(), "multi")

    plan = plan_launch([*make_requests(1), seedless], NOW)
    with refused("RelationNotReady"):
        start_launch(plan)

    [refusal] = plan.refusals
    assert f"{seedless.relation.path} has 0 seed tuples" in refusal
    assert not HarvestJob.objects.exists()
    assert not Launch.objects.exists()


def test_empty_launch_is_rejected(enqueued):
    [request] = make_requests(1)
    make_job_for(request)

    with refused("NothingToLaunch", match="1 cell skipped .* same parameters"):
        start_launch(plan_launch([request], NOW))


# Progress


def make_launch(*statuses: str, **fields) -> Launch:
    launch = factories.make_launch()
    for status in statuses:
        factories.make_harvest_job(status, launch=launch, **fields)
    return launch


def test_progress_counts_statuses_and_shows_the_pace():
    launch = make_launch("queued", "queued", "failed")
    for minutes in (3, 2):
        start = NOW - timedelta(minutes=minutes)
        times = {"started_at": start, "finished_at": start + timedelta(minutes=1)}
        factories.make_harvest_job("succeeded", launch=launch, **times)

    progress = progress_of(launch, NOW)

    assert progress.counts == {"queued": 2, "running": 0, "succeeded": 2, "failed": 1, "cancelled": 0}
    assert (progress.n_over, progress.n_jobs) == (3, 5)
    assert progress.per_minute == pytest.approx(2 / 3)  # two harvests in the three minutes since the first began
    assert progress.seconds_left == pytest.approx(180)


def test_the_remaining_time_is_estimated_from_past_harvests():
    request = make_requests(1)[0]
    make_job_for(request, took_s=8)
    launch = make_launch("queued", "queued", language_model=request.language_model)

    progress = progress_of(launch, NOW)

    assert (progress.per_minute, progress.seconds_left) == (None, 16)


def test_gpu_durations_do_not_predict_cpu_durations():
    [past] = make_requests(1, device="cuda")
    make_job_for(past, took_s=8)
    on_gpu, on_cpu = (replace(past, relation=factories.make_relation(), device=device) for device in ("cuda", "cpu"))

    assert plan_launch([on_gpu], NOW).estimate.seconds == 8
    assert plan_launch([on_cpu], NOW).without_past == [f"{past.language_model.name} × multi"]


@pytest.mark.parametrize("parameters", [{"max_tuples": 2**31 - 1}, {"candidates": 100_000}, {"candidates": 100}])
def test_durations_are_scaled_for_harvests_with_more_candidates(parameters):
    [past] = make_requests(1)
    make_job_for(past, took_s=8, payload=payload_of(past))
    other = replace(past, relation=factories.make_relation(), params=HarvestParams(**parameters))

    scaled = plan_launch([other], NOW).estimate.seconds
    assert scaled == pytest.approx(8 * other.params.n_candidates / past.params.n_candidates)
    make_job_for(replace(other, relation=factories.make_relation()), took_s=300, payload=payload_of(other))

    assert plan_launch([other], NOW).estimate.seconds == 300  # a harvest of about this size is preferred


def test_durations_predict_longer_entities_only_with_shared_budget():
    [past] = make_requests(1)
    make_job_for(past, took_s=8, payload=payload_of(past))  # up to two tokens: four patterns of 900
    longer, shared = (
        replace(past, relation=factories.make_relation(), params=HarvestParams(max_entity_tokens=tokens, **budget))
        for tokens, budget in ((3, {}), (3, {"candidates": 4 * 900, "pattern_budget": "shared"}))
    )

    scaled, measured = (plan_launch([request], NOW).estimate.seconds for request in (longer, shared))
    assert scaled == pytest.approx(8 * 9 / 4)  # nine patterns instead of four
    assert measured == 8


def test_other_settings_predict_durations_unless_they_learn_prompts():
    [past] = make_requests(1)
    make_job_for(past, took_s=8, payload=payload_of(past))
    created, learned = (replace(past, relation=factories.make_relation(), setting=name) for name in ("human", "soft"))

    assert plan_launch([created], NOW).estimate.seconds == 8
    assert plan_launch([learned], NOW).without_past == [f"{past.language_model.name} × soft"]


def test_maximum_entity_length_does_not_affect_chat_models():
    chat = ChatOptions(base_url="http://127.0.0.1:9/v1")
    [past] = make_requests(1, setting="llm", chat=chat)
    make_job_for(past, took_s=8, payload=payload_of(past))
    other = replace(past, relation=factories.make_relation(), params=HarvestParams(max_entity_tokens=6))

    assert plan_launch([other], NOW).estimate.seconds == 8


def test_the_remaining_time_of_mixed_harvests_depends_on_their_arity():
    binary = make_requests(1)[0]
    ternary = HarvestRequest(factories.make_relation(arity=3), binary.language_model, "multi")
    launch = make_launch("queued", language_model=binary.language_model, relation=ternary.relation)
    times = {"started_at": NOW - timedelta(seconds=10), "finished_at": NOW}
    factories.make_harvest_job(
        "succeeded", launch=launch, language_model=binary.language_model, relation=binary.relation, **times
    )

    assert progress_of(launch, NOW).seconds_left == 20  # eight token patterns instead of four
    make_job_for(ternary, took_s=300)

    assert progress_of(launch, NOW).seconds_left == 300


def test_cancelling_a_launch_ends_its_unfinished_harvests():
    launch = make_launch("queued", "queued", "succeeded", "failed")
    other = factories.make_harvest_job("queued")

    assert launches.cancel_launch(launch) == 2

    progress = progress_of(launch, NOW)
    assert progress.counts["cancelled"] == 2
    assert progress.bar() == [
        ("succeeded", 0, 250), ("failed", 250, 250), ("running", 500, 0), ("cancelled", 500, 500),
    ]  # fmt: skip
    other.refresh_from_db()
    assert other.status == "queued"


def test_failed_harvests_of_a_launch_are_retried(enqueued):
    launch = make_launch("failed", "failed", "cancelled", error="The LM is not at home.", attempts=3)
    failed = set(launch.jobs.filter(status="failed").values_list("pk", flat=True))

    assert launches.retry_failed(launch) == 2

    queued = launch.jobs.filter(status="queued")
    assert set(queued.values_list("pk", "attempts", "error")) == {(pk, 0, "") for pk in failed}
    assert sorted(enqueued) == sorted(failed)


def test_cancelled_harvests_of_a_launch_are_retried(enqueued):
    launch = make_launch("failed", "cancelled", "cancelled", "succeeded")
    other = factories.make_harvest_job("cancelled")

    assert launches.retry_cancelled(launch) == 2

    assert progress_of(launch, NOW).counts == {"queued": 2, "running": 0, "succeeded": 1, "failed": 1, "cancelled": 0}
    other.refresh_from_db()
    assert (other.status, len(enqueued)) == ("cancelled", 2)
    assert launches.retry_cancelled(launch) == 0


def test_retry_query_count_is_independent_of_harvests(enqueued, django_assert_max_num_queries):
    launch = make_launch(*["cancelled"] * 40, relation=factories.make_relation())

    with django_assert_max_num_queries(7):  # savepoint, job ids, workers, update
        assert launches.retry_cancelled(launch) == 40

    assert len(enqueued) == 40
