"""Score evaluation pages: queueing, execution by a worker, and results."""

import json
import re
from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from evaluation.models import ScoreEvaluation
from evaluation.scores import score_jobs
from evaluation.scores.facts import ScoredRelation
from evaluation.scores.score_jobs import ScoreRequest, queue_score_job
from evaluation.scores.scorers import document_of, score_samples
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.factories import make_harvest_job, make_language_model, make_relation, make_user, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

FACTS = [("Berlin", "Germany"), ("Paris", "France"), ("Rome", "Italy"), ("Oslo", "Norway")]
CAPITAL = ScoredRelation("capital_of", (), (), (), FACTS)


def perfect_scorer(relation, tuples, tick):
    return [float(entities in FACTS) for entities in tuples]


@pytest.fixture
def quick(monkeypatch):
    """Replace the evaluation by one relation with scores that need no LM."""

    def scores_document(language_model, payload, on_progress, user=None):
        scored = score_samples([CAPITAL], dict.fromkeys(payload["settings"], perfect_scorer), payload["seed"])
        document = document_of(scored, payload["seed"])
        return {"facts": payload["facts"], "model": str(language_model), **document, "code_version": "1.0"}

    monkeypatch.setattr(score_jobs, "scores_document", scores_document)


def run_evaluation() -> ScoreEvaluation:
    evaluation = queue_score_job(ScoreRequest(make_language_model(), ["human", "multi"]), by=None)
    ledger.run_job(evaluation.pk)
    evaluation.refresh_from_db()
    return evaluation


def test_chat_models_cannot_be_selected(researcher_client):
    chat = make_harvest_job(language_model=make_language_model("chatty:7b"), setting="llm").language_model
    lm = make_harvest_job(language_model=make_language_model("bert-like"), setting="multi").language_model

    page = researcher_client.get("/reports/scores/new/").text
    refused = researcher_client.post("/reports/scores/new/", {"model": chat.pk, "settings": ["multi"]})

    assert (str(lm) in page, str(chat) in page) == (True, False)
    assert refused.status_code != 302
    assert not ScoreEvaluation.objects.exists()


def test_selected_device_and_dtype_are_queued(researcher_client, enqueued):
    make_worker(timezone.now(), devices=["cuda:0, NVIDIA H200, 140 GiB", "cpu, 16 cores"])
    form = {"model": make_language_model("bert-like").pk, "settings": ["multi"], "dtype": "int8"}

    refused = researcher_client.post("/reports/scores/new/", form)
    researcher_client.post("/reports/scores/new/", form | {"device": "cuda:0"})

    assert "Weights in int8 require an NVIDIA GPU" in refused.text
    evaluation = ScoreEvaluation.objects.get()
    assert (evaluation.queue, evaluation.lm) == ("gpu", "bert-like on cuda:0, int8")


def test_worker_runs_requested_evaluation(researcher_client, quick, enqueued):
    language_model = make_language_model()

    response = researcher_client.post(
        "/reports/scores/new/", {"model": language_model.pk, "settings": ["human", "multi"]}
    )

    evaluation = ScoreEvaluation.objects.get()
    assert response.url == f"/reports/scores/{evaluation.pk}/"
    assert enqueued == [evaluation.pk]
    queued_page = researcher_client.get(response.url).text
    assert "waiting for a worker" in queued_page
    [job_url] = re.findall(r'data-job="([^"]+)"', queued_page)
    assert researcher_client.get(job_url).json()["is_unfinished"]
    ledger.run_job(evaluation.pk)
    assert researcher_client.get(job_url).json()["status"] == "succeeded"
    page = researcher_client.get(response.url).text
    assert "Precision and recall" in page
    assert "Average precision: human 1.00; multi 1.00." in page
    assert "4 facts and 4 false tuples of 1 relation;" in page


def test_identical_evaluation_is_not_queued_twice(enqueued):
    language_model = make_language_model()

    first, second = (queue_score_job(ScoreRequest(language_model), by=None) for _ in range(2))

    assert first.pk == second.pk
    assert enqueued == [first.pk]


def test_cancelled_evaluation_stores_no_document(researcher_client, quick, enqueued):
    evaluation = queue_score_job(ScoreRequest(make_language_model(), ["human", "multi"]), by=None)

    researcher_client.post(f"/reports/scores/{evaluation.pk}/cancel/")
    ledger.run_job(evaluation.pk)

    evaluation.refresh_from_db()
    assert (evaluation.status, evaluation.document) == (Job.Status.CANCELLED, {})
    assert "This evaluation is cancelled" in researcher_client.get(evaluation.get_absolute_url()).text
    assert researcher_client.get(f"/reports/scores/{evaluation.pk}/scores.svg").status_code == 404


