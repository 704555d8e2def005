"""Judging API for annotator clients: joining, judging, and training with an account token."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from annotation.invites.services import join_round, make_invites
from annotation.models import Annotator, Judgment, Round
from annotation.rounds.services import close_round
from kgharvest.accounts.tokens import create_token
from tests import factories
from tests.api import JSON, DescribedClient, client_of, error_of

pytestmark = pytest.mark.django_db

JUDGING = "/api/v1/judging/"


@pytest.fixture
def round(db) -> Round:
    return factories.make_round(6, name="pilot", batch_size=3, judgments_per_task=1)


def judge_of(round: Round) -> tuple[Client, str]:
    """Return the client of a new annotator and the URL of the judging endpoint."""
    user = factories.make_user()
    join_round(round, user)
    return client_of(user, "judge"), f"{JUDGING}{round.pk}/"


def answer(client: Client, address: str, task: str, label: str = "true", **more):
    return client.post(address, {"task": task, "label": label, "client_uuid": str(uuid4())} | more, JSON)


def tasks_of(response) -> list[str]:
    return [statement["task"] for statement in response.json()["tasks"]]


def test_client_can_judge_a_complete_round(round):
    client, address = judge_of(round)

    n = 0
    while tasks := tasks_of(client.get(address)):
        for task in tasks:
            assert answer(client, address, task, seconds=2.5).json()["late"] is False
            n += 1

    assert n == 6
    assert set(round.tasks.values_list("verdict", flat=True)) == {"accepted"}


def test_resent_answer_counts_once_and_new_answer_supersedes_it(round):
    client, address = judge_of(round)
    [task, *_] = tasks_of(client.get(address))
    uuid = str(uuid4())
    twice = [answer(client, address, task, client_uuid=uuid, more=True) for _ in range(2)]
    changed = answer(client, address, task, "false", comment="Not so.")

    assert [response.json()["stored"] for response in twice] == [uuid, uuid]
    assert len(tasks_of(twice[0])) == 3
    assert changed.status_code == 200
    assert list(Judgment.objects.counted().values_list("label", flat=True)) == ["false"]
    [last] = client.get(f"{address}recent/").json()["answers"]
    assert (last["task"], last["label"], last["comment"]) == (task, "false", "Not so.")


def test_statements_can_be_skipped_reassigned_reported_and_released(round):
    client, address = judge_of(round)
    first, second, _ = tasks_of(client.get(address))

    assert client.post(f"{address}skip/", {"task": first}, JSON).json() == {"skipped": first}
    assert first not in tasks_of(client.get(address))
    assert client.post(f"{address}skipped/").json() == {"n": 1}
    report = client.post(f"{address}report/", {"task": second, "report-reason": "other"}, JSON)
    assert report.json() == {"reported": second}
    assert client.post(f"{address}release/").json() == {"n": 3}
    assert client.post(f"{address}release/").json() == {"n": 0}
    assert not round.tasks.filter(n_leased__gt=0).exists()
    assert len(tasks_of(client.get(address))) == 3


def test_invalid_answers_are_rejected_and_not_stored(round):
    client, address = judge_of(round)
    [task, *_] = tasks_of(client.get(address))
    refused = {
        400: [
            {"label": "maybe"}, {"client_uuid": "1"}, {"task": "x"}, {"seconds": -1}, {"seconds": "nan"},
            {"seconds": 1e999}, {"comment": "a\x00"}, {"comment": "\ud800"}, {"label": None}, {"more": "x"},
        ],
        409: [{"task": "0" * 16}, {"comment": "x" * 1001}],
    }  # fmt: skip

    for status, cases in refused.items():
        assert [answer(client, address, **{"task": task} | case).status_code for case in cases] == [status] * len(cases)
    assert not Judgment.objects.exists()


def test_judging_requires_joining_and_judge_token_opens_only_judging(round):
    client, address = judge_of(round)
    stranger = client_of(factories.make_user(), "judge")
    reader = client_of(Annotator.objects.get().user, "read")

    assert Client().get(address).status_code == 401
    assert stranger.get(address).status_code == 404
    assert reader.get(address).status_code == 403
    for closed in ("/api/v1/rounds/", f"/api/v1/rounds/{round.pk}/", "/api/v1/reports/", "/api/v1/gold/decisions/"):
        assert client.get(closed).status_code == 403
    assert client.get(address).status_code == 200


def test_closed_round_rejects_all_requests(round):
    client, address = judge_of(round)
    [task, *_] = tasks_of(client.get(address))
    close_round(round)

    for refused in (client.get(address), answer(client, address, task), client.post(f"{address}skipped/")):
        assert (refused.status_code, error_of(refused)["code"]) == (409, "RoundNotOpen")


# Joining


def test_joining_twice_by_link_creates_one_annotator(round):
    client = client_of(factories.make_user(), "judge")
    link = {"link": f"https://example.org/join/{round.join_token}/"}

    joined = [client.post(JUDGING, link, JSON).json() for _ in range(2)]

    assert joined[0] == joined[1] == client.get(JUDGING).json()["results"][0]
    assert (joined[0]["round"], joined[0]["name"], joined[0]["needs_training"]) == (round.pk, "pilot", False)
    assert round.annotators.count() == 1
    assert client.get(f"{JUDGING}{round.pk}/").status_code == 200


def test_invite_is_single_use_and_requires_consent(round):
    Round.objects.filter(pk=round.pk).update(consent="May we?")
    [invite] = make_invites(round, 1, timezone.now() + timedelta(days=1))
    first, second = (client_of(factories.make_user(), "judge") for _ in range(2))
    link = {"link": invite.token, "agrees": True}

    assert error_of(first.post(JUDGING, {"link": invite.token}, JSON))["code"] == "ConsentMissing"
    assert first.post(JUDGING, link, JSON).status_code == 200
    assert error_of(second.post(JUDGING, link, JSON))["code"] == "InviteNotUsable"


def test_wrong_join_links_are_rate_limited(round, settings):
    settings.LIMITS = settings.LIMITS | {"wrong_links": (2, 900)}
    client = client_of(factories.make_user(), "judge")

    answers = [client.post(JUDGING, {"link": link}, JSON).status_code for link in ("x", "https://a/join//", "y")]

    assert answers == [404, 404, 429]
    assert client.post(JUDGING, {"link": round.join_token}, JSON).status_code == 200


# Training


@pytest.fixture
def with_training(round) -> Round:
    round.training_size = 2
    round.save()
    for position, label in enumerate(["true", "false"]):
        round.training_statements.create(
            position=position, statement="dogs swim", spans=[[0, 4]], label=label, reason="It is known."
        )
    return round


def test_training_is_required_first_and_returns_feedback(with_training):
    client, address = judge_of(with_training)
    training = f"{address}training/"

    assert error_of(client.get(address))["code"] == "TrainingFirst"
    assert client.get(JUDGING).json()["results"][0]["needs_training"] is True
    assert client.get(training).json()["statement"] == {"position": 0, "parts": [["dogs", True], [" swim", False]]}
    assert client.post(training, {"position": 1, "label": "true"}, JSON).status_code == 404
    for _ in range(2):
        reason = client.post(training, {"position": 0, "label": "true"}, JSON).json()
        assert reason == {"position": 0, "is_right": True, "label": "true", "reason": "It is known."}
    assert client.post(training, {"position": 1, "label": "true"}, JSON).json()["is_right"] is False
    assert client.get(training).json() == {
        "n_statements": 2, "statement": None, "finished": {"n_right": 1, "n_answered": 2, "missed": [[1, "true"]]},
    }  # fmt: skip
    assert len(tasks_of(client.get(address))) == 3


def test_training_of_round_without_training_returns_404(round):
    client, address = judge_of(round)

    assert client.get(f"{address}training/").status_code == 404


# Hidden data


def test_responses_do_not_reveal_lm_setting_score_or_gold(with_training):
    """Use harvest names and numbers that occur in no other data."""
    round = with_training
    job = round.strata.first().job
    job.language_model.name = "secret-model"
    job.language_model.save()
    type(job).objects.filter(pk=job.pk).update(setting="secret-setting")
    round.strata.update(setting="secret-setting")
    job.tuples.update(score=-73.125)
    factories.make_gold(round, round.tasks.all()[:2], "false")
    Round.objects.filter(pk=round.pk).update(gold_share=0.3)
    client, address = judge_of(round)
    Annotator.objects.update(code="a-1", next_position=0)  # fixes the positions of gold
    training = f"{address}training/"
    answers = [client.get(training)]
    answers += [client.post(training, {"position": n, "label": "true"}, JSON) for n in (0, 1)]
    answers += [client.get(JUDGING), client.get(f"{address}instructions/")]
    while tasks := tasks_of(client.get(address)):
        answers += [client.get(address), client.get(f"{address}instructions/", {"task": tasks[0]})]
        answers += [client.post(f"{address}report/", {"task": tasks[0], "report-reason": "other"}, JSON)]
        answers += [answer(client, address, task, more=True) for task in tasks]
    answers += [client.get(f"{address}recent/"), client.post(f"{address}skipped/"), client.post(f"{address}release/")]
    answers += [answer(client, address, "0" * 16), client.get(f"{address}nothing/")]

    assert Judgment.objects.filter(task__is_gold=True).exists()
    for response in answers:
        content = response.content.decode() + repr(response.headers)
        assert not re.search(r"secret|73\.125|gold|score|harvest|rank|n_wanted|verdict|position\":[2-9]", content), (
            content
        )
    shapes = {frozenset(statement) for response in answers for statement in response.json().get("tasks", [])}
    assert shapes == {frozenset({"task", "parts"})}


def test_instructions_include_those_of_the_relation(round):
    client, address = judge_of(round)
    [task, *_] = tasks_of(client.get(address))
    Round.objects.filter(pk=round.pk).update(
        instructions="Be strict.",
        relation_instructions={str(round.tasks.first().knowledge_tuple.relation_id): "Of today."},
    )

    assert client.get(f"{address}instructions/").json() == {"markdown": "Be strict."}
    assert client.get(f"{address}instructions/", {"task": task}).json() == {"markdown": "Be strict.\n\nOf today."}
    assert client.get(f"{address}instructions/", {"task": "0" * 16}).status_code == 404
    assert client.get(f"{address}instructions/", {"task": "x"}).status_code == 400


def test_project_token_judges_only_in_rounds_of_its_project(round):
    user = factories.make_member("viewer", round.project)
    foreign = factories.make_round(2, name="foreign", project=factories.make_project())
    project_annotator, foreign_annotator = (join_round(joined, user) for joined in (round, foreign))
    new = factories.make_round(2, name="new", project=foreign.project)
    secret = create_token(user, "bound", "judge", 1, timezone.now(), project=round.project).secret
    client = DescribedClient(headers={"authorization": f"Bearer {secret}"})
    unbound, address = client_of(user, "judge"), f"{JUDGING}{foreign.pk}/"
    [task, *_] = tasks_of(unbound.get(address))

    refused = [
        *(client.get(f"{address}{view}") for view in ("", "recent/", "instructions/", "training/")),
        answer(client, address, task),
        *(client.post(f"{address}{view}", {"task": task}, JSON) for view in ("skip/", "skipped/", "release/")),
        client.post(f"{address}report/", {"task": task, "report-reason": "other"}, JSON),
        client.post(f"{address}training/", {"position": 0, "label": "true"}, JSON),
    ]

    assert {response.status_code for response in refused} == {404}
    assert client.post(JUDGING, {"link": new.join_token}, JSON).status_code == 403
    assert not new.annotators.exists()
    assert not foreign_annotator.judgments.exists()
    assert [joined["round"] for joined in client.get(JUDGING).json()["results"]] == [round.pk]
    [task, *_] = tasks_of(client.get(f"{JUDGING}{round.pk}/"))
    assert answer(client, f"{JUDGING}{round.pk}/", task).status_code == 200
    assert project_annotator.judgments.count() == 1


def test_project_token_of_former_member_is_rejected(round):
    user = factories.make_member("researcher", round.project)
    secret = create_token(user, "bound", "write", 1, timezone.now(), project=round.project).secret
    client = DescribedClient(headers={"authorization": f"Bearer {secret}"})
    round.project.members.get(user=user).delete()

    assert client.get(f"/api/v1/rounds/{round.pk}/").status_code == 403
    assert client.get("/api/v1/projects/").status_code == 403
