"""Evaluations of scores that are kept: queued, run by a worker, shown."""

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


def knows_all(relation, tuples, tick):
    return [float(entities in FACTS) for entities in tuples]


@pytest.fixture
def quick(monkeypatch):
    """One relation, and scores that need no LM."""

    def scores_document(language_model, payload, on_progress):
        scored = score_samples([CAPITAL], dict.fromkeys(payload["settings"], knows_all), payload["seed"])
        document = document_of(scored, payload["seed"])
        return {"facts": payload["facts"], "model": str(language_model), **document, "code_version": "1.0"}

    monkeypatch.setattr(score_jobs, "scores_document", scores_document)


def evaluated() -> ScoreEvaluation:
    evaluation = queue_score_job(ScoreRequest(make_language_model(), ["human", "multi"]), by=None)
    ledger.run_job(evaluation.pk)
    evaluation.refresh_from_db()
    return evaluation


def test_chat_models_are_not_offered_as_they_are_never_loaded(researcher_client):
    chat = make_harvest_job(language_model=make_language_model("chatty:7b"), setting="llm").language_model
    lm = make_harvest_job(language_model=make_language_model("bert-like"), setting="multi").language_model

    page = researcher_client.get("/reports/scores/new/").text
    refused = researcher_client.post("/reports/scores/new/", {"model": chat.pk, "settings": ["multi"]})

    assert (str(lm) in page, str(chat) in page) == (True, False)
    assert refused.status_code != 302
    assert not ScoreEvaluation.objects.exists()


def test_the_device_and_number_format_that_are_chosen_are_asked(researcher_client, enqueued):
    make_worker(timezone.now(), devices=["cuda:0, NVIDIA H200, 140 GiB", "cpu, 16 cores"])
    asked = {"model": make_language_model("bert-like").pk, "settings": ["multi"], "dtype": "int8"}

    refused = researcher_client.post("/reports/scores/new/", asked)
    researcher_client.post("/reports/scores/new/", asked | {"device": "cuda:0"})

    assert "Weights in int8 require an NVIDIA GPU" in refused.text
    evaluation = ScoreEvaluation.objects.get()
    assert (evaluation.queue, evaluation.lm) == ("gpu", "bert-like on cuda:0, int8")


def test_a_worker_evaluates_what_a_researcher_asked_for(researcher_client, quick, enqueued):
    language_model = make_language_model()

    response = researcher_client.post(
        "/reports/scores/new/", {"model": language_model.pk, "settings": ["human", "multi"]}
    )

    evaluation = ScoreEvaluation.objects.get()
    assert response.url == f"/reports/scores/{evaluation.pk}/"
    assert enqueued == [evaluation.pk]
    waiting = researcher_client.get(response.url).text
    assert "waiting for a worker" in waiting
    [watched] = re.findall(r'data-job="([^"]+)"', waiting)
    assert researcher_client.get(watched).json()["is_unfinished"]
    ledger.run_job(evaluation.pk)
    assert researcher_client.get(watched).json()["status"] == "succeeded"
    page = researcher_client.get(response.url).text
    assert "Precision and recall" in page
    assert "Average precision: human 1.00; multi 1.00." in page
    assert "4 facts and 4 false tuples of 1 relation;" in page


def test_an_lm_that_is_under_way_is_not_queued_twice(enqueued):
    language_model = make_language_model()

    first, second = (queue_score_job(ScoreRequest(language_model), by=None) for _ in range(2))

    assert first.pk == second.pk
    assert enqueued == [first.pk]


def test_a_cancelled_evaluation_stores_nothing(researcher_client, quick, enqueued):
    evaluation = queue_score_job(ScoreRequest(make_language_model(), ["human", "multi"]), by=None)

    researcher_client.post(f"/reports/scores/{evaluation.pk}/cancel/")
    ledger.run_job(evaluation.pk)

    evaluation.refresh_from_db()
    assert (evaluation.status, evaluation.document) == (Job.Status.CANCELLED, {})
    assert "This evaluation is cancelled" in researcher_client.get(evaluation.get_absolute_url()).text
    assert researcher_client.get(f"/reports/scores/{evaluation.pk}/scores.svg").status_code == 404


