"""Rounds in the API, from draft to closing."""

from __future__ import annotations

import pytest

from annotation.models import Round
from annotation.rounds.services import create_draft, open_round
from kgharvest.models import KnowledgeTuple, Role
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

ROUNDS = "/api/v1/rounds/"


@pytest.fixture
def api(db):
    return client_of(factories.make_researcher("ada"))


@pytest.fixture
def spec(db) -> dict:
    job = factories.make_harvest([(f"head {number}", f"tail {number}") for number in range(6)])
    return {"name": "pilot", "cells": [{"job": job.pk, "n": 4}], "judgments_per_task": 2, "seed": 3}


def address_of(round: Round, rest: str = "") -> str:
    return f"{ROUNDS}{round.pk}/{rest}"


def test_round_goes_from_draft_to_closed(api, spec):
    created = api.post(ROUNDS, spec, JSON)
    address = created.headers["Location"]
    edited = api.put(address, spec | {"judgments_per_task": 3}, JSON)
    statuses = [api.post(f"{address}{act}/").json()["status"] for act in ("open", "pause", "reopen", "close", "reopen")]

    assert (created.status_code, created.json()["status"], created.json()["n_tasks"]) == (201, "draft", 0)
    assert edited.json()["spec"]["cells"] == spec["cells"]
    assert statuses == ["open", "paused", "open", "closed", "open"]
    opened = api.get(address).json()
    assert (opened["n_tasks"], opened["judgments_per_task"], opened["created_by"]) == (4, 3, "ada")
    assert Round.objects.get().join_token in opened["join_url"]
    assert [round["id"] for round in api.get(ROUNDS, {"status": "open", "name": "pil"}).json()["results"]] == [
        opened["id"]
    ]


def test_api_and_command_open_the_same_sample(api, spec):
    address = api.post(ROUNDS, spec, JSON).headers["Location"]
    by_api = Round.objects.get(pk=api.post(f"{address}open/").json()["id"])
    by_command = open_round(spec | {"name": "other"})

    def sample(round):
        return list(round.tasks.order_by("position").values_list("statement", "n_wanted"))

    assert sample(by_api) == sample(by_command)


def test_idempotency_key_prevents_duplicate_drafts(api, spec):
    headers = {"idempotency-key": "one"}
    answers = [api.post(ROUNDS, spec, JSON, headers=headers) for _ in range(2)]

    assert answers[0].json() == answers[1].json()
    assert [answer.status_code for answer in answers] == [201, 201]
    assert Round.objects.count() == 1


def test_draft_can_be_deleted_but_open_round_cannot(api, spec):
    draft = api.post(ROUNDS, spec, JSON).headers["Location"]

    assert api.delete(draft).status_code == 204
    assert api.get(draft).status_code == 404
    opened = factories.make_round()
    for answer in (api.delete(address_of(opened)), api.put(address_of(opened), spec, JSON)):
        assert (answer.status_code, error_of(answer)["code"]) == (409, "WrongStatus")


def test_draft_deletion_requires_number_of_judge_answers(api, spec):
    address = api.post(ROUNDS, spec, JSON).headers["Location"]
    draft = Round.objects.get()
    factories.make_judge_answer(factories.make_judge_run(draft), KnowledgeTuple.objects.first(), "true")

    refused = api.delete(address)
    assert (refused.status_code, error_of(refused)["code"]) == (409, "AnswersWouldBeLost")
    assert "judge_answers=1" in error_of(refused)["message"]
    assert api.delete(f"{address}?judge_answer=1").status_code == 400

    assert api.delete(f"{address}?judge_answers=1").status_code == 204


def test_invalid_description_error_names_the_path(api, spec):
    refused = [
        api.post(ROUNDS, document, JSON)
        for document in (
            [], {}, spec | {"name": "a b"}, spec | {"sede": 1}, spec | {"cells": [{"job": 1}]}, spec | {"cells": "x"},
            spec | {"seed": 10**30}, spec | {"name": "a\x00"}, spec | {"closes_at": "2030-13-99"},
            spec | {"limits": {"gold_accuracy": 2}}, spec | {"relation_instructions": {"x": 1}},
            spec | {"project": "no"},
        )
    ]  # fmt: skip

    assert [answer.status_code for answer in refused] == [409] * len(refused)
    assert "cells[0].n is missing" in error_of(refused[4])["message"]
    assert not Round.objects.exists()


