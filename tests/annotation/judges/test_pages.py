"""Pages and API of judge runs."""

from __future__ import annotations

import json
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judges.models import OUT_OF_BUDGET, JudgeRun
from annotation.judges.runs import create_run
from kgharvest.jobs import ledger
from kgharvest.models import Job, LanguageModel
from tests.api import JSON, client_of, error_of
from tests.factories import make_judge_answer, make_judge_run, make_round, make_user, make_worker
from tests.fake_chat_endpoint import completion, serving

pytestmark = pytest.mark.django_db

PAGE = "/projects/default/rounds/pilot/judges/"
SPEC = {"name": "lm-judge", "kind": "score", "model": "embedded", "threshold": -5}


@pytest.fixture
def round():
    return make_round(3, name="pilot")


@pytest.fixture
def form(settings):
    settings.JUDGE_BASE_URL = "http://127.0.0.1:9/v1"
    return {"name": "gpt", "judge_kind": "chat", "model": "gpt-x", "prompt_price": "2", "action": "start"}


def test_run_list_shows_empty_state_and_links_runs(round, researcher_client):
    assert "No judge runs yet" in researcher_client.get(PAGE).text

    make_judge_run(round, "gpt")

    assert f'href="{PAGE}gpt/"' in researcher_client.get(PAGE).text
    assert f'href="{PAGE}"' in researcher_client.get("/projects/default/rounds/pilot/").text


def test_form_estimates_cost_and_starts_run(round, researcher_client, form):
    page = researcher_client.post(f"{PAGE}new/", form | {"action": "estimate"}).text
    assert "Estimate: 3 requests, about" in page
    assert not JudgeRun.objects.exists()

    response = researcher_client.post(f"{PAGE}new/", form)

    assert response.url == f"{PAGE}gpt/"
    run = JudgeRun.objects.get()
    assert (run.status, run.repeats, run.prompt_price) == ("queued", 1, 2)
    assert "waiting for a worker" in researcher_client.get(response.url).text


def test_form_offers_devices_of_workers(round, researcher_client, form):
    make_worker(timezone.now(), devices=["cuda:0, NVIDIA H200, 141 GiB", "cpu, 16 cores"])
    [select] = re.findall(r'<select name="device".*?</select>', researcher_client.get(f"{PAGE}new/").text, re.DOTALL)

    refused = researcher_client.post(f"{PAGE}new/", form | {"device": "tpu"}).text
    local = form | {"judge_kind": "score", "model": "some/lm", "threshold": "-5", "dtype": "int8"}
    on_a_cpu = researcher_client.post(f"{PAGE}new/", local).text
    researcher_client.post(f"{PAGE}new/", local | {"device": "cuda:0"})

    assert re.findall(r'value="([^"]*)"', select) == ["cpu", "cuda", "cuda:0", "auto"]
    assert "Select a valid choice. tpu is not one" in refused
    assert "Weights in int8 require an NVIDIA GPU" in on_a_cpu
    run = JudgeRun.objects.get()
    assert (run.queue, run.lm) == ("gpu", "some/lm on cuda:0, int8")


@pytest.mark.parametrize("model_fields", [{"model": "some/lm", "revision": "v1"}, {"model": "some/lm@v1"}])
def test_form_accepts_model_revision(round, researcher_client, form, model_fields):
    researcher_client.post(f"{PAGE}new/", form | {"judge_kind": "score", "threshold": "-5", **model_fields})

    run = JudgeRun.objects.get()
    assert (run.model, run.revision, run.lm) == ("some/lm", "v1", "some/lm@v1 on cpu, float32")
    assert LanguageModel.objects.filter(name=run.model, revision=run.revision).exists()  # loaded by the worker


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "This field is required"),
        ({"name": "new"}, "name is 'new'"),
        ({"repeats": "0"}, "greater than or equal to 1"),
        ({"budget": "1", "prompt_price": ""}, "budget requires prompt_price"),
        ({"prompt": "Is it so?"}, "Add {statement}"),
        ({"judge_kind": "file"}, "answer file is missing"),
        ({"base_url": "http://127.0.0.1/"}, "not a public internet address"),
        ({"judge_kind": "score", "threshold": "-5", "model": "/etc"}, "not found"),
    ],
)
def test_form_shows_errors_for_invalid_values(round, researcher_client, form, change, message):
    page = researcher_client.post(f"{PAGE}new/", form | change)

    assert page.status_code == 200
    assert message in page.text.replace("&#x27;", "'")


