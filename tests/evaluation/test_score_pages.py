"""Evaluations of scores that are kept: queued, run by a worker, shown."""

import io
import json

import pytest
from django.core.management import call_command

from evaluation.models import ScoreEvaluation
from evaluation.services import score_evaluations
from evaluation.services.score_evaluation import ScoredRelation, evaluate_scores
from kgharvest.models import Job
from kgharvest.services import jobs
from tests.factories import make_language_model, make_user

pytestmark = pytest.mark.django_db

FACTS = [("Berlin", "Germany"), ("Paris", "France"), ("Rome", "Italy"), ("Oslo", "Norway")]
CAPITAL = ScoredRelation("capital_of", (), (), (), FACTS)


def knows_all(relation, tuples):
    return [float(entities in FACTS) for entities in tuples]


@pytest.fixture
def quick(monkeypatch):
    """One relation, and scores that need no LM."""

    def scores_document(language_model, relations, facts, seed, device, on_relation):
        found = evaluate_scores([CAPITAL], {"human": knows_all, "multi": knows_all}, seed, on_relation)
        return {"facts": facts, "model": str(language_model), **found, "code_version": "1.0"}

    monkeypatch.setattr(score_evaluations, "scores_document", scores_document)


def evaluated() -> ScoreEvaluation:
    evaluation = score_evaluations.queue_score_evaluation(make_language_model(), by=None)
    jobs.run_job(evaluation.pk)
    evaluation.refresh_from_db()
    return evaluation


def test_a_worker_evaluates_what_a_researcher_asked_for(researcher_client, quick, rung):
    language_model = make_language_model()

    response = researcher_client.post("/reports/scores/new/", {"model": language_model.pk})

    evaluation = ScoreEvaluation.objects.get()
    assert response.url == f"/reports/scores/{evaluation.pk}/"
    assert rung == [evaluation.pk]
    assert "waiting for a worker" in researcher_client.get(response.url).text
    jobs.run_job(evaluation.pk)
    page = researcher_client.get(response.url).text
    assert "Precision against recall" in page
    assert "Average precision: human 1.00; multi 1.00." in page
    assert "4 facts and 4 false tuples" in page


def test_an_lm_that_is_under_way_is_not_queued_twice(rung):
    language_model = make_language_model()

    first, second = (score_evaluations.queue_score_evaluation(language_model, by=None) for _ in range(2))

    assert first.pk == second.pk
    assert rung == [first.pk]


def test_a_cancelled_evaluation_stores_nothing(researcher_client, quick, rung):
    evaluation = score_evaluations.queue_score_evaluation(make_language_model(), by=None)

    researcher_client.post(f"/reports/scores/{evaluation.pk}/cancel/")
    jobs.run_job(evaluation.pk)

    evaluation.refresh_from_db()
    assert (evaluation.status, evaluation.document) == (Job.Status.CANCELLED, {})
    assert "This evaluation is cancelled" in researcher_client.get(evaluation.get_absolute_url()).text
    assert researcher_client.get(f"/reports/scores/{evaluation.pk}/scores.svg").status_code == 404


def test_figure_and_numbers_come_as_files(researcher_client, quick, rung):
    evaluation = evaluated()
    address = f"/reports/scores/{evaluation.pk}/scores"

    assert b"<svg" in researcher_client.get(f"{address}.svg", {"theme": "dark"}).content
    assert researcher_client.get(f"{address}.pdf").content.startswith(b"%PDF")
    assert json.loads(researcher_client.get(f"{address}.json").content)["n_positive"] == 4
    assert researcher_client.get(f"{address}.exe").status_code == 404


def test_the_list_takes_the_same_queries_for_more(researcher_client, quick, rung, django_assert_max_num_queries):
    for _ in range(4):
        evaluated()

    with django_assert_max_num_queries(7):
        assert "succeeded" in researcher_client.get("/reports/scores/").text.casefold()


def test_scores_are_closed_to_annotators(client, quick, rung):
    evaluation = evaluated()
    client.force_login(make_user())

    for path in ("", f"{evaluation.pk}/", f"{evaluation.pk}/scores.json"):
        assert client.get(f"/reports/scores/{path}").status_code == 403
    assert client.post("/reports/scores/new/", {"model": "1"}).status_code == 403


def test_an_unknown_lm_is_not_there(researcher_client):
    assert researcher_client.post("/reports/scores/new/", {"model": "x"}).status_code == 404


def test_the_command_keeps_its_result(monkeypatch, tmp_path):
    def scores_document(language_model, relations, facts, seed, device, on_relation):
        found = evaluate_scores([CAPITAL], {"human": knows_all}, seed)
        return {"facts": facts, "model": str(language_model), **found}

    monkeypatch.setattr("evaluation.management.commands.evaluate_scores.scores_document", scores_document)
    out = io.StringIO()

    call_command("evaluate_scores", "--seed", "7", stdout=out, stderr=io.StringIO())

    kept = ScoreEvaluation.objects.get()
    assert kept.document == json.loads(out.getvalue())
    assert (kept.status, kept.document["seed"], kept.language_model.name) == (Job.Status.SUCCEEDED, 7, "embedded")