def test_figure_and_numbers_come_as_files(researcher_client, quick, enqueued):
    evaluation = evaluated()
    address = f"/reports/scores/{evaluation.pk}/scores"

    assert b"<svg" in researcher_client.get(f"{address}.svg", {"theme": "dark"}).content
    assert 'href="#scorers"' in researcher_client.get(f"{address}.svg", {"width": "500"}).text
    assert researcher_client.get(f"{address}.pdf").content.startswith(b"%PDF")
    assert json.loads(researcher_client.get(f"{address}.json").content)["n_positive"] == 4
    assert researcher_client.get(f"{address}.exe").status_code == 404


def test_the_list_takes_the_same_queries_for_more(researcher_client, quick, enqueued, django_assert_max_num_queries):
    for _ in range(4):
        evaluated()

    with django_assert_max_num_queries(7):
        assert "succeeded" in researcher_client.get("/reports/scores/").text.casefold()


def row_of(client) -> list[str]:
    """Return the words of each cell of the only row of the list."""
    [row] = re.findall(r"<tr>\s*<td.*?</tr>", client.get("/reports/scores/").text, re.DOTALL)
    return [
        " ".join(unescape(re.sub("<[^>]+>", " ", cell)).split()) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
    ]


def test_the_list_says_what_was_evaluated_on_what_and_by_whom(researcher_client, researcher, quick, enqueued):
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


def test_an_evaluation_of_an_older_version_is_listed_by_its_settings(researcher_client, quick, enqueued):
    evaluation = evaluated()
    ScoreEvaluation.objects.filter(pk=evaluation.pk).update(
        payload={"settings": ["human"], "harvests": {"top1": {}}, "facts": "mine.jsonl"}
    )

    row = row_of(researcher_client)

    assert (row[0], row[2], row[4]) == ("human, top1 (as harvested)", "mine.jsonl 4 of 1 relation", "a command")


def test_scores_are_closed_to_annotators(client, quick, enqueued):
    evaluation = evaluated()
    client.force_login(make_user())

    for path in ("", f"{evaluation.pk}/", f"{evaluation.pk}/scores.json"):
        assert client.get(f"/reports/scores/{path}").status_code == 403
    assert client.post("/reports/scores/new/", {"model": "1"}).status_code == 403


def test_an_unknown_lm_is_refused(researcher_client):
    assert "Select a valid choice" in researcher_client.post("/reports/scores/new/", {"model": "x"}).text


def posted(client, **fields):
    return client.post("/reports/scores/new/", {"model": make_language_model().pk, "settings": ["human"], **fields})


def test_facts_of_ones_own_come_as_a_file(researcher_client, enqueued):
    make_relation("capital")
    file = SimpleUploadedFile("mine.jsonl", b'{"relation": "capital", "entities": ["x", "y"]}\n')

    posted(researcher_client, facts=file)

    payload = ScoreEvaluation.objects.get().payload
    assert payload["facts"] == "mine.jsonl"
    assert [relation["facts"] for relation in payload["relations"]] == [[["x", "y"]]]


def test_a_file_with_bad_lines_lists_them_and_asks_for_nothing(researcher_client, enqueued):
    file = SimpleUploadedFile("mine.jsonl", b'{"relation": "nowhere", "entities": ["x", "y"]}\n{')

    page = posted(researcher_client, facts=file).text

    assert "Import failed: mine.jsonl" in page
    assert "<td>line 1</td>" in page
    assert "<td>line 2, column 2</td>" in page
    assert not ScoreEvaluation.objects.exists()
    assert enqueued == []


def test_nothing_to_compare_and_nothing_harvested_are_said(researcher_client, enqueued):
    assert "Choose at least one kind of prompts" in posted(researcher_client, settings=[]).text
    assert "has a finished harvest" in posted(researcher_client, harvested=["top1"]).text
    assert not ScoreEvaluation.objects.exists()


def failed_with(payload) -> str:
    evaluation = queue_score_job(ScoreRequest(make_language_model(), ["human"]), by=None)
    ScoreEvaluation.objects.filter(pk=evaluation.pk).update(payload=payload)
    ledger.run_job(evaluation.pk)
    evaluation.refresh_from_db()
    assert evaluation.status == Job.Status.FAILED
    return evaluation.error


def test_an_evaluation_queued_by_an_older_version_fails_with_a_sentence(enqueued):
    assert "requested by an older version of kgharvest" in failed_with({"seed": 0})