def test_form_imports_answer_file(round, researcher_client, form):
    relation = round.tasks.first().knowledge_tuple.relation
    line = {"relation": relation.path, "entities": ["head 1", "tail 1"], "raw": "Hm."}
    data = form | {"judge_kind": "file", "model": ""}

    good = SimpleUploadedFile("a.jsonl", json.dumps(line).encode())
    response = researcher_client.post(f"{PAGE}new/", data | {"answers": good})
    bad = SimpleUploadedFile("a.jsonl", b"{}")
    refused = researcher_client.post(f"{PAGE}new/", data | {"name": "other", "answers": bad}).text

    page = researcher_client.get(response.url).text
    assert "Unparsable answers" in page
    assert "Hm." in page
    assert "has no relation" in refused


def test_run_page_shows_labels_inconsistencies_and_cost(round, researcher_client):
    run = make_judge_run(round, "gpt", repeats=2, prompt_price=2)
    first, second, third = (task.knowledge_tuple for task in round.tasks.all())
    for repeat, labels in enumerate([["true", "true", ""], ["true", "false", ""]]):
        for found, label in zip((first, second, third), labels, strict=True):
            make_judge_answer(run, found, label, repeat=repeat, raw=label or "<b>odd</b>", cost="0.5")

    page = researcher_client.get(f"{PAGE}gpt/").text

    for name, n in (("True", 1), ("False", 0), ("No label", 2), ("Inconsistent across repeats", 1), ("Answers", 6)):
        assert f"<dt>{name}</dt><dd>{n}</dd>" in page
    assert "<dd>3.0000</dd>" in page
    assert "&lt;b&gt;odd&lt;/b&gt;" in page


def test_run_out_of_budget_can_be_continued_from_its_page(round, researcher_client, enqueued):
    run = make_judge_run(round, "gpt", status="failed", stage=OUT_OF_BUDGET, max_tokens_total=100, error="Stopped.")
    make_judge_answer(run, round.tasks.first().knowledge_tuple, "true", n_prompt_tokens=80)

    assert "out of budget" in researcher_client.get(f"{PAGE}gpt/").text
    page = researcher_client.post(f"{PAGE}gpt/continue/", {"max_tokens_total": "80"}, follow=True).text
    assert "has used 80 tokens" in page
    researcher_client.post(f"{PAGE}gpt/continue/", {"max_tokens_total": "5000"})

    run.refresh_from_db()
    assert (run.status, run.max_tokens_total) == ("queued", 5000)


@pytest.mark.parametrize("file_format", ["jsonl", "inspect", "lm-eval"])
def test_answers_can_be_downloaded(round, researcher_client, file_format):
    run = make_judge_run(round, "gpt")
    make_judge_answer(run, round.tasks.first().knowledge_tuple, "true")

    response = researcher_client.get(f"{PAGE}gpt/answers/{file_format}/")

    assert "head" in response.getvalue().decode()
    assert researcher_client.get(f"{PAGE}gpt/answers/docx/").status_code == 404


# API


@pytest.fixture
def api():
    return client_of()


def test_api_starts_shows_cancels_and_continues_run(round, api, enqueued):
    runs = f"/api/v1/rounds/{round.pk}/judge-runs/"
    key = {"headers": {"idempotency-key": "k1"}}
    assert api.post(f"{runs}estimate/", SPEC, JSON).json()["n_answers"] == 3

    created = api.post(runs, SPEC, JSON, **key)
    again = api.post(runs, SPEC, JSON, **key)

    assert created.status_code == 202
    assert again.json() == created.json()
    assert created.json()["spec"] == SPEC
    [row] = api.get(runs, {"status": "queued"}).json()["results"]
    address = f"/api/v1/judge-runs/{row['id']}/"
    assert api.post(f"{address}cancel/", {}, JSON).json()["status"] == "cancelled"
    assert api.post(f"{address}continue/", {"max_tokens_total": None}, JSON).status_code == 202
    ledger.run_job(row["id"])
    finished = api.get(address).json()
    assert finished["status"] == "succeeded", finished["error"]
    assert sum(finished["labels"].values()) == 3
    answers = api.get(f"{address}answers/").json()["results"]
    assert all(answer["score"] is None or answer["score"] < 0 for answer in answers)
    assert len(api.get(f"{address}answers.jsonl").getvalue().splitlines()) == 3


