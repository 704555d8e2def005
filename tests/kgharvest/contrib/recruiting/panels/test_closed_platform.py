"""Panels of Amazon Mechanical Turk, which has closed: data stays readable, and nothing is sent to the platform."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from kgharvest.contrib.recruiting.models import Panel, Platform, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import digest, encrypted
from kgharvest.contrib.recruiting.panels.publishing import pause_panel
from kgharvest.contrib.recruiting.pay import ledger as pay
from kgharvest.contrib.recruiting.pay.commands import outbox, settle_by_hand
from kgharvest.contrib.recruiting.pay.hourly import pay_in_words
from kgharvest.contrib.recruiting.reconciliation import due_panels
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.api import JSON, client_of, error_of
from tests.factories import judge, make_round
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]

PANELS = "/projects/default/rounds/pilot/panels/"
PANEL_URL = f"{PANELS}turkers/"
CLOSED = "Amazon Mechanical Turk closed on 30 September 2026"
ENTRY = "?workerId=A1NEW&hitId=3HIT&assignmentId=3NEW"


@pytest.fixture
def panel() -> Panel:
    """Create a published panel as in version 95ec9180: one worker paid with a bonus, one unreviewed, one active."""
    panel = make_panel(
        make_round(6, name="pilot"), name="turkers", platform=Platform.MTURK, is_sandbox=False, places=4, reward=120,
        statements_per_place=6, external_id="3HIT", participant_parameter="workerId", study_parameter="hitId",
        session_parameter="assignmentId", completion_code="", platform_options={"lifetime_days": 2},
    )  # fmt: skip
    paid = submission_of(panel, "A1PAID", Submission.Status.APPROVED)
    for task in next_batch(paid.annotator, timezone.now()):
        judge(paid.annotator, task, seconds=20)
    pay.owe(paid, pay.Purpose.REWARD, pay.REWARD, 120, "All statements of the place were judged.")
    pay.record_paid(paid, pay.Purpose.REWARD, pay.REWARD, 120, "Approved.")
    pay.owe(paid, pay.Purpose.BONUS, "bonus:1", 35, "Thank you.")
    pay.record_paid(paid, pay.Purpose.BONUS, "bonus:1", 35, "Thank you.")
    unreviewed = submission_of(panel, "A1UNREVIEWED", Submission.Status.COMPLETED)
    pay.owe(unreviewed, pay.Purpose.REWARD, pay.REWARD, 120, "All statements of the place were judged.")
    submission_of(panel, "A1ACTIVE", Submission.Status.ACTIVE)
    return panel


def submission_of(panel: Panel, worker: str, status: str) -> Submission:
    now = timezone.now()
    return panel.submissions.create(
        participant=encrypted(worker), participant_digest=digest(worker), session=encrypted(f"3{worker}"),
        session_digest=digest(f"3{worker}"), status=status, annotator=join_round(panel.round, place_size=6),
        entered_at=now - timedelta(hours=1), completed_at=None if status == Submission.Status.ACTIVE else now,
    )  # fmt: skip


def send_all_commands() -> None:
    """Run pending command jobs like a worker."""
    outbox.enqueue_if_due(timezone.now())
    for job in Job.objects.filter(kind=outbox.job_kind, status="queued"):
        ledger.run_job(job.pk)


# Reading


def test_pages_and_files_show_participants_and_amounts(panel, researcher_client):
    paid = panel.submissions.first()
    page = researcher_client.get(PANEL_URL)
    pay_page = researcher_client.get(f"{PANEL_URL}pay/")
    person = researcher_client.get(f"{PANEL_URL}pay/people/{paid.pk}/")
    review = researcher_client.get(f"{PANEL_URL}pay/review/")
    participants_file = researcher_client.get(f"{PANEL_URL}participants.csv").getvalue().decode()
    people = list(csv.DictReader(io.StringIO(participants_file)))
    lines = list(csv.DictReader(io.StringIO(researcher_client.get(f"{PANEL_URL}pay/ledger.csv").getvalue().decode())))

    assert [page.status_code, pay_page.status_code, person.status_code, review.status_code] == [200] * 4
    assert "A1PAID" in page.text
    assert "USD 1.55" in page.text
    assert "Amazon Mechanical Turk (closed)" in researcher_client.get(PANELS).text
    assert "USD 2.75" in pay_page.text  # owed
    assert "USD 1.55" in pay_page.text  # paid
    assert "USD 1.55" in person.text
    assert [(row["participant"], row["owed"], row["paid"]) for row in people] == [
        ("A1PAID", "1.55", "1.55"),
        ("A1UNREVIEWED", "1.20", "0.00"),
        ("A1ACTIVE", "0.00", "0.00"),
    ]
    assert sum(Decimal(line["amount"]) for line in lines if line["side"] == "paid") == Decimal("1.55")
    assert "recruited on Amazon Mechanical Turk completed the work" in pay_in_words(panel.round)


def test_pages_offer_no_platform_actions(panel, researcher_client):
    page, pay_page = researcher_client.get(PANEL_URL).text, researcher_client.get(f"{PANEL_URL}pay/").text
    person = researcher_client.get(f"{PANEL_URL}pay/people/{panel.submissions.all()[1].pk}/").text

    for action in ("publish/", "pause/", "resume/", "edit/"):
        assert f"{PANEL_URL}{action}" not in page
    assert f"/enter/{panel.token}/" not in page
    assert f"{PANEL_URL}reconcile/" not in page
    assert f"{PANEL_URL}pay/review/" not in page + pay_page
    assert 'name="verb"' not in person


def test_api_returns_the_panel_participants_and_payments(panel):
    api = client_of()
    panel_url = f"/api/v1/rounds/{panel.round_id}/panels/turkers/"

    assert api.get(panel_url).json()["platform"] == "mturk"
    assert api.get(panel_url).json()["platform_options"] == {"lifetime_days": 2}
    people = api.get(f"{panel_url}participants/").json()["results"]
    assert {(person["participant"], person["owed"], person["paid"]) for person in people} == {
        ("A1PAID", 155, 155),
        ("A1UNREVIEWED", 120, 0),
        ("A1ACTIVE", 0, 0),
    }
    balance = api.get(f"{panel_url}pay/").json()
    assert (balance["owed"], balance["paid"], balance["open"]) == (275, 155, 120)
    lines = api.get(f"{panel_url}pay/entries/").json()["results"]
    assert [line["amount"] for line in lines if line["side"] == "paid"] == [120, 35]
    assert CLOSED in api.get(f"{panel_url}cost/").json()["cost"]


# Rejected requests


def test_panels_cannot_be_created_on_or_moved_to_the_closed_platform(panel, researcher_client):
    form = researcher_client.get(f"{PANELS}new/?platform=mturk")
    values = {field.html_name: field.value() for field in form.context["form"] if field.value() is not None}
    page = researcher_client.post(f"{PANELS}new/", values | {"name": "another", "platform": "mturk"})
    make_panel(panel.round, "draft", name="draft")
    edited = researcher_client.post(f"{PANELS}draft/edit/", values | {"name": "draft", "platform": "mturk"})
    api = client_of()
    created = api.post(f"/api/v1/rounds/{panel.round_id}/panels/", {"platform": "mturk"}, JSON)
    moved = api.patch(f"/api/v1/rounds/{panel.round_id}/panels/draft/", {"platform": "mturk"}, JSON)

    assert values["platform"] == "link"
    assert "?platform=mturk" not in form.text
    assert [answer.status_code for answer in (page, edited, created, moved)] == [400] * 4
    assert CLOSED in page.text
    assert [*error_of(created)["fields"]] == ["platform"]
    assert list(Panel.objects.filter(platform="mturk")) == [panel]


def test_entry_links_are_not_found(panel, client):
    assert client.get(f"/enter/{panel.token}/{ENTRY}").status_code == 404
    assert client.get(f"/mturk/{panel.token}/{ENTRY}").status_code == 404
    assert panel.submissions.count() == 3


@pytest.mark.parametrize(
    ("status", "request_to", "body"),
    [
        ("draft", "publish/", {}),
        ("published", "publish/", {}),
        ("paused", "resume/", {}),
        ("published", "pay/commands/", {"kind": "approve"}),
        ("published", "pay/bonuses/", {"amount": 50, "reason": "Thank you."}),
        ("published", "pay/approve/", {}),
    ],
)
def test_api_rejects_requests_to_the_platform(panel, status, request_to, body):
    Panel.objects.update(status=status, external_id="" if request_to == "publish/" else "3HIT")
    if body:
        body = {"submission": panel.submissions.all()[1].pk, **body}

    response = client_of().post(f"/api/v1/rounds/{panel.round_id}/panels/turkers/{request_to}", body, JSON)

    assert response.status_code == 409
    assert error_of(response)["code"] == "PlatformRefused"
    assert CLOSED in error_of(response)["message"]
    assert not PlatformCommand.objects.exists()
    assert Panel.objects.get(pk=panel.pk).status == status


@pytest.mark.parametrize(
    ("request_to", "body"),
    [
        ("publish/", {}),
        ("reconcile/", {}),
        ("pay/review/", {"all": "1"}),
        ("pay/floor/", {}),
    ],
)
def test_pages_reject_requests_to_the_platform_with_a_message(panel, researcher_client, request_to, body):
    Panel.objects.update(hourly_floor=900)

    response = researcher_client.post(f"{PANEL_URL}{request_to}", body, follow=True)

    assert [message.level_tag for message in response.context["messages"]] == ["error"]
    assert not PlatformCommand.objects.exists()


def test_panel_can_be_stopped_and_places_freed(panel, researcher_client):
    active = panel.submissions.last()

    researcher_client.post(f"{PANEL_URL}free/", {"submission": active.pk})
    researcher_client.post(f"{PANEL_URL}stop/")

    panel.refresh_from_db()
    active.refresh_from_db()
    assert (panel.status, active.status) == ("stopped", "timed out")


# Commands from an older version


def test_pending_commands_fail_without_being_sent(panel, researcher, researcher_client):
    paid, unreviewed, _ = panel.submissions.all()
    approval = unreviewed.commands.create(kind="approve", key="approve")
    bonus = paid.commands.create(kind="bonus", key="bonus:2", amount=50, message="Thank you.")
    pay.owe(paid, pay.Purpose.BONUS, "bonus:2", 50, "Thank you.", command=bonus)
    lines = panel.pay_entries.count()

    send_all_commands()

    for command in (approval, bonus):
        command.refresh_from_db()
        assert command.state == "failed"
        assert CLOSED in command.error
    unreviewed.refresh_from_db()
    assert unreviewed.status == "completed"
    assert panel.pay_entries.count() == lines
    assert not Job.objects.filter(status="failed").exists()
    page = researcher_client.get(f"{PANEL_URL}pay/").text
    assert CLOSED in page
    assert 'name="resend"' not in page
    researcher_client.post(f"{PANEL_URL}pay/commands/{bonus.pk}/", {"resend": "1"})
    bonus.refresh_from_db()
    assert bonus.state == "failed"
    researcher_client.post(f"{PANEL_URL}pay/noted/", {"submission": paid.pk, "total": 50})
    assert pay.balance_of(paid).open == 0


def test_uncertain_bonus_is_settled_manually_and_never_sent(panel, researcher):
    paid = panel.submissions.first()
    executed = paid.commands.create(kind="bonus", key="bonus:2", amount=50, state="uncertain", n_tries=1)
    not_executed = paid.commands.create(kind="bonus", key="bonus:3", amount=70, state="uncertain", n_tries=1)
    for command in (executed, not_executed):
        pay.owe(paid, pay.Purpose.BONUS, command.key, command.amount, "Thank you.", command=command)

    settle_by_hand(executed, True, researcher)
    settle_by_hand(not_executed, False, researcher)
    send_all_commands()

    executed.refresh_from_db()
    not_executed.refresh_from_db()
    assert (executed.state, not_executed.state) == ("done", "failed")
    assert pay.balance_of(paid).open == 70


def test_panel_is_not_reconciled_and_pauses_without_a_request(panel):
    pause_panel(panel, "The median pay is below the floor.")

    assert not due_panels(timezone.now()).exists()
    assert (panel.status, panel.ended_reason) == ("paused", "The median pay is below the floor.")
