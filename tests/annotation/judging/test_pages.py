"""Researchers' and annotators' pages: who sees what, and what the buttons do."""

import json
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from annotation.models import Annotator, Judgment, Round
from annotation.rounds.services import close_round, pause_round
from kgharvest.models import Role
from tests.factories import (
    judge,
    judge_all,
    judging_page,
    make_annotators,
    make_member,
    make_project,
    make_round,
    make_user,
)

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"

JSON = {"headers": {"accept": "application/json"}}


@pytest.fixture
def own_round(researcher):
    return make_round(4, name="pilot", by=researcher)


@pytest.fixture
def annotator(own_round):
    return join_round(own_round, make_user("ann"))


@pytest.fixture
def annotator_client(annotator):
    client = Client()
    client.force_login(annotator.user)
    return client


def judge_url(round) -> str:
    return reverse("annotation:judge", args=[round.pk])


def answer_to(annotator, task, label="true", **fields) -> dict:
    return {"task": annotator.token_of(task.pk), "label": label, "client_uuid": uuid4(), **fields}


# -- researchers -------------------------------------------------------------------------------------------------------


def test_the_list_shows_the_rounds_of_ones_projects(researcher_client, own_round):
    make_round(name="secret", project=make_project("Project"))

    page = researcher_client.get("/rounds/").text

    assert "pilot" in page
    assert "secret" not in page


def test_the_list_can_be_searched(researcher_client, own_round):
    assert "No matching rounds" in researcher_client.get("/rounds/", {"q": "nothing like it"}).text


def test_a_round_of_imports_is_never_to_be_opened(researcher_client, own_round):
    Round.objects.filter(pk=own_round.pk).update(source="imported", status="closed", opened_at=None)

    assert "not yet" not in researcher_client.get("/rounds/").text


def test_the_empty_list_says_what_to_do_first(researcher_client):
    assert "New harvest" in researcher_client.get("/rounds/").text


def test_the_list_takes_the_same_queries_for_more_rounds(
    researcher_client, own_round, researcher, django_assert_max_num_queries
):
    for _ in range(5):
        make_round(by=researcher)

    with django_assert_max_num_queries(7):
        researcher_client.get("/rounds/")


def test_a_round_shows_how_far_it_is(researcher_client, own_round):
    judge_all(own_round, *[["true"] * 4] * 3)

    response = researcher_client.get(PILOT)

    assert response.context["progress"]["accepted"] == 4
    assert f"/join/{own_round.join_token}/" in response.text


def test_a_round_that_asks_a_third_only_if_two_differ_says_so(researcher_client, researcher):
    make_round(4, name="thrifty", by=researcher, third_only_if_split=True)

    assert (
        "judged by two people, or three if the first two differ."
        in researcher_client.get("/projects/default/rounds/thrifty/").text
    )


@pytest.mark.parametrize(
    "path",
    [
        "/projects/project/rounds/secret/",
        "/projects/project/rounds/secret/close/",
        "/projects/project/rounds/secret/judgments.csv",
    ],
)
def test_a_round_of_another_project_is_not_there(researcher_client, path):
    make_round(name="secret", project=make_project("Project"))

    assert researcher_client.get(path).status_code == 404


@pytest.mark.parametrize("change", ["pause", "reopen", "close"])
def test_a_viewer_may_look_but_not_change(client, own_round, change):
    client.force_login(make_member(Role.VIEWER))

    assert client.get(PILOT).status_code == 200
    assert client.post(f"{PILOT}{change}/").status_code == 403


@pytest.mark.parametrize("path", ["/rounds/", "/rounds/new/", PILOT, f"{PILOT}judgments.csv"])
def test_researchers_pages_are_closed_to_annotators(annotator_client, path):
    assert annotator_client.get(path).status_code == 403


def test_visitors_are_sent_to_the_login(client, own_round):
    assert client.get(PILOT).url == "/accounts/login/?next=/projects/default/rounds/pilot/"


def test_closing_names_the_round_and_what_is_open(researcher_client, own_round):
    page = researcher_client.get(f"{PILOT}close/").text

    assert "Close round <em>pilot</em>" in page
    assert "4 of 4 statements are incomplete" in page


def test_closing_closes(researcher_client, own_round):
    researcher_client.post(f"{PILOT}close/")

    own_round.refresh_from_db()
    assert own_round.status == Round.Status.CLOSED


def test_what_cannot_be_done_is_said(researcher_client, own_round):
    page = researcher_client.post(f"{PILOT}reopen/", follow=True).text

    assert "Round pilot is open and cannot become open." in page


def test_judgments_can_be_downloaded(researcher_client, own_round):
    judge_all(own_round, ["true"] * 4)

    response = researcher_client.get(f"{PILOT}judgments.jsonl")

    assert len(b"".join(response.streaming_content).splitlines()) == 4
    assert researcher_client.get(f"{PILOT}judgments.exe").status_code == 404


def test_a_simulated_round_says_so_wherever_it_shows(researcher_client, researcher):
    make_round(1, name="made-up", by=researcher, source="simulated")

    for path in ("/rounds/", "/projects/default/rounds/made-up/"):
        assert "simulated, not people" in researcher_client.get(path).text


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_link_leads_over_the_login_to_the_round(client, own_round):
    path = f"/join/{own_round.join_token}/"
    assert client.get(path).url == f"/accounts/login/?next={path}"

    client.force_login(make_user("ann"))
    response = client.post(path)

    assert response.url == judging_page()
    assert Annotator.objects.get().user.username == "ann"


