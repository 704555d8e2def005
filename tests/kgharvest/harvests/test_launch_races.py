"""Simultaneous launches and retries: a cell has at most one unfinished harvest."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import pytest
from django.apps import apps
from django.utils import timezone

from kgharvest.harvests.launches import plan_launch, start_launch
from kgharvest.harvests.runner import CellUnderWay, HarvestRequest, create_harvest_job, queue_harvest, unique_key_of
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, Launch
from tests import factories
from tests.postgres import at_once, on_postgresql, run_on_postgresql
from tests.refusals import codes_of, refused

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


def make_requests(n: int) -> list[HarvestRequest]:
    lm = factories.make_language_model()
    return [HarvestRequest(factories.make_relation(), lm, "multi") for _ in range(n)]


def end(*jobs: Job, status: str = Job.Status.FAILED) -> None:
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(status=status)


def test_simultaneous_launches_queue_each_cell_once(enqueued):
    requests = make_requests(6)
    plans = [plan_launch(order, timezone.now()) for order in (requests[:4], requests[:1:-1])]

    launches, executed = zip(*at_once(*(partial(start_launch, plan) for plan in plans)), strict=True)

    assert sorted(HarvestJob.objects.values_list("relation", flat=True)) == sorted(
        request.relation.pk for request in requests
    )
    assert len(enqueued) == 6
    assert {len(plan.requests) for plan in executed} == {4, 2}
    assert {len(plan.skipped) for plan in executed} == {0, 2}
    [(late, plan)] = [(launch, plan) for launch, plan in zip(launches, executed, strict=True) if plan.skipped]
    assert {skipped.request for skipped in plan.skipped} == set(requests[2:4])
    assert all(skipped.job.launch_id != late.pk for skipped in plan.skipped)


def test_one_of_two_equal_launches_is_rejected(enqueued):
    plans = [plan_launch(make_requests(3), timezone.now())] * 2

    outcomes = at_once(*(partial(start_launch, plan) for plan in plans))

    assert codes_of(outcomes) == ["NothingToLaunch"]
    assert (Launch.objects.count(), HarvestJob.objects.count(), len(enqueued)) == (1, 3, 3)


def test_simultaneous_single_requests_queue_a_cell_once(enqueued):
    [request] = make_requests(1)

    outcomes = at_once(*[partial(queue_harvest, request)] * 3)

    assert [type(outcome) for outcome in outcomes].count(CellUnderWay) == 2
    assert HarvestJob.objects.count() == 1


def test_ended_cell_can_be_harvested_again():
    [request] = make_requests(1)
    for status in (Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED):
        end(create_harvest_job(request), status=status)

    create_harvest_job(request)

    assert HarvestJob.objects.count() == 4


def test_harvest_is_not_retried_while_its_cell_is_unfinished(enqueued):
    [request] = make_requests(1)
    old = create_harvest_job(request)
    end(old)
    new = create_harvest_job(request)
    old.refresh_from_db()

    with refused("JobNotOpen", match=f"job {new.pk} has the same task and is queued"):
        ledger.retry(old)

    assert ledger.retry_all(Job.objects.all()) == 0
    assert enqueued == []


def test_only_newest_harvest_of_a_cell_is_retried(enqueued):
    [request] = make_requests(1)
    jobs = []
    for _ in range(3):
        jobs.append(create_harvest_job(request))
        end(jobs[-1])

    assert ledger.retry_all(Job.objects.all()) == 1

    assert enqueued == [jobs[-1].pk]


def test_simultaneous_retries_queue_a_cell_once(enqueued):
    [request] = make_requests(1)
    jobs = []
    for _ in range(2):
        jobs.append(create_harvest_job(request))
        end(jobs[-1])
    for job in jobs:
        job.refresh_from_db()

    outcomes = at_once(*(partial(ledger.retry, job) for job in jobs))

    assert codes_of(outcomes) == ["JobNotOpen"]
    assert Job.objects.unfinished().count() == len(enqueued) == 1


def test_migration_sets_key_of_one_unfinished_harvest_per_cell(enqueued):
    [request] = make_requests(1)
    jobs = []
    for status in (Job.Status.SUCCEEDED, Job.Status.FAILED, Job.Status.CANCELLED):
        jobs.append(create_harvest_job(request))
        end(jobs[-1], status=status)
    jobs.append(create_harvest_job(request))
    ledger.claim(jobs[-1].pk, timezone.now())
    Job.objects.update(unique_key="")
    jobs.insert(0, create_harvest_job(request))
    Job.objects.update(unique_key="")

    import_module("kgharvest.migrations.0009_job_unique_key").name_harvests(apps, None)

    keys = dict(Job.objects.values_list("pk", "unique_key"))
    assert [keys[job.pk] for job in jobs] == ["", *[unique_key_of(request)] * 4]


@on_postgresql
def test_module_passes_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout + done.stderr
