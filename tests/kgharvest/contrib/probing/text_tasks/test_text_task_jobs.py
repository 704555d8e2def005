"""Text tasks as jobs: pages, API, and runs by a worker."""

from __future__ import annotations

import json
from html import unescape
from random import Random

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from kgharvest.contrib.probing.models import TextTask
from kgharvest.contrib.probing.probes.facts import split_world
from kgharvest.contrib.probing.text_tasks.services import TextTaskRequest, queue_text_task
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.harvests.language_models import get_language_model
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.api import JSON, client_of, error_of
from tests.factories import make_relation, make_relation_set, make_user

pytestmark = pytest.mark.django_db

API, NEW = "/api/v1/text-tasks/", "/reports/text-tasks/new/"
PLACES = ("italy", "france")
QUICK = {"iterations": 4, "candidates": 4}


def text_lines() -> list[dict]:
    """Return labeled texts with their parts: countries and animals of the embedded LM."""
    world = {relation.name: [fact[0] for fact in relation.facts] for relation in load_world()}
    rows = [(f"the {name}", "country") for name in world["region_of"][:30]]
    rows += [(f"the {name}", "animal") for name in world["lives_in"][:30]]
    Random(0).shuffle(rows)
    parts = ["train"] * 30 + ["dev"] * 10 + ["test"] * 20
    return [{"part": part, "sentence": text, "label": label} for part, (text, label) in zip(parts, rows, strict=True)]


def make_task(lines: list[dict] | None = None, task="classify", relations=(), **options) -> TextTask:
    text = "\n".join(map(json.dumps, lines or text_lines()))
    lm = get_language_model("embedded-small")
    request = TextTaskRequest(task, lm, "names", text, relations, QUICK | options, with_control=False)
    return queue_text_task(request)


def run(task: TextTask) -> TextTask:
    ledger.run_job(task.pk)
    return TextTask.objects.get(pk=task.pk)


def test_worker_classifies_texts_and_stores_records(enqueued):
    task = make_task(methods=["majority", "autoprompt"])

    done = run(task)

    assert enqueued == [task.pk]
    assert (done.status, done.error) == (Job.Status.SUCCEEDED, "")
    assert [record["method"] for record in done.records] == ["majority", "autoprompt"]
    assert [done.records[1][f"n_{part}"] for part in ("train", "dev", "test")] == [30, 10, 20]
    assert done.records[1]["forwards"] > 0


def test_worker_extracts_objects_of_facts(enqueued):
    prompt = "<ENT0> is the capital of <ENT1> ."
    capitals = make_relation(name="capital_of", relation_set=make_relation_set("known"), initial_prompts=[prompt])
    lines = [
        {"part": part, "sub": city, "obj": country, "context": f"{city} is in {country} ."}
        for part, pairs in split_world()["capital_of"].items()
        for city, country in pairs
    ]

    done = run(make_task(lines, "extract", [capitals], methods=["majority", "manual"]))

    assert (done.status, done.error) == (Job.Status.SUCCEEDED, "")
    majority, manual = done.records
    assert manual["p1"] > majority["p1"] + 0.3


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"part": "train", "sentence": "the cat"}, "line 61: has no 'label'"),
        ({"part": "testing", "sentence": "the cat", "label": "animal"}, "line 61: has no part; add train, dev, test"),
    ],
)
def test_api_and_form_reject_invalid_lines_with_their_numbers(researcher_client, enqueued, line, error):
    lines = [*text_lines(), line]
    upload = SimpleUploadedFile("names.jsonl", "\n".join(map(json.dumps, lines)).encode())

    answer = client_of().post(API, {"task": "classify", "model": "embedded-small", "lines": lines}, JSON)
    page = researcher_client.post(NEW, form_data(lines=upload)).content.decode()

    assert answer.status_code == 400
    assert error in error_of(answer)["message"]
    assert all(f"<td>{text}" in unescape(page) for text in error.split(": "))
    assert not TextTask.objects.exists()


def test_facts_without_their_object_in_the_context_are_rejected_with_their_numbers(enqueued):
    capitals = make_relation(name="capital_of", relation_set=make_relation_set("known"))
    facts = [{"part": "train", "sub": "rome", "obj": "italy", "context": f"rome is in {name} ."} for name in PLACES]

    with pytest.raises(ImportRefused, match='line 2: has a "context" without its object'):
        make_task(facts, "extract", [capitals])

    assert not TextTask.objects.exists()