def test_a_forged_link_leads_nowhere(client):
    client.force_login(make_user())

    assert client.get("/join/forged/").status_code == 404


@pytest.mark.parametrize("source", ["simulated", "imported"])
def test_people_cannot_join_what_is_not_for_them(client, source):
    round = make_round()
    Round.objects.update(source=source)
    client.force_login(make_user())

    response = client.post(f"/join/{round.join_token}/")

    assert f"its judgments are {source}" in response.text
    assert not Annotator.objects.exists()


def test_the_start_page_lists_the_rounds_one_has_joined(annotator_client):
    make_round(name="other")

    page = annotator_client.get("/").text

    assert judging_page() in page
    assert "other" not in page


# -- judging -----------------------------------------------------------------------------------------------------------


def test_without_scripts_the_form_stores_an_answer_and_comes_back(annotator_client, annotator, own_round):
    page = annotator_client.get(judge_url(own_round))
    row = page.context["rows"][0]
    task = own_round.tasks.get(pk=annotator.task_of(row["task"]))
    fields = answer_to(annotator, task, client_uuid=row["client_uuid"], seconds="")

    response = annotator_client.post(judge_url(own_round), fields)

    assert response.url == judge_url(own_round)
    assert Judgment.objects.get().task == task


def test_the_script_stores_an_answer_twice_and_it_is_one(annotator_client, annotator, own_round):
    task = next_batch(annotator, timezone.now())[0]
    fields = answer_to(annotator, task, seconds="2.5")

    replies = [annotator_client.post(judge_url(own_round), fields, **JSON).json() for _ in range(2)]

    assert replies == [{"stored": str(fields["client_uuid"]), "late": False}] * 2
    assert Judgment.objects.get().seconds == 2.5


def test_the_script_gets_the_next_statements(annotator_client, own_round):
    tasks = annotator_client.get(judge_url(own_round), **JSON).json()["tasks"]

    assert len(tasks) == 4
    assert tasks[0].keys() == {"task", "parts"}


def test_an_earlier_answer_can_be_changed_without_scripts(annotator_client, annotator, own_round):
    task = next_batch(annotator, timezone.now())[0]
    judge(annotator, task, "true")

    page = annotator_client.get(judge_url(own_round), {"task": annotator.token_of(task.pk)})
    annotator_client.post(judge_url(own_round), answer_to(annotator, task, "false"))

    given = {"task": annotator.token_of(task.pk), "parts": task.parts, "label": "true", "comment": ""}
    assert page.context["statements"][0] == given
    assert Judgment.objects.current().get().label == "false"


@pytest.mark.parametrize("task", ["9" * 16, "x", "-1", "9" * 30, ""])
def test_an_earlier_answer_that_is_not_ones_own_is_not_there(annotator_client, own_round, task):
    assert annotator_client.get(judge_url(own_round), {"task": task}).status_code == 404


def test_when_all_is_judged_the_page_says_thanks(annotator_client, annotator, own_round):
    for task in next_batch(annotator, timezone.now()):
        judge(annotator, task)

    assert "You judged 4 statements" in annotator_client.get(judge_url(own_round)).text


def test_a_round_one_has_not_joined_is_not_there(client, own_round):
    client.force_login(make_user())

    assert client.get(judge_url(own_round)).status_code == 404
    assert client.post(judge_url(own_round), {}).status_code == 404


@pytest.mark.parametrize(("end", "words"), [(pause_round, "Round paused"), (close_round, "Round closed")])
def test_a_round_that_is_not_open_says_so(annotator_client, annotator, own_round, end, words):
    task = next_batch(annotator, timezone.now())[0]
    end(own_round)

    assert words in annotator_client.get(judge_url(own_round)).text
    assert words in annotator_client.post(judge_url(own_round), answer_to(annotator, task)).text
    refusal = annotator_client.post(judge_url(own_round), answer_to(annotator, task), **JSON)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "RoundNotOpen")
    assert not Judgment.objects.exists()


def test_a_foreign_lease_is_refused(annotator_client, annotator, own_round):
    [other] = make_annotators(own_round, 1)
    task = next_batch(other, timezone.now())[0]

    refusal = annotator_client.post(judge_url(own_round), answer_to(annotator, task), **JSON)

    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "NotAssigned")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label", "maybe"),
        ("label", ""),
        ("task", "x"),
        ("task", "9" * 30),
        ("client_uuid", "1"),
        ("seconds", "-1"),
        ("seconds", "nan"),
    ],
)
def test_an_answer_that_cannot_be_names_the_field(annotator_client, annotator, own_round, field, value):
    task = next_batch(annotator, timezone.now())[0]

    refusal = annotator_client.post(judge_url(own_round), answer_to(annotator, task) | {field: value}, **JSON)

    assert refusal.status_code == 400
    assert list(refusal.json()["error"]["fields"]) == [field]
    assert annotator_client.post(judge_url(own_round), answer_to(annotator, task) | {field: value}).status_code == 400


def test_a_statement_is_escaped(client):
    round = make_round([("<script>alert(1)</script>", "</script>")], name="pilot")
    annotator = join_round(round, make_user())
    client.force_login(annotator.user)

    page = client.get(judge_url(round)).text

    assert "<script>alert" not in page
    assert json.dumps("<script>").replace("<", "\\u003C").replace(">", "\\u003E")[1:-1] in page
