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
HERE = f"{PANELS}turkers/"
CLOSED = "Amazon Mechanical Turk closed on 30 September 2026"
ENTRY = "?workerId=A1NEW&hitId=3HIT&assignmentId=3NEW"


@pytest.fixture
def panel() -> Panel:
    """A published panel as version 95ec9180 left it: one worker paid with a bonus, one not reviewed, one at work."""
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
    """Do the work of a worker until no command is due."""
    outbox.enqueue_if_due(timezone.now())
    for job in Job.objects.filter(kind=outbox.job_kind, status="queued"):
        ledger.run_job(job.pk)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_pages_and_files_show_participants_and_amounts(panel, researcher_client):
    paid = panel.submissions.first()
    page = researcher_client.get(HERE)
    pay_page = researcher_client.get(f"{HERE}pay/")
    person = researcher_client.get(f"{HERE}pay/people/{paid.pk}/")
    review = researcher_client.get(f"{HERE}pay/review/")
    people = list(csv.DictReader(io.StringIO(researcher_client.get(f"{HERE}participants.csv").getvalue().decode())))
    lines = list(csv.DictReader(io.StringIO(researcher_client.get(f"{HERE}pay/ledger.csv").getvalue().decode())))

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


def test_pages_offer_nothing_that_the_platform_would_have_to_do(panel, researcher_client):
    page, pay_page = researcher_client.get(HERE).text, researcher_client.get(f"{HERE}pay/").text
    person = researcher_client.get(f"{HERE}pay/people/{panel.submissions.all()[1].pk}/").text

    for rest in ("publish/", "pause/", "resume/", "edit/"):
        assert f"{HERE}{rest}" not in page
    assert f"/enter/{panel.token}/" not in page
    assert f"{HERE}reconcile/" not in page
    assert f"{HERE}pay/review/" not in page + pay_page
    assert 'name="verb"' not in person


def test_the_api_answers_with_the_panel_its_participants_and_payments(panel):
    api = client_of()
    here = f"/api/v1/rounds/{panel.round_id}/panels/turkers/"

    assert api.get(here).json()["platform"] == "mturk"
    assert api.get(here).json()["platform_options"] == {"lifetime_days": 2}
    people = api.get(f"{here}participants/").json()["results"]
    assert {(person["participant"], person["owed"], person["paid"]) for person in people} == {
        ("A1PAID", 155, 155),
        ("A1UNREVIEWED", 120, 0),
        ("A1ACTIVE", 0, 0),
    }
    balance = api.get(f"{here}pay/").json()
    assert (balance["owed"], balance["paid"], balance["open"]) == (275, 155, 120)
    lines = api.get(f"{here}pay/entries/").json()["results"]
    assert [line["amount"] for line in lines if line["side"] == "paid"] == [120, 35]
    assert CLOSED in api.get(f"{here}cost/").json()["cost"]


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_no_panel_is_created_or_moved_there(panel, researcher_client):
    form = researcher_client.get(f"{PANELS}new/?platform=mturk")
    values = {field.html_name: field.value() for field in form.context["form"] if field.value() is not None}
    page = researcher_client.post(f"{PANELS}new/", values | {"name": "another", "platform": "mturk"})
    make_panel(panel.round, "draft", name="draft")
    edited = researcher_client.post(f"{PANELS}draft/edit/", values | {"name": "draft", "platform": "mturk"})
    api = client_of()
    made = api.post(f"/api/v1/rounds/{panel.round_id}/panels/", {"platform": "mturk"}, JSON)
    moved = api.patch(f"/api/v1/rounds/{panel.round_id}/panels/draft/", {"platform": "mturk"}, JSON)

    assert values["platform"] == "link"
    assert "?platform=mturk" not in form.text
    assert [answer.status_code for answer in (page, edited, made, moved)] == [400] * 4
    assert CLOSED in page.text
    assert [*error_of(made)["fields"]] == ["platform"]
    assert list(Panel.objects.filter(platform="mturk")) == [panel]


