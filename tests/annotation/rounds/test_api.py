"""Rounds through the API, from draft to close."""

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


def test_a_round_goes_from_draft_to_closed(api, spec):
    made = api.post(ROUNDS, spec, JSON)
    address = made.headers["Location"]
    edited = api.put(address, spec | {"judgments_per_task": 3}, JSON)
    statuses = [api.post(f"{address}{act}/").json()["status"] for act in ("open", "pause", "reopen", "close", "reopen")]

    assert (made.status_code, made.json()["status"], made.json()["n_tasks"]) == (201, "draft", 0)
    assert edited.json()["spec"]["cells"] == spec["cells"]
    assert statuses == ["open", "paused", "open", "closed", "open"]
    opened = api.get(address).json()
    assert (opened["n_tasks"], opened["judgments_per_task"], opened["created_by"]) == (4, 3, "ada")
    assert Round.objects.get().join_token in opened["join_url"]
    assert [round["id"] for round in api.get(ROUNDS, {"status": "open", "name": "pil"}).json()["results"]] == [
        opened["id"]
    ]


def test_what_the_api_opens_is_what_the_command_opens(api, spec):
    address = api.post(ROUNDS, spec, JSON).headers["Location"]
    by_api = Round.objects.get(pk=api.post(f"{address}open/").json()["id"])
    by_command = open_round(spec | {"name": "other"})

    def sample(round):
        return list(round.tasks.order_by("position").values_list("statement", "n_wanted"))

    assert sample(by_api) == sample(by_command)


def test_a_draft_made_twice_with_one_key_is_made_once(api, spec):
    headers = {"idempotency-key": "one"}
    answers = [api.post(ROUNDS, spec, JSON, headers=headers) for _ in range(2)]

    assert answers[0].json() == answers[1].json()
    assert [answer.status_code for answer in answers] == [201, 201]
    assert Round.objects.count() == 1


def test_a_draft_is_deleted_and_an_open_round_is_not(api, spec):
    draft = api.post(ROUNDS, spec, JSON).headers["Location"]

    assert api.delete(draft).status_code == 204
    assert api.get(draft).status_code == 404
    opened = factories.make_round()
    for answer in (api.delete(address_of(opened)), api.put(address_of(opened), spec, JSON)):
        assert (answer.status_code, error_of(answer)["code"]) == (409, "WrongStatus")


def test_a_draft_with_answers_of_judges_is_deleted_by_who_names_their_number(api, spec):
    address = api.post(ROUNDS, spec, JSON).headers["Location"]
    draft = Round.objects.get()
    factories.make_judge_answer(factories.make_judge_run(draft), KnowledgeTuple.objects.first(), "true")

    refused = api.delete(address)
    assert (refused.status_code, error_of(refused)["code"]) == (409, "AnswersWouldBeLost")
    assert "judge_answers=1" in error_of(refused)["message"]
    assert api.delete(f"{address}?judge_answer=1").status_code == 400

    assert api.delete(f"{address}?judge_answers=1").status_code == 204


def test_a_description_is_refused_with_the_path_of_what_is_wrong(api, spec):
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


def test_a_plan_needs_no_draft_and_stores_nothing(api, spec):
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


@pytest.mark.parametrize("what", ["plan/", "preview/"])
def test_only_drafts_are_planned_and_previewed(api, spec, what):
    imported = factories.make_round()  # as those are whose judgments came from a file: nothing describes them
    Round.objects.filter(pk=imported.pk).update(spec={})
    for round in (open_round(spec), imported):
        answer = api.get(address_of(round, what))

        assert (answer.status_code, error_of(answer)["code"]) == (409, "WrongStatus")
        assert f"{round.name} is open" in error_of(answer)["message"]


def test_a_preview_shows_the_first_batch(api, spec):
    draft = api.post(ROUNDS, spec | {"batch_size": 2, "consent": "May we?"}, JSON).headers["Location"]

    preview = api.get(f"{draft}preview/").json()

    opened = Round.objects.get(pk=api.post(f"{draft}open/").json()["id"])
    first = opened.tasks.order_by("position").values_list("statement", flat=True)[:2]
    assert ["".join(text for text, _ in shown["parts"]) for shown in preview["statements"]] == list(first)
    assert (preview["consent"], len(preview["relations"])) == ("May we?", 1)


def test_instructions_are_worded_in_a_draft_and_frozen_when_it_opens(api, spec):
    draft = api.post(ROUNDS, spec, JSON).headers["Location"]
    [usual] = api.get(f"{draft}instructions/").json()["relations"]
    address = f"{draft}instructions/{usual['relation']}/"

    assert api.put(address, {"instructions": "Of today."}, JSON).json() == usual | {"instructions": "Of today."}
    api.post(f"{draft}open/")
    assert api.get(f"{draft}instructions/").json()["relations"] == [usual | {"instructions": "Of today."}]
    assert api.put(address, {"instructions": "Of then."}, JSON).status_code == 409
    assert api.put(f"{draft}instructions/{usual['relation'] + 1}/", {"instructions": ""}, JSON).status_code == 404


def test_a_clone_is_a_draft_with_the_next_seed(api, spec):
    opened = open_round(spec)

    clone = api.post(address_of(opened, "clone/"))

    assert (clone.status_code, clone.json()["status"], clone.json()["spec"]["seed"]) == (201, "draft", 4)
    assert api.get(clone.headers["Location"]).json() == clone.json()


def test_progress_has_the_numbers_of_the_page(api, spec):
    opened = open_round(spec)
    factories.judge_all(opened, ["true"] * 4, ["true", "true", "false", "true"])

    progress = api.get(address_of(opened, "progress/")).json()

    assert (progress["accepted"], progress["undecided"], progress["n_judgments"], progress["n_left"]) == (3, 1, 8, 0)
    assert progress["percent_agreement"] == pytest.approx(0.75)
    assert progress["cells"][0]["accepted"] == 3


def test_rounds_of_others_are_not_found_and_who_looks_does_not_change(api, spec):
    own, draft = open_round(spec), create_draft(spec | {"name": "draft"})
    other = factories.make_round(project=factories.make_project())
    viewer, stranger = (client_of(factories.make_member(role)) for role in (Role.VIEWER, Role.ADJUDICATOR))

    assert [round["id"] for round in api.get(ROUNDS).json()["results"]] == [draft.pk, own.pk]
    for rest in ("", "progress/", "plan/", "preview/", "instructions/"):
        assert api.get(address_of(other, rest)).status_code == 404
    for client in (viewer, stranger):
        assert client.get(address_of(own)).json()["join_url"] is None
        acts = [client.post(address_of(own, act)) for act in ("close/", "pause/", "clone/")]
        acts += [client.delete(address_of(draft)), client.put(address_of(draft), spec, JSON)]
        acts += [client.post(ROUNDS, spec | {"project": "default"}, JSON), client.post(address_of(draft, "open/"))]
        assert [act.status_code for act in acts] == [403] * 7
    assert Round.objects.get(pk=own.pk).status == Round.Status.OPEN


def test_a_token_for_reading_changes_nothing(spec):
    reader = client_of(scope="read")
    own = open_round(spec)

    assert reader.get(address_of(own)).status_code == 200
    assert reader.post(address_of(own, "close/")).status_code == 403
    assert reader.post(ROUNDS, spec, JSON).status_code == 403