def test_api_rejects_invalid_specs(round, api):
    runs = f"/api/v1/rounds/{round.pk}/judge-runs/"

    for body, code in (
        ({}, "BadJudgeSpec"),
        ([], "BadJudgeSpec"),
        (SPEC | {"threshold": None}, "BadJudgeSpec"),
        (SPEC | {"path": "/etc/passwd"}, "BadJudgeSpec"),
        (SPEC | {"kind": "file"}, "BadJudgeSpec"),
    ):
        response = api.post(runs, body, JSON)
        assert response.status_code == 409
        assert error_of(response)["code"] == code


def test_duplicate_answer_import_is_rejected(round, api):
    relation = round.tasks.first().knowledge_tuple.relation
    line = json.dumps({"relation": relation.path, "entities": ["head 1", "tail 1"], "label": "true"}).encode()
    address = f"/api/v1/rounds/{round.pk}/judge-runs/import/"

    created = api.post(address, {"name": "a", "model": "gpt", "file": SimpleUploadedFile("a.jsonl", line)})
    refused = api.post(address, {"name": "a", "file": SimpleUploadedFile("a.jsonl", line)})

    assert (created.status_code, created.json()["labels"]["true"]) == (201, 1)
    assert error_of(refused)["code"] == "NameOfRunTaken"


# Annotators

NAME, MODEL, RAW = "hidden-judge-7", "oracle-lm-9", "TELLTALE-RAW-ANSWER"


def test_annotator_responses_reveal_nothing_about_judges(round, client):
    """Request all pages and endpoints before and after a judgment. No response contains run, LM, or answer."""
    with serving(lambda body: completion(f"True, {RAW}")) as fake:
        spec = {"name": NAME, "kind": "chat", "model": MODEL, "base_url": fake.url, "panel": "panel-11"}
        run = create_run(round, spec)
        ledger.run_job(run.pk)
    run.refresh_from_db()
    assert run.status == Job.Status.SUCCEEDED
    annotator = join_round(round, make_user("ann"))
    client.force_login(annotator.user)
    secrets = [NAME, MODEL, RAW, "panel-11", run.prompt_sha256, fake.url, "judge-1 fp_1"]
    judge, api = f"/judge/{round.pk}/", f"/api/v1/judging/{round.pk}/"
    annotator_urls = [
        "/",
        judge,
        f"{judge}instructions/",
        f"{judge}device/",
        f"{judge}?layout=page",
        "/api/v1/judging/",
        api,
    ]
    annotator_urls += [f"{api}{part}/" for part in ("recent", "instructions")]
    researcher_urls = [PAGE, f"{PAGE}{NAME}/", f"{PAGE}{NAME}/answers/jsonl/", f"/api/v1/judge-runs/{run.pk}/"]
    researcher_urls += [f"/api/v1/rounds/{round.pk}/judge-runs/", f"/api/v1/judge-runs/{run.pk}/answers/"]
    researcher_urls += [
        f"/projects/default/rounds/pilot/{page}" for page in ("", "statements/", "judgments.csv", "events/")
    ]

    for _ in range(2):
        for address in annotator_urls + researcher_urls:
            response = client.get(address)
            content = response.getvalue() if response.streaming else response.content
            assert response.status_code == (200 if address in annotator_urls else 403), address
            assert [secret for secret in secrets if secret.encode() in content + str(response.headers).encode()] == []
        task = client.get(api).json()["tasks"][0]["task"]
        answer = {"task": task, "label": "true", "client_uuid": "5b0e7ab4-7f6d-4c3c-9c60-6cb84d2a1f10"}
        posted = client.post(api, answer, JSON)
        assert [secret for secret in secrets if secret.encode() in posted.content] == []
