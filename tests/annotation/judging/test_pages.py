"""Pages of researchers and annotators: permissions, content, and actions."""

import json
import re
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from annotation.models import Annotator, Judgment, Round
from annotation.rounds.services import close_round, pause_round, reopen_round
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
def pilot_round(researcher):
    return make_round(4, name="pilot", by=researcher)


@pytest.fixture
def annotator(pilot_round):
    return join_round(pilot_round, make_user("ann"))


@pytest.fixture
def annotator_client(annotator):
    client = Client()
    client.force_login(annotator.user)
    return client


def judge_url(round) -> str:
    return reverse("annotation:judge", args=[round.pk])


def answer_to(annotator, task, label="true", **fields) -> dict:
    return {"task": annotator.token_of(task.pk), "label": label, "client_uuid": uuid4(), **fields}


# Researchers


def test_list_shows_rounds_of_own_projects(researcher_client, pilot_round):
    make_round(name="secret", project=make_project("Project"))

    page = researcher_client.get("/rounds/").text

    assert "pilot" in page
    assert "secret" not in page


def test_list_search_without_matches_shows_message(researcher_client, pilot_round):
    assert "No matching rounds" in researcher_client.get("/rounds/", {"q": "nothing like it"}).text


def test_list_shows_no_opening_hint_for_imported_rounds(researcher_client, pilot_round):
    Round.objects.filter(pk=pilot_round.pk).update(source="imported", status="closed", opened_at=None)

    assert "not yet" not in researcher_client.get("/rounds/").text


def test_empty_list_suggests_a_new_harvest(researcher_client):
    assert "New harvest" in researcher_client.get("/rounds/").text


def test_list_query_count_is_constant(researcher_client, pilot_round, researcher, django_assert_max_num_queries):
    for _ in range(5):
        make_round(by=researcher)

    with django_assert_max_num_queries(8):
        researcher_client.get("/rounds/")


def test_round_page_shows_progress_and_join_link(researcher_client, pilot_round):
    judge_all(pilot_round, *[["true"] * 4] * 3)

    response = researcher_client.get(PILOT)

    assert response.context["progress"]["accepted"] == 4
    assert f"/join/{pilot_round.join_token}/" in response.text


def next_step(client) -> str:
    """Return the text of the primary control in the page's header."""
    return re.search(r'class="button primary"[^>]*>([^<]+)<', client.get(PILOT).text)[1]


def test_primary_control_is_the_next_step_of_the_round(researcher_client, pilot_round):
    steps = [next_step(researcher_client)]
    pause_round(pilot_round)
    steps.append(next_step(researcher_client))
    reopen_round(pilot_round)
    judge_all(pilot_round, *[["true"] * 4] * 2)
    steps.append(next_step(researcher_client))
    judge_all(pilot_round, ["true"] * 4)
    steps.append(next_step(researcher_client))

    assert steps == ["Invite annotators", "Reopen", "Invite annotators", "Create report"]


def test_closed_round_asks_for_a_report(researcher_client, pilot_round):
    close_round(pilot_round)

    assert next_step(researcher_client) == "Create report"


def test_round_page_states_third_judgments_only_for_splits(researcher_client, researcher):
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
def test_round_of_another_project_returns_404(researcher_client, path):
    make_round(name="secret", project=make_project("Project"))

    assert researcher_client.get(path).status_code == 404


@pytest.mark.parametrize("change", ["pause", "reopen", "close"])
def test_viewer_can_open_but_not_change_round(client, pilot_round, change):
    client.force_login(make_member(Role.VIEWER))

    assert client.get(PILOT).status_code == 200
    assert client.post(f"{PILOT}{change}/").status_code == 403


@pytest.mark.parametrize("path", ["/rounds/", "/rounds/new/", PILOT, f"{PILOT}judgments.csv"])
def test_annotators_cannot_open_researcher_pages(annotator_client, path):
    assert annotator_client.get(path).status_code == 403


def test_anonymous_visitor_is_redirected_to_login(client, pilot_round):
    assert client.get(PILOT).url == "/accounts/login/?next=/projects/default/rounds/pilot/"


def test_closing_page_names_round_and_incomplete_statements(researcher_client, pilot_round):
    page = researcher_client.get(f"{PILOT}close/").text

    assert "Close round <em>pilot</em>" in page
    assert "4 of 4 statements are incomplete" in page


def test_closing_form_closes_the_round(researcher_client, pilot_round):
    researcher_client.post(f"{PILOT}close/")

    pilot_round.refresh_from_db()
    assert pilot_round.status == Round.Status.CLOSED


def test_invalid_status_change_shows_error(researcher_client, pilot_round):
    page = researcher_client.post(f"{PILOT}reopen/", follow=True).text

    assert "Round pilot is open and cannot become open." in page


def test_judgments_can_be_downloaded_as_jsonl(researcher_client, pilot_round):
    judge_all(pilot_round, ["true"] * 4)

    response = researcher_client.get(f"{PILOT}judgments.jsonl")

    assert len(b"".join(response.streaming_content).splitlines()) == 4
    assert researcher_client.get(f"{PILOT}judgments.exe").status_code == 404


def test_pages_label_simulated_rounds(researcher_client, researcher):
    make_round(1, name="made-up", by=researcher, source="simulated")

    for path in ("/rounds/", "/projects/default/rounds/made-up/"):
        assert "simulated, not people" in researcher_client.get(path).text


# Joining