@pytest.mark.parametrize(
    ("task", "options", "error"),
    [
        ("classify", {"methods": ["autoprompt"], "iterations": 2}, "2 iterations cannot fill 3 triggers"),
        ("classify", {"methods": ["autoprompt"], "template": "{sentence} [P] .", "grid_triggers": [1]}, "no trigger"),
        ("classify", {"label_words": {"animal": ["cat"]}}, "has no words"),
        ("classify", {"train_sizes": [10_000]}, "Subsets have "),
        ("extract", {"template": "{sentence} [T] [P] ."}, "unknown field"),
        ("extract", {"methods": ["autoprompt"], "template": "{context} {subject} [P] ."}, "no trigger"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_a_worker_runs(task, options, error, enqueued):
    capitals = make_relation(name="capital_of", relation_set=make_relation_set("known"))
    facts = [
        {"part": part, "sub": city, "obj": country, "context": f"{city} is in {country} ."}
        for part, pairs in split_world()["capital_of"].items()
        for city, country in pairs
    ]

    with pytest.raises((DomainError, EngineError), match=error):
        make_task(*((facts, task, [capitals]) if task == "extract" else ()), **options)

    assert not enqueued
    assert not TextTask.objects.exists()


def test_api_starts_lists_and_returns_tasks(enqueued):
    api = client_of()
    body = {"task": "classify", "model": "embedded-small", "lines": text_lines(), "methods": ["majority"], "seed": 7}

    queued = api.post(API, body, JSON)

    task = TextTask.objects.get()
    assert (queued.status_code, enqueued) == (202, [task.pk])
    assert task.payload["options"]["seed"] == 7
    assert task.payload["options"]["iterations"] == 180
    assert [row["id"] for row in api.get(API, {"status": "queued"}).json()["results"]] == [task.pk]
    run(task)
    [record] = api.get(queued.headers["Location"]).json()["records"]
    assert record["method"] == "majority"


def test_api_rejects_methods_of_the_other_task_and_extraction_without_relations(enqueued):
    api = client_of()
    body = {"task": "extract", "model": "embedded-small", "lines": [{"part": "train"}]}

    unknown = api.post(API, body | {"methods": ["bilstm"]}, JSON)
    without_relations = api.post(API, body, JSON)

    assert "extract has no method bilstm" in error_of(unknown)["message"]
    assert "Select a relation set" in error_of(without_relations)["message"]
    assert not TextTask.objects.exists()


def form_data(**fields) -> dict:
    content = "\n".join(map(json.dumps, text_lines())).encode()
    upload = SimpleUploadedFile("names.jsonl", content)
    return {"task": "classify", "model": "embedded-small", "lines": upload, **QUICK, **fields}


def test_form_starts_a_task_and_page_shows_its_results(researcher_client, enqueued):
    fields = {
        "methods": ["autoprompt"],
        "grid_triggers": "1, 2",
        "label_words": "animal=animal\ncountry=country,nation",
    }

    researcher_client.post(NEW, form_data(**fields))

    task = TextTask.objects.get()
    options = task.payload["options"]
    assert (options["grid_triggers"], options["label_words"]["country"]) == ([1, 2], ["country", "nation"])
    assert "waiting for a worker" in researcher_client.get(task.get_absolute_url()).content.decode()
    run(task)
    page = researcher_client.get(task.get_absolute_url()).content.decode()
    assert all(title in page for title in ("Methods", "Precision per label", "Grid of AutoPrompt"))
    assert "names.jsonl" in researcher_client.get("/reports/text-tasks/").content.decode()
    records = researcher_client.get(f"{task.get_absolute_url()}records.jsonl").getvalue().decode().splitlines()
    assert [json.loads(line)["method"] for line in records] == ["autoprompt"]
    assert researcher_client.get(f"{task.get_absolute_url()}figure.svg").getvalue().startswith(b"<svg")
    assert researcher_client.get(f"{task.get_absolute_url()}figure.png").status_code == 404


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"grid_triggers": "1, x"}, "Enter whole numbers above 0"),
        ({"label_words": "animal"}, "NAME=WORD,WORD"),
        ({"lines": SimpleUploadedFile("names.jsonl", b"\xff")}, "names.jsonl is not UTF-8"),
        ({"methods": ["lpaqa-top1"]}, "classify has no method lpaqa-top1"),
    ],
)
def test_form_rejects_invalid_values(researcher_client, enqueued, fields, error):
    page = researcher_client.post(NEW, form_data(**fields)).content.decode()

    assert error in page
    assert not TextTask.objects.exists()


def test_task_can_be_canceled_and_retried(researcher_client, enqueued):
    task = make_task()

    researcher_client.post(f"{task.get_absolute_url()}cancel/")
    assert TextTask.objects.get().status == Job.Status.CANCELLED
    researcher_client.post(f"{task.get_absolute_url()}retry/")
    assert TextTask.objects.get().status == Job.Status.QUEUED


def test_tasks_of_other_projects_are_not_found(client, enqueued):
    task = make_task()
    stranger = make_user("stranger")
    client.force_login(stranger)

    assert client.get(task.get_absolute_url()).status_code in (403, 404)
    assert client_of(stranger).get(f"{API}{task.pk}/").status_code in (403, 404)