def test_plan_requires_no_draft_and_stores_nothing(api, spec):
    draft = api.post(ROUNDS, spec, JSON).headers["Location"]
    plans = [
        api.post(f"{ROUNDS}plan/?accuracy=0.8", spec, JSON).json(),
        api.get(f"{draft}plan/", {"accuracy": 0.8}).json(),
    ]

    assert plans[0] == plans[1]
    assert (plans[0]["workload"]["n_judgments"], plans[0]["cells"][0]["population"]) == (8, 6)
    assert not Round.objects.exclude(status="draft").exists()
    assert api.get(f"{draft}plan/", {"accuracy": "nan"}).status_code == 400
    assert api.get(f"{draft}plan/", {"accuracy": 0.8, "x": 1}).status_code == 400


@pytest.mark.parametrize("action", ["plan/", "preview/"])
def test_plan_and_preview_require_a_draft(api, spec, action):
    imported = factories.make_round()  # like a round of imported judgments, which has no spec
    Round.objects.filter(pk=imported.pk).update(spec={})
    for round in (open_round(spec), imported):
        answer = api.get(address_of(round, action))

        assert (answer.status_code, error_of(answer)["code"]) == (409, "WrongStatus")
        assert f"{round.name} is open" in error_of(answer)["message"]


def test_preview_shows_the_first_batch(api, spec):
    draft = api.post(ROUNDS, spec | {"batch_size": 2, "consent": "May we?"}, JSON).headers["Location"]

    preview = api.get(f"{draft}preview/").json()

    opened = Round.objects.get(pk=api.post(f"{draft}open/").json()["id"])
    first = opened.tasks.order_by("position").values_list("statement", flat=True)[:2]
    assert ["".join(text for text, _ in shown["parts"]) for shown in preview["statements"]] == list(first)
    assert (preview["consent"], len(preview["relations"])) == ("May we?", 1)


def test_instructions_are_editable_in_draft_and_frozen_on_opening(api, spec):
    draft = api.post(ROUNDS, spec, JSON).headers["Location"]
    [default] = api.get(f"{draft}instructions/").json()["relations"]
    address = f"{draft}instructions/{default['relation']}/"

    assert api.put(address, {"instructions": "Of today."}, JSON).json() == default | {"instructions": "Of today."}
    api.post(f"{draft}open/")
    assert api.get(f"{draft}instructions/").json()["relations"] == [default | {"instructions": "Of today."}]
    assert api.put(address, {"instructions": "Of then."}, JSON).status_code == 409
    assert api.put(f"{draft}instructions/{default['relation'] + 1}/", {"instructions": ""}, JSON).status_code == 404


def test_clone_is_a_draft_with_the_next_seed(api, spec):
    opened = open_round(spec)

    clone = api.post(address_of(opened, "clone/"))

    assert (clone.status_code, clone.json()["status"], clone.json()["spec"]["seed"]) == (201, "draft", 4)
    assert api.get(clone.headers["Location"]).json() == clone.json()


def test_progress_returns_counts_and_agreement(api, spec):
    opened = open_round(spec)
    factories.judge_all(opened, ["true"] * 4, ["true", "true", "false", "true"])

    progress = api.get(address_of(opened, "progress/")).json()

    assert (progress["accepted"], progress["undecided"], progress["n_judgments"], progress["n_left"]) == (3, 1, 8, 0)
    assert progress["percent_agreement"] == pytest.approx(0.75)
    assert progress["cells"][0]["accepted"] == 3


def test_rounds_of_other_projects_return_404_and_viewers_cannot_change(api, spec):
    opened, draft = open_round(spec), create_draft(spec | {"name": "draft"})
    other = factories.make_round(project=factories.make_project())
    viewer, stranger = (client_of(factories.make_member(role)) for role in (Role.VIEWER, Role.ADJUDICATOR))

    assert [round["id"] for round in api.get(ROUNDS).json()["results"]] == [draft.pk, opened.pk]
    for rest in ("", "progress/", "plan/", "preview/", "instructions/"):
        assert api.get(address_of(other, rest)).status_code == 404
    for client in (viewer, stranger):
        assert client.get(address_of(opened)).json()["join_url"] is None
        acts = [client.post(address_of(opened, act)) for act in ("close/", "pause/", "clone/")]
        acts += [client.delete(address_of(draft)), client.put(address_of(draft), spec, JSON)]
        acts += [client.post(ROUNDS, spec | {"project": "default"}, JSON), client.post(address_of(draft, "open/"))]
        assert [act.status_code for act in acts] == [403] * 7
    assert Round.objects.get(pk=opened.pk).status == Round.Status.OPEN


def test_read_token_cannot_change_rounds(spec):
    reader = client_of(scope="read")
    opened = open_round(spec)

    assert reader.get(address_of(opened)).status_code == 200
    assert reader.post(address_of(opened, "close/")).status_code == 403
    assert reader.post(ROUNDS, spec, JSON).status_code == 403
