"""Annotator pages and their JSON: no leaks of hidden data, and error messages for invalid input."""

import re
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from annotation.models import Annotator, Judgment, Label, Layout, StatementReport
from annotation.rounds.services import close_round, open_round
from annotation.training.services import answer_training
from tests.factories import (
    judge,
    judge_all,
    judging_page,
    make_annotators,
    make_harvest,
    make_language_model,
    make_relation,
    make_round,
    make_user,
)

pytestmark = pytest.mark.django_db

JSON = {"headers": {"accept": "application/json"}}
SECRETS = ("xyzzy", "123.456", "gold", "verdict", "accepted", "rejected", "top:4", "rank", "score", "wanted", "quorum")


@pytest.fixture
def round(db):
    return make_round(4, name="pilot")


@pytest.fixture
def annotator(round):
    return join_round(round, make_user("ann"))


@pytest.fixture
def annotator_client(annotator):
    client = Client()
    client.force_login(annotator.user)
    return client


def answer_to(task: str, label="true", **fields) -> dict:
    return {"task": task, "label": label, "client_uuid": uuid4(), **fields}


def row_of(task: str, label="", comment="", uuid=None) -> dict:
    """Return one row of the page of statements as a plain form sends it."""
    fields = {"task": task, "client_uuid": uuid or uuid4(), "label": label, "comment": comment}
    return {f"{task}-{name}": value for name, value in fields.items()}


def tasks_assigned_to(annotator) -> list[str]:
    """Return the tokens of the annotator's assigned tasks."""
    return [annotator.token_of(task.pk) for task in next_batch(annotator, timezone.now())]


def judged_task_of(annotator) -> str:
    """Return the annotator's token of the only judged task."""
    return annotator.token_of(Judgment.objects.get().task_id)


# Hidden data


def round_with_hidden_values(**more):
    """Open a round with gold and with hidden values that are recognizable in responses."""
    seeds = [[f"head {n}", f"tail {n}"] for n in range(8)]
    relation = make_relation("relation-xyzzy", statement="<ENT0> can <ENT1>", seed_tuples=seeds)
    decide_on_gold(relation, {candidate.code: True for candidate in gold_candidates(relation)[:6]})
    job = make_harvest(
        [("dog", "swim"), ("cat", "climb"), ("hen", "fly"), ("ant", "walk")],
        relation=relation,
        language_model=make_language_model("lm-xyzzy"),
        setting="setting-xyzzy",
    )
    cell = {"job": job.pk, "n": 4, "cut": "top:4"}
    spec = {"name": "pilot", "cells": [cell], "takes_guests": True, "consent": "Agreed?"}
    round = open_round({**spec, "gold_share": 0.5, "batch_size": 4, **more})
    job.tuples.update(score=-123.456)
    return round


def all_responses_to(client, round) -> list:
    """Request every page an annotator can open and return all responses."""
    link = f"/join/{round.join_token}/"
    responses = [
        client.get(link),
        client.post(link, {"name": "Ada"}),
        client.post(link, {"name": "Ada", "agrees": "on"}),
    ]
    responses += [client.get(path) for path in (link, "/", "/return/", judging_page("pilot", "device/"))]
    responses += [client.get(judging_page(), **JSON), client.get(judging_page())]
    tasks = [statement["task"] for statement in responses[-2].json()["tasks"]]
    responses.append(client.post(f"{judging_page()}layout/", {"layout": Layout.PAGE}, follow=True))
    for task in tasks:
        responses.append(client.get(f"{judging_page()}instructions/", {"task": task}))
        responses.append(client.post(f"{judging_page()}report/", {"task": task}))
        responses.append(client.post(f"{judging_page()}report/", {"task": task, "report-reason": "other"}, **JSON))
    responses.append(client.post(f"{judging_page()}skip/", {"task": tasks[0]}, **JSON))
    responses += [client.post(judging_page(), answer_to(task, more=1), **JSON) for task in tasks]
    responses.append(
        client.post(f"{judging_page()}page/", {"row": tasks[:1], **row_of(tasks[0], "false")}, follow=True)
    )
    responses += [client.get(judging_page(), {"task": task}) for task in tasks]
    responses += [client.post(judging_page(), answer_to(task, "maybe")) for task in tasks[:1]]
    responses += [
        client.get(judging_page()),
        client.get(judging_page(), **JSON),
        client.post(f"{judging_page()}skipped/", follow=True),
    ]
    close_round(round)
    return [*responses, client.get(judging_page()), client.get(judging_page(), **JSON), client.get(link)]


