"""Pay pages: balances, floor, requests, decisions, review, and files."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.pay.bonuses import floor_sentence, grant_bonus
from kgharvest.contrib.recruiting.pay.commands import ask
from kgharvest.contrib.recruiting.pay.hourly import hourly_pay, pay_picture
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from kgharvest.contrib.recruiting.platforms import OutcomeUnknown, PlatformRefused
from tests.kgharvest.contrib.recruiting.pay.standing_in import StandIn, complete_place, execution_counts
from tests.kgharvest.contrib.recruiting.pay.test_commands import WHY, run_job, time_passes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]


def address(panel: Panel, rest: str = "") -> str:
    return f"{panel.get_absolute_url()}pay/{rest}"


def text_of(response) -> str:
    return " ".join(response.content.decode().split())


def test_pay_page_without_participants_explains_itself(panel, researcher_client):
    response = researcher_client.get(address(panel))

    assert "No payments due" in text_of(response)
    assert "0 completed so far" in text_of(response)


def test_page_shows_balance_and_hourly_pay_per_person(panel, researcher_client):
    submission = complete_place(panel, seconds=(36,) * 4)
    grant_bonus(submission, 50, "Thank you.")

    page = text_of(researcher_client.get(address(panel)))

    assert submission.annotator.code in page
    assert "USD 2.50" in page
    assert "USD 62.50" in page  # per hour: 2.50 for 144 seconds


def test_pages_contain_no_participant_ids(panel, researcher_client):
    submission = complete_place(panel, "5f3c2e1d0b9a8f7e6d5c4b3a")
    ask(submission, "approve", "approve")
    for rest in ("", "review/", f"people/{submission.pk}/", "ledger.csv"):
        response = researcher_client.get(address(panel, rest))
        content = b"".join(response.streaming_content) if response.streaming else response.content
        assert b"5f3c2e1d0b9a8f7e6d5c4b3a" not in content


def test_bonus_file_is_refused_if_bonuses_changed_since_the_page(make_panel, researcher_client):
    panel = make_panel(by_hand=True)
    grant_bonus(complete_place(panel, "ada"), 50, "Thank you.")
    page = text_of(researcher_client.get(address(panel)))
    file = address(panel, "bonuses-table.csv?total=50")
    assert file in page
    assert researcher_client.get(file).status_code == 200

    grant_bonus(complete_place(panel, "bea"), 25, "Thank you.")

    assert "granted or paid in the meantime" in text_of(researcher_client.get(file, follow=True))


def test_manual_approval_says_that_the_platform_is_not_notified(make_panel, researcher_client):
    panel = make_panel(by_hand=True)
    complete_place(panel)
    review_page = text_of(researcher_client.get(address(panel, "review/")))

    page = researcher_client.post(address(panel, "review/"), {"all": ""}, follow=True)

    assert "Approve and pay them on the platform" in review_page
    assert "Auto-approval" not in review_page
    assert "1 submission approved. Repeat the decision on the platform" in text_of(page)


def test_floor_button_pays_bonuses_and_resumes_the_panel(make_panel, researcher_client):
    panel = make_panel(reward=5, hourly_floor=900)
    for number in range(5):
        complete_place(panel, f"person {number}", seconds=(36,))
    pay = hourly_pay(panel)
    Panel.objects.update(status="paused", ended_reason=floor_sentence(panel, pay, []))
    StandIn.paused.append(panel.pk)
    assert "Pay USD 0.20 and resume" in text_of(researcher_client.get(address(panel)))

    page = researcher_client.post(address(panel, "floor/"), follow=True)

    assert "Bonuses totaling USD 0.20 granted." in text_of(page)
    assert "and resume" not in text_of(page)
    assert Panel.objects.get().status == "published"


def test_page_shows_next_steps_of_requests_and_executes_them(panel, researcher_client):
    ada, bea = complete_place(panel, "ada"), complete_place(panel, "bea")
    refused = ask(ada, "bonus", "bonus:1", amount=10)
    uncertain = ask(bea, "bonus", "bonus:1", amount=20)
    StandIn.trouble = [PlatformRefused("Your wallet is empty."), OutcomeUnknown("No answer came.")]
    run_job()
    page = text_of(researcher_client.get(address(panel)))
    assert "Your wallet is empty." in page
    assert "Check on the platform whether it was paid" in page
    assert "Not paid: retry" not in page  # too early to retry

    researcher_client.post(address(panel, f"commands/{refused.pk}/"), {"resend": ""})
    researcher_client.post(address(panel, f"commands/{uncertain.pk}/"), {"was_done": ""})
    run_job()

    assert execution_counts().total() == 1
    assert [balance_of(person, "bonus") for person in (ada, bea)] == [(10, 10), (20, 20)]
    assert "Pending requests" not in text_of(researcher_client.get(address(panel)))


def test_unpaid_payment_can_be_retried_after_the_waiting_time(panel, researcher_client):
    command = ask(complete_place(panel), "bonus", "bonus:1", amount=10)
    StandIn.trouble = [OutcomeUnknown("No answer came.")]
    run_job()
    time_passes()
    assert "Not paid: retry" in text_of(researcher_client.get(address(panel)))

    researcher_client.post(address(panel, f"commands/{command.pk}/"), {"was_not_done": ""})
    run_job()

    assert execution_counts().total() == 1


def test_picture_has_a_dot_per_person_and_lines_at_median_and_floor(make_panel):
    panel = make_panel(reward=5, hourly_floor=900)
    for number, seconds in enumerate((36, 36, 18, 12, 0.1)):  # 5.00, 5.00, 10.00, 15.00 and 1800.00 an hour
        complete_place(panel, f"person {number}", seconds=(seconds,))

    picture = pay_picture(panel, hourly_pay(panel))

    assert picture["most"] == "USD 40.00"  # four times the median
    assert picture["n_beyond"] == 1
    assert [(line["name"], line["x"]) for line in picture["lines"]] == [("minimum", "162.0"), ("median", "180.0")]
    assert [dot["x"] for dot in picture["dots"]] == ["95.0", "95.0", "185.0", "275.0", "715.0"]
    assert picture["dots"][1]["y"] < picture["dots"][0]["y"]


# Participant page


def test_rejection_requires_a_category_and_an_explanation(panel, researcher_client):
    submission = complete_place(panel)
    page = address(panel, f"people/{submission.pk}/")
    assert "Disagreement with other annotators is not a valid reason" in text_of(researcher_client.get(page))

    short = researcher_client.post(page, {"verb": "reject", "category": "LOW_EFFORT", "message": "Too fast."})
    other = researcher_client.post(page, {"verb": "reject", "category": "disagreement", "message": WHY})
    assert "Message too short: 9 characters" in text_of(short)
    assert "disagreement is not one of the available choices" in text_of(other)
    assert not submission.commands.exists()
    researcher_client.post(page, {"verb": "reject", "category": "LOW_EFFORT", "message": WHY})
    run_job()

    assert Submission.objects.get().status == Submission.Status.REJECTED


def test_failed_decision_can_be_repeated(panel, researcher_client):
    submission = complete_place(panel)
    page = address(panel, f"people/{submission.pk}/")
    StandIn.trouble = [PlatformRefused("Not now.")]
    researcher_client.post(page, {"verb": "approve"})
    run_job()

    assert "Approve and pay" in text_of(researcher_client.get(page))
    researcher_client.post(page, {"verb": "approve"})
    run_job()

    assert Submission.objects.get().status == Submission.Status.APPROVED
    assert "Approve and pay" not in text_of(researcher_client.get(page))


def test_bonus_amount_is_in_the_currency_of_the_panel(panel, researcher_client):
    submission = complete_place(panel)
    page = address(panel, f"people/{submission.pk}/")

    error_page = researcher_client.post(page, {"verb": "bonus", "amount": "1,50", "message": "Thank you."})
    researcher_client.post(page, {"verb": "bonus", "amount": "1.50", "message": "Thank you."})

    assert "Invalid amount in USD" in text_of(error_page)
    assert balance_of(submission, "bonus").owed == 150


@pytest.mark.parametrize("verb", ["", "pay", "reject"])
def test_unknown_verbs_change_nothing(panel, researcher_client, verb):
    submission = complete_place(panel)

    response = researcher_client.post(address(panel, f"people/{submission.pk}/"), {"verb": verb})

    assert response.status_code == 200
    assert not submission.commands.exists()


# Review


def test_review_lists_earliest_auto_approval_first(panel, researcher_client):
    never, late, soon = (complete_place(panel, name) for name in ("ada", "bea", "cem"))
    for submission, days in ((late, 9), (soon, 2)):
        at = timezone.now() + timedelta(days=days)
        Submission.objects.filter(pk=submission.pk).update(approves_itself_at=at)

    response = researcher_client.get(address(panel, "review/"))

    assert [row["submission"] for row in response.context["people"]] == [soon, late, never]
    assert "The platform will approve 2 of them automatically" in text_of(response)
    assert f"{Submission.objects.get(pk=soon.pk).approves_itself_at:%b %Y}" in text_of(response)


@pytest.mark.parametrize(("form_data", "approved"), [({}, 0), ({"submission": ["1"]}, 1), ({"all": ""}, 3)])
def test_selected_or_all_submissions_are_approved(panel, researcher_client, form_data, approved):
    people = [complete_place(panel, name) for name in ("ada", "bea", "cem")]
    if "submission" in form_data:
        form_data = {"submission": [str(people[0].pk), "no number"]}

    researcher_client.post(address(panel, "review/"), form_data)
    if approved:
        run_job()

    assert Submission.objects.filter(status="approved").count() == approved
    assert len(researcher_client.get(address(panel, "review/")).context["people"]) == 3 - approved


def test_page_of_another_panel_cannot_approve_a_submission(make_panel, researcher_client):
    panel = make_panel()
    other = make_panel(name="other", external_id="other")
    submission = complete_place(other)

    researcher_client.post(address(panel, "review/"), {"submission": [str(submission.pk)]})
    response = researcher_client.get(address(panel, f"people/{submission.pk}/"))

    assert not submission.commands.exists()
    assert response.status_code == 404


# Files


def test_bonuses_are_downloaded_and_marked_as_paid(make_panel, researcher_client):
    panel = make_panel(by_hand=True)
    submission = complete_place(panel, "ada")
    grant_bonus(submission, 75, "Thank you.")
    page = researcher_client.get(address(panel))
    assert "Mark USD 0.75 as paid" in text_of(page)

    bulk = researcher_client.get(address(panel, "bonuses-bulk.csv"))
    table = researcher_client.get(address(panel, "bonuses-table.csv"))
    researcher_client.post(address(panel, "noted/"), {"submission": [submission.pk], "total": "75"})

    assert b"".join(bulk.streaming_content) == b"ada-session,0.75\n"
    assert b"Thank you." in b"".join(table.streaming_content)
    assert balance_of(submission, "bonus") == (75, 75)


def test_ledger_file_contains_signed_amounts(panel, researcher_client):
    submission = complete_place(panel)
    ask(submission, "reject", "reject", message=WHY, category="LOW_EFFORT")
    run_job()

    lines = b"".join(researcher_client.get(address(panel, "ledger.csv")).streaming_content).decode().splitlines()

    assert len(lines) == 3
    assert ",owed,reward,reward,2.00,USD," in lines[1]
    assert ",owed,reward,reward:2,-2.00,USD," in lines[2]


def test_panel_page_summarizes_pay(panel, researcher_client):
    complete_place(panel, seconds=(10,))

    page = text_of(researcher_client.get(panel.get_absolute_url()))

    assert "Review 1" in page
    assert "USD 2.00" in page