def test_nobody_enters(panel, client):
    assert client.get(f"/enter/{panel.token}/{ENTRY}").status_code == 404
    assert client.get(f"/mturk/{panel.token}/{ENTRY}").status_code == 404
    assert panel.submissions.count() == 3


@pytest.mark.parametrize(
    ("status", "request_to", "sent"),
    [
        ("draft", "publish/", {}),
        ("published", "publish/", {}),
        ("paused", "resume/", {}),
        ("published", "pay/commands/", {"kind": "approve"}),
        ("published", "pay/bonuses/", {"amount": 50, "reason": "Thank you."}),
        ("published", "pay/approve/", {}),
    ],
)
def test_the_api_refuses_requests_to_the_platform(panel, status, request_to, sent):
    Panel.objects.update(status=status, external_id="" if request_to == "publish/" else "3HIT")
    if sent:
        sent = {"submission": panel.submissions.all()[1].pk, **sent}

    refused = client_of().post(f"/api/v1/rounds/{panel.round_id}/panels/turkers/{request_to}", sent, JSON)

    assert refused.status_code == 409
    assert error_of(refused)["code"] == "PlatformRefused"
    assert CLOSED in error_of(refused)["message"]
    assert not PlatformCommand.objects.exists()
    assert Panel.objects.get(pk=panel.pk).status == status


@pytest.mark.parametrize(
    ("request_to", "sent"),
    [
        ("publish/", {}),
        ("reconcile/", {}),
        ("pay/review/", {"all": "1"}),
        ("pay/floor/", {}),
    ],
)
def test_pages_refuse_requests_to_the_platform_with_a_message(panel, researcher_client, request_to, sent):
    Panel.objects.update(hourly_floor=900)

    response = researcher_client.post(f"{HERE}{request_to}", sent, follow=True)

    assert [message.level_tag for message in response.context["messages"]] == ["error"]
    assert not PlatformCommand.objects.exists()


def test_it_is_stopped_here_and_places_are_freed(panel, researcher_client):
    active = panel.submissions.last()

    researcher_client.post(f"{HERE}free/", {"submission": active.pk})
    researcher_client.post(f"{HERE}stop/")

    panel.refresh_from_db()
    active.refresh_from_db()
    assert (panel.status, active.status) == ("stopped", "timed out")


# -- commands of an old database ---------------------------------------------------------------------------------------


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
    page = researcher_client.get(f"{HERE}pay/").text
    assert CLOSED in page
    assert 'name="resend"' not in page
    researcher_client.post(f"{HERE}pay/commands/{bonus.pk}/", {"resend": "1"})
    bonus.refresh_from_db()
    assert bonus.state == "failed"
    researcher_client.post(f"{HERE}pay/noted/", {"submission": paid.pk, "total": 50})
    assert pay.balance_of(paid).open == 0


def test_an_uncertain_bonus_is_settled_by_hand_and_never_sent(panel, researcher):
    paid = panel.submissions.first()
    made = paid.commands.create(kind="bonus", key="bonus:2", amount=50, state="uncertain", n_tries=1)
    not_made = paid.commands.create(kind="bonus", key="bonus:3", amount=70, state="uncertain", n_tries=1)
    for command in (made, not_made):
        pay.owe(paid, pay.Purpose.BONUS, command.key, command.amount, "Thank you.", command=command)

    settle_by_hand(made, True, researcher)
    settle_by_hand(not_made, False, researcher)
    send_all_commands()

    made.refresh_from_db()
    not_made.refresh_from_db()
    assert (made.state, not_made.state) == ("done", "failed")
    assert pay.balance_of(paid).open == 70


def test_reconciliation_skips_it_and_it_is_paused_without_a_request(panel):
    pause_panel(panel, "The median pay is below the floor.")

    assert not due_panels(timezone.now()).exists()
    assert (panel.status, panel.ended_reason) == ("paused", "The median pay is below the floor.")