def test_annotator_responses_reveal_no_hidden_data(client):
    round = round_with_hidden_values()
    others = [join_round(round, make_user(), agrees=True) for _ in range(2)]
    for other in others:
        for task in next_batch(other, timezone.now()):
            judge(other, task, comment="comment-xyzzy")

    responses = all_responses_to(client, round)

    content = b"".join(response.content + str(response.headers).encode() for response in responses)
    assert b"swim" in content
    for secret in (*SECRETS, *(other.code for other in others)):
        assert secret.encode() not in content, secret


def complete_training(client, round, label: str) -> tuple[list, list]:
    """Complete the training with the same label throughout; return the responses before and with feedback."""
    before, feedback = [], []
    for statement in round.training_statements.all():
        page = client.get(judging_page("pilot", "training/"))
        pages_with_selection = [
            client.get(judging_page("pilot", "training/"), {"position": statement.position, "label": choice})
            for choice in Label.values
        ]
        before.append(
            (
                statement.position,
                [
                    page,
                    *pages_with_selection,
                    client.get(judging_page("pilot", "training/"), **JSON),
                    client.get(judging_page(), **JSON),
                ],
            )
        )
        answer = {"position": statement.position, "label": label}
        feedback.append(client.post(judging_page("pilot", "training/"), answer, follow=True))
    return before, feedback


def sent_bytes(responses) -> bytes:
    return b"".join(response.content + str(response.headers).encode() for response in responses)


@pytest.mark.parametrize("label", ["true", "false", "unjudgeable"])
def test_training_reveals_correct_label_only_after_the_answer(client, label):
    round = round_with_hidden_values(training_size=4)
    for other in [join_round(round, make_user(), agrees=True) for _ in range(2)]:
        answer_training(other, 0, "unjudgeable", timezone.now())
    joining = client.post(f"/join/{round.join_token}/", {"name": "Ada", "agrees": "on"}, follow=True)

    before, feedback = complete_training(client, round, label)

    statements = list(round.training_statements.all())
    assert [
        statement.reason.encode() in page.content for statement, page in zip(statements, feedback, strict=True)
    ] == [True] * 4
    for position, pages in before:
        for unanswered in statements[position:]:
            assert unanswered.reason.encode() not in sent_bytes(pages)
        for later in statements[position + 1 :]:
            assert later.statement.encode() not in sent_bytes(pages)
    end = [client.get(judging_page("pilot", "training/")), client.post(judging_page("pilot", "training/"), follow=True)]
    content = sent_bytes([joining, *(page for _, pages in before for page in pages), *feedback, *end])
    for secret in SECRETS:
        assert secret.encode() not in content, secret


def test_training_page_before_feedback_is_independent_of_correct_label(client):
    round = round_with_hidden_values(training_size=4)
    client.post(f"/join/{round.join_token}/", {"name": "Ada", "agrees": "on"})

    before, _ = complete_training(client, round, "true")

    assert {statement.label for statement in round.training_statements.all()} == {"true", "false"}
    shapes = {re.sub(r"(?s)<b>[^<]*</b>|\d+|token[^>]*|<details.*</details>", "", pages[0].text) for _, pages in before}
    assert len({" ".join(shape.split()) for shape in shapes}) == 1


def test_replies_for_gold_and_other_statements_have_same_shape(client):
    round = round_with_hidden_values(batch_size=8)
    annotator = join_round(round, make_user(), agrees=True)
    client.force_login(annotator.user)

    statements = client.get(judging_page(), **JSON).json()["tasks"]
    replies = [client.post(judging_page(), answer_to(statement["task"]), **JSON) for statement in statements]

    task_ids = [annotator.task_of(statement["task"]) for statement in statements]
    assert annotator.round.tasks.gold().filter(pk__in=task_ids).count() == 4
    assert {frozenset(statement) for statement in statements} == {frozenset({"task", "parts"})}
    assert {(reply.status_code, *reply.json().keys(), reply.json()["late"]) for reply in replies} == {
        (200, "stored", "late", False)
    }
    assert len({frozenset(reply.headers) for reply in replies}) == 1


