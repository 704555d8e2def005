"""Launches, harvests, tuples, and jobs in the API."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from kgharvest.harvests.tuple_files import export_tuples
from kgharvest.knowledge import curation
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, Launch
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

LAUNCHES = "/api/v1/launches/"
HARVESTS = "/api/v1/harvests/"
JOBS = "/api/v1/jobs/"
TRIPLES = [[f"head {number}", f"tail {number}"] for number in range(12)]


@pytest.fixture
def api():
    return client_of()


# Launches and jobs


def test_a_launch_queues_a_harvest_for_each_cell(api, enqueued):
    relations = [factories.make_relation() for _ in range(2)]
    body = {"models": ["embedded"], "settings": ["human", "multi"], "max_tuples": 10, "order": "consistency"}

    started = api.post(LAUNCHES, body | {"relations": [relation.pk for relation in relations]}, JSON)

    assert (started.status_code, started.json()["n_jobs"], started.json()["is_unfinished"]) == (202, 4, True)
    assert api.get(started.headers["Location"]).json()["counts"]["queued"] == 4
    assert len(enqueued) == 4
    listed = api.get(HARVESTS, {"launch": started.json()["id"], "setting": "human"}).json()["results"]
    assert {row["relation"] for row in listed} == {relation.path for relation in relations}
    params = HarvestJob.objects.first().payload["spec"]["params"]
    assert (params["max_tuples"], params["order"]) == (10, "consistency")


def test_launch_sets_device_and_dtype(api, enqueued):
    body = {"relations": [factories.make_relation().pk], "models": ["embedded"], "settings": ["human"]}

    api.post(LAUNCHES, body, JSON)
    api.post(LAUNCHES, body | {"models": ["some/bert"], "device": "cuda:1", "dtype": "int8"}, JSON)

    default, other = HarvestJob.objects.order_by("pk")
    assert [(job.payload["device"], job.payload["dtype"]) for job in (default, other)] == [
        ("cpu", "float32"),
        ("cuda:1", "int8"),
    ]
    assert [job.queue for job in (default, other)] == ["harvest", "gpu"]
    assert api.get(f"{HARVESTS}{other.pk}/").json()["device"] == "cuda:1"
    assert api.get(f"{HARVESTS}{other.pk}/").json()["dtype"] == "int8"


def test_plan_starts_nothing_and_lists_skipped_cells(api):
    relation = factories.make_relation()
    body = {"relations": [relation.pk], "models": ["embedded"], "settings": ["human"]}
    api.post(LAUNCHES, body, JSON)

    plan = api.post(f"{LAUNCHES}plan/", body | {"settings": ["human", "multi"]}, JSON).json()

    assert (plan["n_cells"], plan["n_harvests"], len(plan["skipped"])) == (2, 1, 1)
    assert Launch.objects.count() == 1


def test_launching_a_set_skips_incomplete_relations(api, enqueued):
    relation_set = factories.make_relation_set()
    factories.make_relation(relation_set=relation_set)
    factories.make_relation(relation_set=relation_set, seed_tuples=[])

    body = {"sets": [relation_set.pk], "models": ["embedded"], "settings": ["human"]}
    assert api.post(LAUNCHES, body, JSON).json()["n_jobs"] == 1


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"models": []}, 400),
        ({"settings": ["telepathy"]}, 400),
        ({"relations": []}, 400),
        ({"relations": [10**30]}, 400),
        ({"relations": ["\ud800"]}, 400),
        ({"max_tuples": 0}, 400),
        ({"order": "score"}, 400),
        ({"max_tuples": 2**31}, 400),
        ({"project": "nowhere"}, 400),
        ({"models": ["../../etc"]}, 409),
        ({"device": "tpu"}, 400),
        ({"dtype": "float12"}, 400),
        ({"dtype": "int8"}, 400),  # not available on CPUs
        ({"more": 1}, 400),
    ],
)
def test_invalid_launch_is_rejected(api, wrong, status):
    body = {"relations": [factories.make_relation().pk], "models": ["embedded"], "settings": ["human"]}

    response = api.post(LAUNCHES, json.dumps(body | wrong), JSON)

    assert (response.status_code, bool(error_of(response)["message"])) == (status, True)
    assert not Job.objects.exists()


def test_a_launch_is_cancelled_and_retried(api, enqueued):
    launch = factories.make_launch()
    for status in ("queued", "queued", "failed"):
        factories.make_harvest_job(status, launch=launch)

    cancelled = api.post(f"{LAUNCHES}{launch.pk}/cancel/", {}, JSON).json()
    retried = api.post(f"{LAUNCHES}{launch.pk}/retry/", {"status": "cancelled"}, JSON)

    assert (cancelled["counts"]["cancelled"], cancelled["is_unfinished"]) == (2, False)
    assert (retried.status_code, retried.json()["counts"]["queued"]) == (202, 2)


def test_job_is_read_cancelled_and_retried(api, enqueued):
    job = factories.make_harvest_job(stage="search", done=3, total=10)

    watched = api.get(f"{JOBS}{job.pk}/").json()
    cancelled = api.post(f"{JOBS}{job.pk}/cancel/")
    retried = api.post(f"{JOBS}{job.pk}/retry/")

    assert (watched["kind"], watched["stage"], watched["done"], watched["is_unfinished"]) == (
        "harvest",
        "search",
        3,
        True,
    )
    assert cancelled.json()["status"] == "cancelled"
    assert (retried.status_code, retried.json()["status"]) == (202, "queued")
    assert retried.headers["Location"].endswith(f"{JOBS}{job.pk}/")
    assert error_of(api.post(f"{JOBS}{job.pk}/retry/"))["code"] == "JobNotOpen"
    assert [row["id"] for row in api.get(JOBS, {"status": "queued", "kind": "harvest"}).json()["results"]] == [job.pk]


def test_viewers_cannot_change_anything(api):
    viewer = client_of(factories.make_member("viewer"))
    job = factories.make_harvest_job()
    launch = factories.make_launch()
    body = {"relations": [job.relation.pk], "models": ["embedded"], "settings": ["human"]}

    assert viewer.get(f"{JOBS}{job.pk}/").status_code == 200
    for address in (f"{JOBS}{job.pk}/cancel/", f"{LAUNCHES}{launch.pk}/cancel/"):
        assert error_of(viewer.post(address))["code"] == "NotAllowed"
    assert viewer.post(LAUNCHES, body, JSON).status_code in (403, 409)
    assert Job.objects.get().status == "queued"


def test_objects_of_other_projects_are_not_found(api):
    other = factories.make_project()
    job = factories.make_harvest(TRIPLES, project=other, launch=factories.make_launch(project=other))
    relation = factories.make_relation(relation_set=factories.make_relation_set(project=other))
    launch = {"models": ["embedded"], "settings": ["human"]}

    for address in (
        f"{JOBS}{job.pk}/", f"{HARVESTS}{job.pk}/", f"{HARVESTS}{job.pk}/tuples/", f"{HARVESTS}{job.pk}/export/",
        f"{LAUNCHES}{job.launch_id}/", f"/api/v1/relations/{relation.pk}/",
    ):  # fmt: skip
        assert api.get(address).status_code == 404
    for address in (JOBS, HARVESTS, LAUNCHES):
        assert api.get(address).json()["results"] == []
    assert error_of(api.post(LAUNCHES, launch | {"relations": [relation.pk]}, JSON))["fields"]["relations"]
    assert error_of(api.post(LAUNCHES, launch | {"project": other.slug}, JSON))["fields"]["project"]


# Tuples


def test_pages_streams_and_exports_contain_the_same_tuples(api):
    job = factories.make_harvest(TRIPLES)
    expected = [json.loads(line) for line in export_tuples(job)]

    page = api.get(f"{HARVESTS}{job.pk}/tuples/", {"limit": 5}).json()
    paged = list(page["results"])
    while page["next"]:
        page = api.get(page["next"]).json()
        paged += page["results"]
    streamed = api.get(f"{HARVESTS}{job.pk}/tuples/", headers={"accept": "application/x-ndjson"})
    lines = streamed.getvalue()
    exported = api.get(f"{HARVESTS}{job.pk}/export/", {"format": "jsonl"})

    assert paged == expected
    assert streamed.headers["Content-Type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.splitlines()] == expected
    assert exported.getvalue() == lines
    assert exported.headers["Content-Disposition"] == f'attachment; filename="harvest-{job.pk}.jsonl"'


def test_cuts_and_curation_exclude_the_same_tuples_everywhere(api):
    job = factories.make_harvest(TRIPLES)
    curation.curate(KnowledgeTuple.objects.get(entities=TRIPLES[1]), "hide", "wrong")
    query = {"cut": "top:3"}

    page = api.get(f"{HARVESTS}{job.pk}/tuples/", query).json()["results"]
    lines = api.get(f"{HARVESTS}{job.pk}/tuples/", query, headers={"accept": "application/x-ndjson"})
    everything = api.get(f"{HARVESTS}{job.pk}/tuples/", query | {"include": "all"}).json()["results"]

    assert [row["rank"] for row in page] == [1, 3]
    assert [json.loads(line)["rank"] for line in lines.getvalue().splitlines()] == [1, 3]
    assert [row["rank"] for row in everything] == [1, 2, 3]


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize(("cut", "status"), [("best", 409), ("base:99", 409), ("x" * 50, 400), ("precision:0.9", 409)])
def test_invalid_cut_returns_a_json_error(api, cut, status, accept):
    job = factories.make_harvest(TRIPLES)

    response = api.get(f"{HARVESTS}{job.pk}/tuples/", {"cut": cut}, headers={"accept": accept})

    assert (response.status_code, bool(error_of(response))) == (status, True)


@pytest.mark.parametrize("file_format", ["csv", "nt", "ttl"])
def test_exports_match_the_formats_of_the_pages(api, file_format):
    job = factories.make_harvest(TRIPLES)

    file = api.get(f"{HARVESTS}{job.pk}/export/", {"format": file_format})

    assert file.getvalue().decode() == "".join(export_tuples(job, file_format=file_format))


def test_unfinished_harvest_cannot_be_exported(api):
    job = factories.make_harvest_job()

    assert error_of(api.get(f"{HARVESTS}{job.pk}/export/"))["code"] == "NothingToExport"


def test_tuples_are_imported_once_per_idempotency_key(api):
    relation = factories.make_relation()
    lines = b'{"entities": ["Dog", "run"], "score": -1.5}\n{"entities": ["fish", "swim"], "score": -1}\n'

    def send(content: bytes):
        fields = {"file": SimpleUploadedFile("found.jsonl", content), "relation": relation.pk, "model": "gpt"}
        headers = {"idempotency-key": "once"}
        return api.post(f"{HARVESTS}import/", fields | {"setting": "llm"}, headers=headers)

    first, again = send(lines), send(lines)

    assert (first.status_code, first.json()["n_tuples"], first.json()["origin"]) == (201, 2, "imported")
    assert again.json() == first.json()
    assert HarvestJob.objects.count() == 1
    tuples = api.get(f"{first.headers['Location']}tuples/").json()["results"]
    assert [row["entities"] for row in tuples] == [["fish", "swim"], ["dog", "run"]]


def test_import_error_names_the_bad_lines(api):
    fields = {"relation": factories.make_relation().pk, "model": "gpt", "setting": "llm"}
    file = SimpleUploadedFile("found.jsonl", b'{"entities": ["a"], "score": 1}\n{"entities": ["a", "b"]}\n')

    error = error_of(api.post(f"{HARVESTS}import/", fields | {"file": file}))

    assert [reason.partition(":")[0] for reason in error["fields"]["file"]] == ["line 1", "line 2"]
    assert not HarvestJob.objects.exists()