def test_join_link_redirects_via_login_to_judging_page(client, pilot_round):
    path = f"/join/{pilot_round.join_token}/"
    assert client.get(path).url == f"/accounts/login/?next={path}"

    client.force_login(make_user("ann"))
    response = client.post(path)

    assert response.url == judging_page()
    assert Annotator.objects.get().user.username == "ann"


def test_forged_join_link_returns_404(client):
    client.force_login(make_user())

    assert client.get("/join/forged/").status_code == 404


@pytest.mark.parametrize("source", ["simulated", "imported"])
def test_joining_simulated_or_imported_round_is_rejected(client, source):
    round = make_round()
    Round.objects.update(source=source)
    client.force_login(make_user())

    response = client.post(f"/join/{round.join_token}/")

    assert f"its judgments are {source}" in response.text
    assert not Annotator.objects.exists()


def test_start_page_lists_joined_rounds(annotator_client):
    make_round(name="other")

    page = annotator_client.get("/").text

    assert judging_page() in page
    assert "other" not in page


# Judging


def test_plain_form_stores_answer_and_redirects_to_judging_page(annotator_client, annotator, pilot_round):
    page = annotator_client.get(judge_url(pilot_round))
    row = page.context["rows"][0]
    task = pilot_round.tasks.get(pk=annotator.task_of(row["task"]))
    fields = answer_to(annotator, task, client_uuid=row["client_uuid"], seconds="")

    response = annotator_client.post(judge_url(pilot_round), fields)

    assert response.url == judge_url(pilot_round)
    assert Judgment.objects.get().task == task


def test_answer_resent_by_script_is_stored_once(annotator_client, annotator, pilot_round):
    task = next_batch(annotator, timezone.now())[0]
    fields = answer_to(annotator, task, seconds="2.5")

    replies = [annotator_client.post(judge_url(pilot_round), fields, **JSON).json() for _ in range(2)]

    assert replies == [{"stored": str(fields["client_uuid"]), "late": False}] * 2
    assert Judgment.objects.get().seconds == 2.5


def test_judging_json_returns_next_statements(annotator_client, pilot_round):
    tasks = annotator_client.get(judge_url(pilot_round), **JSON).json()["tasks"]

    assert len(tasks) == 4
    assert tasks[0].keys() == {"task", "parts"}


def test_answer_can_be_changed_by_plain_form(annotator_client, annotator, pilot_round):
    task = next_batch(annotator, timezone.now())[0]
    judge(annotator, task, "true")

    page = annotator_client.get(judge_url(pilot_round), {"task": annotator.token_of(task.pk)})
    annotator_client.post(judge_url(pilot_round), answer_to(annotator, task, "false"))

    stored = {"task": annotator.token_of(task.pk), "parts": task.parts, "label": "true", "comment": ""}
    assert page.context["statements"][0] == stored
    assert Judgment.objects.current().get().label == "false"


@pytest.mark.parametrize("task", ["9" * 16, "x", "-1", "9" * 30, ""])
def test_page_of_unknown_task_returns_404(annotator_client, pilot_round, task):
    assert annotator_client.get(judge_url(pilot_round), {"task": task}).status_code == 404


def test_completed_annotator_sees_number_of_judgments(annotator_client, annotator, pilot_round):
    for task in next_batch(annotator, timezone.now()):
        judge(annotator, task)

    assert "You judged 4 statements" in annotator_client.get(judge_url(pilot_round)).text


def test_judging_page_of_unjoined_round_returns_404(client, pilot_round):
    client.force_login(make_user())

    assert client.get(judge_url(pilot_round)).status_code == 404
    assert client.post(judge_url(pilot_round), {}).status_code == 404


@pytest.mark.parametrize(("end", "words"), [(pause_round, "Round paused"), (close_round, "Round closed")])
def test_judging_page_states_round_is_paused_or_closed(annotator_client, annotator, pilot_round, end, words):
    task = next_batch(annotator, timezone.now())[0]
    end(pilot_round)

    assert words in annotator_client.get(judge_url(pilot_round)).text
    assert words in annotator_client.post(judge_url(pilot_round), answer_to(annotator, task)).text
    refusal = annotator_client.post(judge_url(pilot_round), answer_to(annotator, task), **JSON)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "RoundNotOpen")
    assert not Judgment.objects.exists()


def test_answer_to_unassigned_task_is_rejected(annotator_client, annotator, pilot_round):
    [other] = make_annotators(pilot_round, 1)
    task = next_batch(other, timezone.now())[0]

    refusal = annotator_client.post(judge_url(pilot_round), answer_to(annotator, task), **JSON)

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
def test_invalid_answer_error_names_the_field(annotator_client, annotator, pilot_round, field, value):
    task = next_batch(annotator, timezone.now())[0]

    refusal = annotator_client.post(judge_url(pilot_round), answer_to(annotator, task) | {field: value}, **JSON)

    assert refusal.status_code == 400
    assert list(refusal.json()["error"]["fields"]) == [field]
    assert annotator_client.post(judge_url(pilot_round), answer_to(annotator, task) | {field: value}).status_code == 400


def test_statement_is_html_escaped(client):
    round = make_round([("<script>alert(1)</script>", "</script>")], name="pilot")
    annotator = join_round(round, make_user())
    client.force_login(annotator.user)

    page = client.get(judge_url(round)).text

    assert "<script>alert" not in page
    assert json.dumps("<script>").replace("<", "\\u003C").replace(">", "\\u003E")[1:-1] in page
