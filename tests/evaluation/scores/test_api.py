"""Score evaluations through the API."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from evaluation.models import ScoreEvaluation
from kgharvest.models import Job, Role
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

SCORES = "/api/v1/score-evaluations/"


@pytest.fixture
def api(db):
    return client_of()


def test_evaluation_can_be_requested_read_and_cancelled(api, enqueued):
    model = factories.make_language_model(is_demonstrator=True)
    response = api.post(SCORES, {"model": model.pk, "settings": ["multi", "human"]}, JSON)
    address = response.headers["Location"]

    assert (response.status_code, response.json()["status"], enqueued) == (202, "queued", [response.json()["id"]])
    assert ScoreEvaluation.objects.get().payload["settings"] == ["human", "multi"]
    assert (
        api.post(SCORES, {"model": model.pk, "settings": ["human", "multi"]}, JSON).json()["id"]
        == response.json()["id"]
    )
    assert api.get(address).json() == response.json()
    assert [row["id"] for row in api.get(SCORES, {"status": "queued"}).json()["results"]] == [response.json()["id"]]
    assert api.get(f"{address}scores.json").status_code == 404
    assert api.post(f"{address}cancel/").json()["status"] == "cancelled"
    assert api.post(f"{address}cancel/").status_code == 409


def test_facts_are_uploaded_as_file(api, enqueued):
    relation = factories.make_relation()
    line = f'{{"relation": "{relation.path}", "entities": ["a", "b"]}}\n'
    model = factories.make_language_model(is_demonstrator=True)

    def post_facts(text: str):
        return api.post(
            SCORES, {"model": model.pk, "settings": "human", "facts": SimpleUploadedFile("f.jsonl", text.encode())}
        )

    assert post_facts(line).status_code == 202
    assert ScoreEvaluation.objects.get().payload["facts"] == "f.jsonl"
    assert "line 2" in error_of(post_facts(line + "{}\n"))["message"]
    foreign = factories.make_relation(relation_set=factories.make_relation_set(project=factories.make_project()))
    assert "unknown relation" in error_of(post_facts(line.replace(relation.path, foreign.path)))["message"]


def test_finished_evaluation_has_document_and_files(api):
    document = {"scorers": [], "relations": []}
    evaluation = ScoreEvaluation.objects.create(
        kind=ScoreEvaluation.KIND, language_model=factories.make_language_model(), document=document,
        status=Job.Status.SUCCEEDED, project=factories.default_project(),
    )  # fmt: skip

    assert api.get(f"{SCORES}{evaluation.pk}/").json()["document"] == document
    assert api.get(f"{SCORES}{evaluation.pk}/scores.json").json() == document
    assert api.get(f"{SCORES}{evaluation.pk}/scores.doc").status_code == 404


@pytest.mark.parametrize(
    "body",
    [{}, [], {"model": "x"}, {"model": 10**30}, {"model": 1, "settings": ["x"]}, {"settings": "human"}, {"x": 1}],
)
def test_invalid_requests_are_rejected(api, body):
    assert api.post(SCORES, body, JSON).status_code == 400


def test_viewer_cannot_request_and_outsider_cannot_see_evaluations(api, enqueued):
    model = factories.make_language_model(is_demonstrator=True)
    address = api.post(SCORES, {"model": model.pk, "settings": ["human"]}, JSON).headers["Location"]
    viewer = client_of(factories.make_member(Role.VIEWER))
    stranger = client_of(factories.make_researcher(project=factories.make_project()))

    assert viewer.get(address).status_code == 200
    assert viewer.post(SCORES, {"model": model.pk, "project": "default"}, JSON).status_code == 403
    assert viewer.post(f"{address}cancel/").status_code == 403
    assert stranger.get(address).status_code == 404
    assert stranger.post(f"{address}cancel/").status_code == 404


def test_system_scores_and_judge_runs_can_be_requested(api, enqueued):
    relation = factories.make_relation()
    run = factories.make_judge_run(factories.make_round())
    line = f'{{"relation": "{relation.path}", "entities": ["a", "b"], "score": 1}}\n'
    form = {
        "model": factories.make_language_model(is_demonstrator=True).pk,
        "settings": "human",
        "more": "prior",
        "judge_runs": run.pk,
    }

    refused = api.post(SCORES, {**form, "systems": SimpleUploadedFile("comet.jsonl", b'{"relation": 1}')})
    answered = api.post(SCORES, {**form, "systems": SimpleUploadedFile("comet.jsonl", line.encode())})

    assert refused.status_code == 400
    assert "line 1" in str(error_of(refused))
    assert answered.status_code == 202
    payload = ScoreEvaluation.objects.get().payload
    assert (payload["more"], payload["judge_runs"]) == (["prior"], [run.pk])
    assert payload["systems"] == {"comet": {relation.path: [[["a", "b"], 1.0]]}}


def test_judge_run_of_another_project_is_rejected(api, enqueued):
    other = factories.make_project()
    run = factories.make_judge_run(factories.make_round(project=other, by=factories.make_researcher(project=other)))
    body = {"model": factories.make_language_model(is_demonstrator=True).pk, "judge_runs": [run.pk]}

    assert api.post(SCORES, body, JSON).status_code == 400
