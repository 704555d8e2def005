"""Worker registry: queues, rows, heartbeats, LMs in memory, and devices."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from kgharvest.jobs import devices, ledger, workers
from kgharvest.jobs.queues import queue_of
from kgharvest.models import Job, Worker
from tests import factories

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPEC = workers.WorkerSpec("celery@here", ["harvest", "urgent"], 2)
ALL_BUT_GPU = ["urgent", "light", "harvest"]


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    monkeypatch.setattr(devices, "in_words", lambda: ["cpu, 2 cores"])


# Queues


@pytest.mark.parametrize(
    ("kind", "payload", "queue"),
    [
        ("mark_sensitive", {}, "urgent"),
        ("mark_sensitive", {"device": "cuda"}, "urgent"),
        ("import", {"device": "cuda"}, "light"),
        ("harvest", {"device": "cpu"}, "harvest"),
        ("harvest", {"device": "cuda"}, "gpu"),
        ("harvest", {"device": "auto"}, "gpu"),
        ("harvest", {"device": "mps"}, "harvest"),
        ("harvest", {"device": "cuda:1"}, "gpu"),
        ("evaluate_scores", {}, "harvest"),
        ("judge", {"is_trusted": True}, "harvest"),
    ],
)
def test_queue_depends_on_job_kind_and_device(kind, payload, queue):
    assert queue_of(kind, payload) == queue
    one = Job.objects.create(kind=kind, payload=payload)
    [other] = Job.objects.bulk_create([Job(kind=kind, payload=payload)])
    assert {Job.objects.get(pk=job.pk).queue for job in (one, other)} == {queue}


@pytest.mark.parametrize(
    ("kinds", "workers_queues", "lacking"),
    [
        ([], [], ""),
        (["harvest"], [], "No worker is running"),
        (["harvest"], [["harvest"]], ""),
        (["harvest"], [["urgent"]], "No worker for the queue harvest is running"),
        (["mark_sensitive"], [["urgent"]], ""),
        (["mark_sensitive", "harvest"], [["urgent"]], "No worker for the queue harvest"),
        (["mark_sensitive", "harvest"], [["light"]], "No worker for the queue harvest or urgent"),
        (["mark_sensitive", "harvest"], [["urgent"], ["harvest"]], ""),
        (["gpu"], [ALL_BUT_GPU], "No worker with a GPU is running"),
        (["gpu"], [["gpu"]], ""),
    ],
)
def test_missing_workers_are_reported_by_queue(kinds, workers_queues, lacking):
    for kind in kinds:
        payload = {"device": "cuda"} if kind == "gpu" else {}
        Job.objects.create(kind="harvest" if payload else kind, payload=payload)
    for queues in workers_queues:
        factories.make_worker(NOW, queues=queues)

    assert workers.lacking(NOW)[: len(lacking) or None] == lacking


def test_draining_and_gone_workers_serve_no_queues():
    factories.make_worker(NOW, is_draining=True)
    factories.make_worker(NOW, left_at=NOW)
    factories.make_worker(NOW - timedelta(minutes=2))

    assert not workers.taking(NOW).exists()
    assert workers.n_processes(NOW) == 0


# Rows


def test_a_worker_stores_its_row_and_heartbeats():
    workers.beat(SPEC, NOW)
    workers.beat(SPEC, NOW + timedelta(seconds=5))

    worker = Worker.objects.get()
    assert (worker.name, worker.queues, worker.devices) == ("celery@here", ["harvest", "urgent"], ["cpu, 2 cores"])
    assert (worker.n_processes, worker.pid) == (2, os.getpid())
    assert (worker.started_at, worker.seen_at) == (NOW, NOW + timedelta(seconds=5))


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ({"host": "elsewhere", "pid": 7, "token": uuid4()}, "celery-2@here"),
        ({"pid": 2**22 + 1, "token": uuid4()}, "celery-2@here"),  # a container with the same host name
        ({"host": "elsewhere", "left_at": NOW}, "celery@here"),
        ({"seen_at": NOW - timedelta(minutes=2), "host": "elsewhere"}, "celery@here"),
        ({"pid": os.getppid()}, "celery-2@here"),
        ({"pid": 2**22 + 1}, "celery@here"),  # above the largest possible process id
    ],
)
def test_a_name_belongs_to_one_worker_at_a_time(monkeypatch, before, name):
    monkeypatch.setattr(workers.socket, "gethostname", lambda: "here")
    defaults = {"host": "here", "token": workers.new_token()}
    factories.make_worker(before.pop("seen_at", NOW), name="celery@here", **defaults | before)

    assert workers.beat(SPEC, NOW).name == name


def test_worker_gets_a_new_row_after_losing_its_row():
    """Simulate a worker that was suspended for more than a minute."""
    workers.beat(SPEC, NOW)
    later = NOW + timedelta(minutes=5)
    Worker.objects.update(token=uuid4(), seen_at=later, host="elsewhere")

    assert workers.beat(SPEC, later).name == "celery-2@here"


def test_workers_without_jobs_are_deleted_after_a_day():
    idle, busy = factories.make_worker(NOW), factories.make_worker(NOW)
    factories.make_harvest_job("succeeded", worker=busy)

    workers.forget_gone(NOW + timedelta(hours=25))

    assert not Worker.objects.filter(pk=idle.pk).exists()
    assert Worker.objects.filter(pk=busy.pk).exists()


def test_workers_with_jobs_are_deleted_after_ninety_days():
    long_gone = factories.make_worker(NOW)
    recent = factories.make_worker(NOW + timedelta(days=2))
    jobs = [factories.make_harvest_job("succeeded", worker=worker) for worker in (long_gone, recent)]

    workers.forget_gone(NOW + timedelta(days=90))
    assert Worker.objects.count() == 2
    workers.forget_gone(NOW + timedelta(days=91))

    assert list(Worker.objects.all()) == [recent]
    assert [Job.objects.get(pk=job.pk).worker for job in jobs] == [None, recent]


def test_claims_store_the_worker_unless_made_by_a_command():
    first, second = factories.make_harvest_job(), factories.make_harvest_job()
    ledger.claim(first.pk, NOW)
    worker = workers.beat(SPEC, NOW)
    ledger.claim(second.pk, NOW)

    assert list(Job.objects.order_by("pk").values_list("worker", flat=True)) == [None, worker.pk]


def test_draining_worker_claims_nothing():
    workers.beat(SPEC, NOW)
    Worker.objects.update(is_draining=True)

    assert ledger.claim(factories.make_harvest_job().pk, NOW) is None


# LMs in memory


def test_the_lms_of_living_processes_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_reports", tmp_path)
    workers.report_in_memory(["bert on cpu, float32", "albert on cpu, float32"])
    (tmp_path / str(os.getppid())).write_text('["bert on cpu, float32", "gpt2 on cpu, float32"]')
    (tmp_path / str(2**22 + 1)).write_text('["of a process that died"]')

    assert workers.in_memory() == ["albert on cpu, float32", "bert on cpu, float32", "gpt2 on cpu, float32"]
    assert workers.beat(SPEC, NOW).language_models == []  # a new row
    assert workers.beat(SPEC, NOW).language_models == workers.in_memory()


# Devices

NVIDIA_SMI = """\
0, GPU-aa11, NVIDIA H100 80GB HBM3, 81559
1, GPU-bb22, NVIDIA H100 80GB HBM3, 81559
2, GPU-ab33, NVIDIA A10, [N/A]
"""


@pytest.mark.parametrize(
    ("chosen", "indices"),
    [
        (None, "012"),
        ("", ""),
        ("2,0", "20"),
        ("GPU-bb22", "1"),
        ("GPU-a", ""),  # ambiguous prefix
        ("1,9,0", "1"),
        ("-1", ""),
        ("0,0", "0"),
    ],
)
def test_visible_gpus_follow_the_device_selection(chosen, indices):
    assert "".join(gpu.index for gpu in devices.visible(devices.parse(NVIDIA_SMI), chosen)) == indices


# Output format from NVIDIA's MIG user guide (driver 470 and newer), plus a card without MIG.
NVIDIA_SMI_L = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA A10 (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
"""


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("MIG-c7384736-a75d-5afc-978f-d2f1294409fd", ["cuda:0, MIG 3g.20gb, 20 GiB"]),
        (
            " MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d,MIG-c7384736-a75d-5afc-978f-d2f1294409fd",
            ["cuda:0, MIG 1g.5gb+me, 5 GiB"],
        ),
        ("MIG-00000000-0000-0000-0000-000000000000", []),
        ("1", ["cuda:0, NVIDIA H100 80GB HBM3, 80 GiB"]),
    ],
)
def test_mig_partition_is_a_separate_device(request, tmp_path, monkeypatch, chosen, words):
    """Use a fake nvidia-smi."""
    monkeypatch.undo()  # restore devices.in_words
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nif [ "$1" = -L ]; then cat <<E\n{NVIDIA_SMI_L}E\nelse cat <<E\n{NVIDIA_SMI}E\nfi\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    devices.gpus.cache_clear()
    request.addfinalizer(devices.gpus.cache_clear)

    assert devices.in_words()[:-1] == words
