"""Pay API: balances, approvals, rejections, commands, and bonuses."""

from __future__ import annotations

import pytest

from kgharvest.contrib.recruiting.models import Submission
from kgharvest.contrib.recruiting.pay.commands import ask
from kgharvest.contrib.recruiting.platforms import OutcomeUnknown, PlatformRefused
from tests.api import client_of, error_of
from tests.kgharvest.contrib.recruiting.pay.standing_in import StandIn, complete_place, execution_counts
from tests.kgharvest.contrib.recruiting.pay.test_commands import WHY, run_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]
JSON = "application/json"


@pytest.fixture
def api(db):
    return client_of()


def address(panel, rest: str = "") -> str:
    return f"/api/v1/rounds/{panel.round_id}/panels/{panel.name}/pay/{rest}"


def test_pay_api_returns_balance_and_missing_bonuses(make_panel, api):
    panel = make_panel(reward=5, hourly_floor=900)
    people = [complete_place(panel, f"person {number}", seconds=(36,)) for number in range(5)]

    pay = api.get(address(panel)).json()

    assert {name: pay[name] for name in ("owed", "paid", "open", "median_hourly", "is_below_floor", "missing")} == {
        "owed": 25, "paid": 0, "open": 25, "median_hourly": 500.0, "is_below_floor": True, "missing": 20,
    }  # fmt: skip
    assert [row["submission"] for row in pay["people"]] == [person.pk for person in people]
    assert pay["people"][0]["bonus"] == 4
    assert api.post(address(panel, "floor/")).json()["median_hourly"] == 900
    assert error_of(api.post(address(panel, "floor/")))["code"] == "NothingMissing"


def test_approval_of_selected_or_all_places(panel, api):
    ada, *_ = [complete_place(panel, name) for name in ("ada", "bea", "cem")]

    assert api.post(address(panel, "approve/"), {"submissions": [ada.pk]}, JSON).json() == {"n_approved": 1}
    assert api.post(address(panel, "approve/"), {}, JSON).json() == {"n_approved": 2}
    run_job()

    assert Submission.objects.filter(status="approved").count() == 3
    lines = api.get(address(panel, "entries/"), {"side": "paid"}).json()["results"]
    assert [(line["amount"], line["reason"]) for line in lines] == [(200, "Approved.")] * 3


@pytest.mark.parametrize(
    ("rejection", "status"),
    [
        ({"category": "LOW_EFFORT", "message": WHY}, 201),
        ({"category": "LOW_EFFORT", "message": "Too fast."}, 409),
        ({"message": WHY}, 409),
        ({"category": "disagreement", "message": WHY}, 400),
    ],
)
def test_rejection_requires_a_category_and_an_explanation(panel, api, rejection, status):
    submission = complete_place(panel)
    body = {"submission": submission.pk, "kind": "reject", **rejection}

    assert api.post(address(panel, "commands/"), body, JSON).status_code == status
    assert submission.commands.exists() == (status == 201)


def test_failed_and_uncertain_commands_can_be_resolved(panel, api):
    ada, bea = complete_place(panel, "ada"), complete_place(panel, "bea")
    refused, uncertain = (ask(person, "bonus", "bonus:1", amount=10) for person in (ada, bea))
    StandIn.trouble = [PlatformRefused("Your wallet is empty."), OutcomeUnknown("No answer came.")]
    run_job()
    failed = api.get(address(panel, "commands/"), {"state": "failed"}).json()["results"]
    assert [(row["id"], row["error"]) for row in failed] == [(refused.pk, "Your wallet is empty.")]

    assert api.post(address(panel, f"commands/{refused.pk}/resend/")).json()["state"] == "waiting"
    early_response = api.post(address(panel, f"commands/{uncertain.pk}/settle/"), {"was_done": False}, JSON)
    settled_response = api.post(address(panel, f"commands/{uncertain.pk}/settle/"), {"was_done": True}, JSON)
    run_job()

    assert error_of(early_response)["code"] == "NotUncertain"
    assert settled_response.json()["state"] == "done"
    assert execution_counts().total() == 1


def test_bonus_is_granted_and_marked_as_paid_manually(make_panel, api):
    panel = make_panel(by_hand=True)
    submission = complete_place(panel)
    body = {"submission": submission.pk, "amount": 75, "reason": "Thank you."}

    first = api.post(address(panel, "bonuses/"), body, JSON, headers={"idempotency-key": "once"})
    again = api.post(address(panel, "bonuses/"), body, JSON, headers={"idempotency-key": "once"})
    [unpaid] = api.get(address(panel, "bonuses/")).json()
    response = api.post(address(panel, "bonuses/paid/"), {"submissions": [submission.pk], "total": 75}, JSON)

    assert first.json() == again.json()
    assert (unpaid["amount"], unpaid["annotator"]) == (75, submission.annotator.code)
    assert response.json() == {"n_people": 1}
    assert b",paid,bonus,bonus:1,0.75,USD," in b"".join(api.get(address(panel, "entries.csv")).streaming_content)


def test_responses_contain_no_participant_ids(panel, api):
    submission = complete_place(panel, "5f3c2e1d0b9a8f7e6d5c4b3a")
    ask(submission, "approve", "approve")

    for rest in ("", "entries/", "commands/", "bonuses/"):
        assert "5f3c2e1d0b9a8f7e6d5c4b3a" not in api.get(address(panel, rest)).text


def test_submissions_and_commands_of_another_panel_are_not_found(make_panel, api):
    panel, other = make_panel(), make_panel(name="other", external_id="other")
    submission = complete_place(other)
    command = ask(submission, "bonus", "bonus:1", amount=10)

    response = api.post(address(panel, "commands/"), {"submission": submission.pk, "kind": "approve"}, JSON)

    assert response.status_code == 404
    assert api.post(address(panel, f"commands/{command.pk}/resend/")).status_code == 404