# Pages of statements as plain forms


def test_page_stores_answers_and_reports_unanswered_statements(annotator_client, annotator):
    first, second, *_ = tasks_assigned_to(annotator)

    page = annotator_client.post(
        f"{judging_page()}page/", {"row": [first, second], **row_of(first, "true"), **row_of(second)}, follow=True
    ).text

    assert "1 statement is unanswered" in page
    assert judged_task_of(annotator) == first


def test_page_submitted_twice_is_stored_once(annotator_client, annotator):
    [first, *_] = tasks_assigned_to(annotator)
    data = {"row": [first], **row_of(first, "true", uuid=uuid4())}

    for _ in range(2):
        annotator_client.post(f"{judging_page()}page/", data)

    assert Judgment.objects.count() == 1


def test_invalid_row_does_not_discard_other_rows(annotator_client, annotator):
    first, second, third, _ = tasks_assigned_to(annotator)
    rows = row_of(first, "true") | row_of(second, "false", "x" * 10_000) | row_of(third, "maybe")

    response = annotator_client.post(f"{judging_page()}page/", {"row": [first, second, third], **rows})

    assert response.status_code == 409
    assert "The comment has 10000 characters. Use at most 1000." in response.text
    assert "x" * 10_000 in response.text
    assert judged_task_of(annotator) == first


def test_skip_in_a_page_stores_the_other_answers(annotator_client, annotator):
    first, second, *_ = tasks_assigned_to(annotator)

    annotator_client.post(
        f"{judging_page()}skip/", {"task": second, "row": [first, second], **row_of(first, "true"), **row_of(second)}
    )

    assert judged_task_of(annotator) == first
    assert annotator.assignments.skipped().get().task_id == annotator.task_of(second)


# Invalid input


def test_too_long_comment_is_rejected_and_shown_again(annotator_client, annotator):
    [task, *_] = tasks_assigned_to(annotator)
    answer = answer_to(task, comment="x" * 10_000)

    as_form, as_json = (
        annotator_client.post(judging_page(), answer),
        annotator_client.post(judging_page(), answer, **JSON),
    )

    assert as_json.json()["error"]["message"] == "The comment has 10000 characters. Use at most 1000."
    assert "Use at most 1000" in as_form.text
    assert "x" * 10_000 in as_form.text
    assert not Judgment.objects.exists()


def test_invalid_utf8_in_comment_is_replaced(annotator_client, annotator):
    [task, *_] = tasks_assigned_to(annotator)
    body = urlencode(answer_to(task)).encode() + b"&comment=caf%E9%FF"

    response = annotator_client.post(judging_page(), body, content_type="application/x-www-form-urlencoded", **JSON)

    assert response.status_code == 200
    assert Judgment.objects.get().comment == "caf��"


@pytest.mark.parametrize("field", ["label", "client_uuid", "task", "comment"])
def test_invalid_bytes_are_rejected_with_message(annotator_client, annotator, field):
    [task, *_] = tasks_assigned_to(annotator)
    answer = answer_to(task) | {field: "\x00\xff"}

    as_form, as_json = (
        annotator_client.post(judging_page(), answer),
        annotator_client.post(judging_page(), answer, **JSON),
    )

    assert as_form.status_code == as_json.status_code == 400
    assert "Nothing was stored" in as_form.text
    assert not Judgment.objects.exists()


def test_implausible_judging_time_is_capped(annotator_client, annotator):
    [task, *_] = tasks_assigned_to(annotator)

    annotator_client.post(judging_page(), answer_to(task, seconds="86400"), **JSON)

    assert Judgment.objects.get().seconds == 600


@pytest.mark.parametrize("path", ["skip/", "report/"])
@pytest.mark.parametrize("task", ["", "x", "9" * 16, "9" * 30, "\x00"])
def test_skip_and_report_reject_invalid_task(annotator_client, path, task):
    data = {"task": task, "report-reason": "other"}

    response = annotator_client.post(judging_page() + path, data, **JSON)

    assert response.status_code in {400, 409}
    assert response.json()["error"]["message"]
    assert not StatementReport.objects.exists()


