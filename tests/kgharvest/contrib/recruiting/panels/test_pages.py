"""Panel pages for researchers: creation, publishing, participants, and the CSV file."""

import csv
import io
from datetime import timedelta

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.panels.participants import participant_rows
from kgharvest.contrib.recruiting.panels.services import complete, enter, join, leave
from tests.factories import judge, make_gold, make_researcher, make_round
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

pytestmark = pytest.mark.django_db

PANELS = "/projects/default/rounds/pilot/panels/"
NOW = timezone.now()


@pytest.fixture
def round(client):
    client.force_login(make_researcher())
    return make_round(6, name="pilot", judgments_per_task=2)


def enter_and_judge(panel: Panel, person: str, n: int = 0) -> Submission:
    """Let a person enter, agree, and judge `n` statements true in four seconds each."""
    submission = enter(panel, person, "", NOW)
    annotator = join(submission, agrees=True)
    for task in next_batch(annotator, timezone.now())[:n]:
        judge(annotator, task, "true", seconds=4)
    submission.refresh_from_db()
    return submission


def test_panel_is_created_and_published_in_four_clicks(client, round):
    page = client.get("/projects/default/rounds/pilot/").text
    assert f'href="{PANELS}new/"' in page

    form = client.get(f"{PANELS}new/").context["form"]
    values = {field.html_name: field.value() for field in form if field.value() is not None}
    created = client.post(f"{PANELS}new/", values)
    draft = client.get(created.url).text
    cost = client.get(f"{created.url}publish/").text
    client.post(f"{created.url}publish/")
    published = client.get(created.url).text

    panel = round.panels.get()
    assert (panel.status, panel.places, panel.statements_per_place) == ("published", 2, 6)
    assert "admits participants after the panel is published" in draft
    assert "2 places at USD 0.60 (USD 12.00 per estimated hour) cost USD 1.20 in rewards" in cost
    assert f"/enter/{panel.token}/?participant=PARTICIPANT&amp;study=STUDY&amp;session=SESSION" in published
    assert f'href="{PANELS}"' in client.get("/projects/default/rounds/pilot/").text


def test_form_has_platform_parameters_and_shows_errors(client, round):
    sona = client.get(f"{PANELS}new/?platform=sona")
    values = {field.html_name: field.value() for field in sona.context["form"] if field.value() is not None}
    invalid = client.post(f"{PANELS}new/", values | {"reward": "1.234", "completion_url": "javascript:alert(1)"}).text
    bad_name = client.post(f"{PANELS}new/", values | {"name": "new"}).text
    low_reward = client.post(f"{PANELS}new/", values | {"reward": "0.10", "hourly_floor": "90"}).text

    assert values["participant_parameter"] == "survey_code"
    assert values["reward"] == "0.00"
    assert "Use the format 12.34" in invalid
    assert "name cannot be “new”" in bad_name
    assert "below the minimum hourly rate of USD 90.00" in low_reward
    assert '<details class="folded" open><summary>Additional pay options' in low_reward
    assert not round.panels.exists()


def test_panel_page_shows_participants_and_their_work(client, round, django_assert_max_num_queries):
    panel = make_panel(round, name="main", places=3, reward=250, statements_per_place=4)
    make_gold(round, round.tasks.order_by("position")[:2], "false")
    finished = enter_and_judge(panel, "=cmd()", 4)
    complete(finished, timezone.now())
    enter_and_judge(panel, "p2", 1)
    enter(panel, "p3", "", NOW)

    with django_assert_max_num_queries(30):
        page = client.get(f"{PANELS}main/").text
    search = client.get(f"{PANELS}main/?q=p2&sort=-judged").context
    active = client.get(f"{PANELS}main/?status=active").context
    [first, *_] = csv.DictReader(io.StringIO(client.get(f"{PANELS}main/participants.csv").getvalue().decode()))

    assert "1 of 3 done" in page
    assert "3 taken, 0 free" in page
    assert "USD 2.50" in page
    assert [row["participant"] for row in search["page_obj"]] == ["p2"]
    assert [row["n_judged"] for row in search["page_obj"]] == [1]
    assert {row["participant"] for row in active["page_obj"]} == {"p2", "p3"}
    assert first["participant"] == "'=cmd()"
    assert (first["status"], first["judgments"], first["active_minutes"]) == ("awaiting review", "4", "0.3")
    assert (first["currency"], first["owed"], first["paid"]) == ("USD", "2.50", "0.00")


def test_gold_and_time_are_counted_per_submission(round):
    round.gold_reuse = True  # assignments that are created below lease no slots
    make_gold(round, round.tasks.order_by("position"), "true")
    round.tasks.filter(position__gte=3).update(gold_label="false")
    panel = make_panel(round, session_parameter="session", statements_per_place=2)
    first = enter(panel, "p1", "s1", NOW - timedelta(hours=1))
    annotator = join(first, agrees=True)
    tasks = list(round.tasks.order_by("position"))
    for task in tasks:
        annotator.assignments.create(task=task, expires_at=NOW + timedelta(hours=9))
    judge(annotator, tasks[0], "true", seconds=5)
    leave(first, Submission.Status.RETURNED, timezone.now())
    for task in tasks:
        annotator.assignments.filter(task=task, status="expired").update(status="leased")
    second = enter(panel, "p1", "s2", timezone.now())
    judge(second.annotator, tasks[1], "false", seconds=6)
    judge(second.annotator, tasks[1], "true", seconds=7)
    judge(second.annotator, tasks[5], "true", seconds=8)

    rows = participant_rows(panel)

    assert second.annotator == annotator
    assert [(row["n_judged"], row["n_gold"], row["n_gold_right"], row["active_s"]) for row in rows] == [
        (1, 1, 1, 5.0),
        (2, 2, 1, 21.0),
    ]


def test_place_can_be_freed_manually(client, round):
    panel = make_panel(round, name="main", places=1)
    submission = enter_and_judge(panel, "p1", 1)

    client.post(f"{PANELS}main/free/", {"submission": submission.pk})

    submission.refresh_from_db()
    assert submission.status == Submission.Status.TIMED_OUT
    assert enter(panel, "p2", "", NOW).status == Submission.Status.ACTIVE


def test_panel_is_paused_edited_and_stopped_and_draft_deleted(client, round):
    panel = make_panel(round, name="main", places=2)
    draft = make_panel(round, "draft", name="other")

    client.post(f"{PANELS}main/pause/")
    paused = client.get(f"{PANELS}main/").text
    client.post(f"{PANELS}main/resume/")
    form = client.get(f"{PANELS}main/edit/").context["form"]
    values = {field.html_name: field.value() for field in form if field.value() is not None}
    client.post(f"{PANELS}main/edit/", values | {"places": "9"})
    refused = client.post(f"{PANELS}main/edit/", values | {"places": "9", "reward": "3.00"}).text
    client.post(f"{PANELS}main/stop/")
    second = client.post(f"{PANELS}main/resume/", follow=True).text
    client.post(f"{PANELS}other/delete/")

    panel.refresh_from_db()
    assert "Paused by a researcher." in paused
    assert (panel.status, panel.places) == ("stopped", 9)
    assert "Cannot change reward" in refused
    assert "main is stopped. Reload its page" in second
    assert not Panel.objects.filter(pk=draft.pk).exists()


def test_empty_panel_list_explains_panels(client, round):
    assert "No participants can enter" in client.get(PANELS).text