def test_figure_and_numbers_can_be_downloaded(researcher_client, quick, enqueued):
    evaluation = run_evaluation()
    address = f"/reports/scores/{evaluation.pk}/scores"

    assert b"<svg" in researcher_client.get(f"{address}.svg", {"theme": "dark"}).content
    assert 'href="#scorers"' in researcher_client.get(f"{address}.svg", {"width": "500"}).text
    assert researcher_client.get(f"{address}.pdf").content.startswith(b"%PDF")
    assert json.loads(researcher_client.get(f"{address}.json").content)["n_positive"] == 4
    assert researcher_client.get(f"{address}.exe").status_code == 404


def test_list_query_count_is_constant(researcher_client, quick, enqueued, django_assert_max_num_queries):
    for _ in range(4):
        run_evaluation()

    with django_assert_max_num_queries(7):
        assert "succeeded" in researcher_client.get("/reports/scores/").text.casefold()


def row_of(client) -> list[str]:
    """Return the text of each cell of the only row of the list."""
    [row] = re.findall(r"<tr>\s*<td.*?</tr>", client.get("/reports/scores/").text, re.DOTALL)
    return [
        " ".join(unescape(re.sub("<[^>]+>", " ", cell)).split()) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
    ]


def test_list_shows_scores_lm_facts_and_user(researcher_client, researcher, quick, enqueued):
    systems = {"COMET": {"capital_of": [(["Berlin", "Germany"], 0.5)]}}
    lm = make_language_model("bert-like")
    request = ScoreRequest(lm, ["human", "multi"], more=["prior", "corrected"], systems=systems)
    evaluation = queue_score_job(request, by=researcher)

    waiting = row_of(researcher_client)
    ledger.run_job(evaluation.pk)
    done = row_of(researcher_client)

    scores = "human, multi, human (corrected) and multi (corrected), entity prior, COMET"
    assert waiting[:3] == [scores, "bert-like", "embedded LM's world"]
    assert done[:3] == [scores, "bert-like", "embedded LM's world 4 of 1 relation"]
    assert done[4] == researcher.username


def test_evaluation_of_older_version_is_listed_by_settings(researcher_client, quick, enqueued):
    evaluation = run_evaluation()
    ScoreEvaluation.objects.filter(pk=evaluation.pk).update(
        payload={"settings": ["human"], "harvests": {"top1": {}}, "facts": "mine.jsonl"}
    )

    row = row_of(researcher_client)

    assert (row[0], row[2], row[4]) == ("human, top1 (as harvested)", "mine.jsonl 4 of 1 relation", "a command")


def test_scores_are_forbidden_for_annotators(client, quick, enqueued):
    evaluation = run_evaluation()
    client.force_login(make_user())

    for path in ("", f"{evaluation.pk}/", f"{evaluation.pk}/scores.json"):
        assert client.get(f"/reports/scores/{path}").status_code == 403
    assert client.post("/reports/scores/new/", {"model": "1"}).status_code == 403


def test_unknown_lm_is_rejected(researcher_client):
    assert "Select a valid choice" in researcher_client.post("/reports/scores/new/", {"model": "x"}).text


def post_evaluation(client, **fields):
    return client.post("/reports/scores/new/", {"model": make_language_model().pk, "settings": ["human"], **fields})


def test_custom_facts_can_be_uploaded(researcher_client, enqueued):
    make_relation("capital")
    file = SimpleUploadedFile("mine.jsonl", b'{"relation": "capital", "entities": ["x", "y"]}\n')

    post_evaluation(researcher_client, facts=file)

    payload = ScoreEvaluation.objects.get().payload
    assert payload["facts"] == "mine.jsonl"
    assert [relation["facts"] for relation in payload["relations"]] == [[["x", "y"]]]


def test_invalid_fact_lines_are_listed_and_nothing_is_queued(researcher_client, enqueued):
    file = SimpleUploadedFile("mine.jsonl", b'{"relation": "nowhere", "entities": ["x", "y"]}\n{')

    page = post_evaluation(researcher_client, facts=file).text

    assert "Import failed: mine.jsonl" in page
    assert "<td>line 1</td>" in page
    assert "<td>line 2, column 2</td>" in page
    assert not ScoreEvaluation.objects.exists()
    assert enqueued == []


def test_missing_prompts_and_harvests_are_reported(researcher_client, enqueued):
    assert "Choose at least one kind of prompts" in post_evaluation(researcher_client, settings=[]).text
    assert "has no finished harvest" in post_evaluation(researcher_client, harvested=["top1"]).text
    assert not ScoreEvaluation.objects.exists()


def error_of_payload(payload) -> str:
    evaluation = queue_score_job(ScoreRequest(make_language_model(), ["human"]), by=None)
    ScoreEvaluation.objects.filter(pk=evaluation.pk).update(payload=payload)
    ledger.run_job(evaluation.pk)
    evaluation.refresh_from_db()
    assert evaluation.status == Job.Status.FAILED
    return evaluation.error


def test_evaluation_queued_by_older_version_fails_with_explanation(enqueued):
    assert "requested by an older version of kgharvest" in error_of_payload({"seed": 0})