def test_report_page_of_unassigned_statement_returns_404(annotator_client, round):
    [other] = make_annotators(round, 1)
    task = tasks_assigned_to(other)[0]

    assert annotator_client.post(f"{judging_page()}report/", {"task": task}).status_code == 404


@pytest.mark.parametrize("path", ["", "page/", "skip/", "skipped/", "report/", "layout/"])
def test_non_annotator_cannot_act_on_round(client, round, path):
    assert client.post(judging_page() + path, **JSON).status_code == (403 if path in {"", "skip/", "report/"} else 302)
    assert client.post(judging_page() + path).url.startswith("/return/")
    client.force_login(make_user())
    assert client.post(judging_page() + path).status_code == 404


def test_invalid_answer_to_closed_round_shows_closed_page(annotator_client, annotator, round):
    [task, *_] = tasks_assigned_to(annotator)
    close_round(round)

    assert "Round closed" in annotator_client.post(judging_page(), answer_to(task, comment="x" * 2000)).text


def test_late_answer_is_reported_as_late():
    round = make_round(1, name="pilot", judgments_per_task=1)
    slow, quick = make_annotators(round, 2)
    [task] = tasks_assigned_to(slow)
    slow.assignments.update(expires_at="2020-01-01T00:00Z")
    judge(quick, *next_batch(quick, timezone.now()))
    client = Client()
    client.force_login(slow.user)

    assert client.post(judging_page(), answer_to(task), **JSON).json()["late"] is True


# Next statements in the reply


def test_reply_contains_next_statements_on_request():
    round = make_round(4, name="pilot", batch_size=2)
    [annotator] = make_annotators(round, 1)
    client = Client()
    client.force_login(annotator.user)
    first, second = tasks_assigned_to(annotator)

    without = client.post(judging_page(), answer_to(first), **JSON).json()
    reply = client.post(judging_page(), answer_to(second, more=1), **JSON).json()

    assert "tasks" not in without
    assert [statement["task"] for statement in reply["tasks"]] == tasks_assigned_to(annotator)
    assert not {first, second} & set(tasks_assigned_to(annotator))


def test_answer_of_paused_annotator_is_stored_without_new_statements(annotator_client, annotator):
    [task, *_] = tasks_assigned_to(annotator)
    Annotator.objects.update(status=Annotator.Status.PAUSED)

    reply = annotator_client.post(judging_page(), answer_to(task, more=1), **JSON)

    assert (reply.status_code, reply.json().keys()) == (200, {"stored", "late"})
    assert Judgment.objects.counted().filter(task=annotator.task_of(task)).exists()


# Layouts


def test_annotator_layout_overrides_layout_of_round(client):
    round = make_round(2, name="pilot", layout=Layout.PAGE)
    client.force_login(join_round(round, make_user()).user)

    assert "Submit page" in client.get(judging_page()).text
    client.post(f"{judging_page()}layout/", {"layout": "one"})
    assert "Submit page" not in client.get(judging_page()).text
    assert client.post(f"{judging_page()}layout/", {"layout": "both"}).status_code == 302


def test_page_layout_query_count_is_constant(client, django_assert_max_num_queries):
    round = make_round(40, name="pilot", layout=Layout.PAGE, batch_size=20)
    client.force_login(join_round(round, make_user()).user)
    judge_all(round, ["true"] * 40)

    with django_assert_max_num_queries(18):
        client.get(judging_page())


def test_answers_page_lists_only_the_annotators_own_answers(annotator_client, annotator, round):
    other = join_round(round, make_user())
    judgments = [
        judge(annotator, task, label)
        for task, label in zip(next_batch(annotator, timezone.now()), ["true", "false"], strict=False)
    ]
    judge(other, next_batch(other, timezone.now())[-1], comment="not ann's")

    page = annotator_client.get(judging_page(page="answers/")).text

    assert page.count("Change<span") == len(judgments) == 2
    assert all(f"?task={annotator.token_of(judgment.task_id)}" in page for judgment in judgments)
    assert "not ann" not in page
    assert page.index("is-false") < page.index("is-true")  # newest first
    close_round(round, None)
    assert "Change<span" not in annotator_client.get(judging_page(page="answers/")).text
