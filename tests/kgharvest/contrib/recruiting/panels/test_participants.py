"""Participants of a panel: entry link, consent, judging, and completion code."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from annotation.invites.services import join_round, return_code
from annotation.judging.assignment import next_batch
from annotation.judging.judgments import Answer, submit_judgment
from annotation.models import Annotator
from annotation.rounds.services import close_round
from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.panels.identifiers import digest
from kgharvest.contrib.recruiting.panels.services import Browser, PlaceOfAnother, QuotaFull, enter, finish, join, leave
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from tests.factories import judge, judging_page, make_researcher, make_round, make_user
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = timezone.now()
CODE = "C0DE-4711"


def make_pilot(n_tasks: int = 4, **spec):
    return make_round(n_tasks, name="pilot", **spec)


def link(panel: Panel, **parameters: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in (parameters or {"participant": "p1"}).items())
    return f"/enter/{panel.token}/?{query}"


def enter_and_agree(client: Client, panel: Panel, participant: str = "p1") -> None:
    """Enter with the link and agree to the consent text."""
    client.get(link(panel, participant=participant))
    response = client.post(link(panel, participant=participant), {"agrees": "on"})
    assert response.url == f"/judge/{panel.round_id}/"


def entry_status(client: Client, panel: Panel, participant: str) -> int:
    return client.get(link(panel, participant=participant)).status_code


def judge_batch(annotator: Annotator) -> None:
    for task in next_batch(annotator, timezone.now()):
        judge(annotator, task)


# Entry


def test_participant_enters_by_link_consents_and_judges(client):
    panel = make_panel(make_pilot(consent="Be **honest**."), statements_per_place=3)

    page = client.get(link(panel)).text
    refused = client.post(link(panel)).text
    enter_and_agree(client, panel)

    assert "You will judge 3 statements" in page
    assert "<strong>honest</strong>" in page
    assert "You must agree" in refused
    submission = panel.submissions.get()
    assert submission.participant_id == "p1"
    assert submission.annotator.place_size == 3
    assert submission.annotator.consented_at is not None
    assert client.get(judging_page()).status_code == 200


def test_new_participants_per_ip_address_are_limited(client, settings):
    settings.LIMITS = settings.LIMITS | {"panel_entries": (2, 600)}
    panel, other = (make_panel(make_round(4), places=9) for _ in range(2))

    statuses = [entry_status(client, panel, participant) for participant in ("p1", "p2", "p1", "p3", "p2")]

    assert statuses == [200, 200, 200, 429, 200]  # returning participants do not count
    assert entry_status(client, other, "p3") == 200
    assert panel.submissions.count() == 2


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("", "missing the “worker” parameter"),
        ("worker=", "missing the “worker” parameter"),
        ("worker=p1", "missing the “session” parameter"),
        ("worker=p1&worker=p2&session=s1", "“worker” parameter more than once"),
        ("worker=%25SURVEY_CODE%25&session=s1", "“worker” parameter of your link does not identify"),
        ("worker=p%071&session=s1", "“worker” parameter of your link does not identify"),
        (f"worker={'p' * 201}&session=s1", "“worker” parameter of your link does not identify"),
    ],
)
def test_invalid_entry_link_is_rejected_with_a_message(client, query, sentence):
    panel = make_panel(make_pilot(), participant_parameter="worker", session_parameter="session")

    response = client.get(f"/enter/{panel.token}/?{query}")

    assert response.status_code == 400
    assert sentence in response.text
    assert not panel.submissions.exists()


def test_reentry_in_the_same_browser_keeps_the_annotator(client):
    panel = make_panel(make_pilot(), places=1, statements_per_place=3)
    enter_and_agree(client, panel)
    judge(panel.submissions.get().annotator, next_batch(panel.submissions.get().annotator, NOW)[0])

    again = client.get(link(panel))

    assert again.url == f"/judge/{panel.round_id}/"
    assert "1</span> judged" in client.get(again.url).text
    assert panel.round.annotators.count() == panel.submissions.count() == 1


@pytest.mark.parametrize("stranger_query", [{}, {"session": "made-up"}])
def test_participant_cannot_be_impersonated_from_another_browser(client, stranger_query):
    panel = make_panel(make_pilot(), session_parameter="session" if stranger_query else "")
    victim_query = {"participant": "victim", **({"session": "s3cret"} if stranger_query else {})}
    client.post(link(panel, **victim_query), {"agrees": "on"})
    submission = panel.submissions.get()
    judge(submission.annotator, next_batch(submission.annotator, NOW)[0])

    stranger = Client()
    address = link(panel, participant="victim", **stranger_query)
    answers = [
        stranger.get(address),
        stranger.post(address, {"agrees": "on"}),
        stranger.post(address, {"decline": "1"}),
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert stranger.get(judging_page()).status_code == 302  # redirects to the login page
    assert stranger.get(f"/judge/{panel.round_id}/withdraw/").status_code == 404
    assert [part.status for part in panel.submissions.all()] == [Submission.Status.ACTIVE]
    assert client.get(link(panel, **victim_query)).url == f"/judge/{panel.round_id}/"


def test_unjoined_place_cannot_be_returned_by_another_session(client):
    panel = make_panel(make_pilot(), session_parameter="session")
    client.get(link(panel, participant="victim", session="s3cret"))

    stranger = Client().post(link(panel, participant="victim", session="made-up"), {"decline": "1"})

    assert stranger.status_code == 403
    assert panel.submissions.get().status == Submission.Status.ACTIVE
    assert client.get(link(panel, participant="victim", session="s3cret")).status_code == 200


def test_viewing_consent_first_does_not_grant_a_joined_place(client):
    panel = make_panel(make_pilot())
    early_stranger = Client()
    early_stranger.get(link(panel))
    enter_and_agree(client, panel)

    assert early_stranger.get(link(panel)).status_code == 403
    assert early_stranger.post(link(panel), {"decline": "1"}).status_code == 403


def test_new_session_id_does_not_open_earlier_answers(client):
    panel = make_panel(make_pilot(), session_parameter="session", places=3, statements_per_place=1)
    client.post(link(panel, participant="victim", session="s1"), {"agrees": "on"})
    first = panel.submissions.get()
    judge(first.annotator, next_batch(first.annotator, NOW)[0])
    leave(first, Submission.Status.RETURNED, NOW)

    stranger = Client().get(link(panel, participant="victim", session="made-up"))
    again = client.get(link(panel, participant="victim", session="s2"))

    assert stranger.status_code == 403
    assert again.url == f"/judge/{panel.round_id}/"
    assert panel.submissions.count() == 2


def test_another_browser_continues_with_the_session_id_of_the_place(client):
    panel = make_panel(make_pilot(), session_parameter="session")
    query = {"participant": "p1", "session": "s3cret"}
    client.post(link(panel, **query), {"agrees": "on"})

    phone = Client()

    assert phone.get(link(panel, **query)).url == f"/judge/{panel.round_id}/"
    assert phone.get(judging_page()).status_code == 200


def test_researchers_find_the_return_link_of_a_participant(client):
    panel = make_panel(make_pilot())
    enter_and_agree(client, panel)
    submission = panel.submissions.get()
    researcher, phone = Client(), Client()
    researcher.force_login(make_researcher())

    address = f"{panel.get_absolute_url()}pay/people/{submission.pk}/"
    assert f'href="{address}"' in researcher.get(panel.get_absolute_url()).text
    page = researcher.get(address).text

    return_link = f"/return/{return_code(submission.annotator)}/"
    assert return_link in page
    assert phone.post(return_link, {"code": return_code(submission.annotator)}).url == f"/judge/{panel.round_id}/"
    assert phone.get(link(panel)).url == f"/judge/{panel.round_id}/"


def test_drafts_paused_panels_and_closed_rounds_reject_entry(client):
    round = make_pilot()
    draft, paused = make_panel(round, "draft"), make_panel(round, "paused")
    published = make_panel(round)
    close_round(round)

    answers = [client.get(link(panel)) for panel in (draft, paused, published)]

    assert [answer.status_code for answer in answers] == [404, 409, 409]
    assert "does not accept new participants" in answers[1].text
    assert "closed. You can no longer join" in answers[2].text


def test_participants_continue_while_a_panel_is_paused(client):
    panel = make_panel(make_pilot())
    enter_and_agree(client, panel)
    Panel.objects.filter(pk=panel.pk).update(status="paused")

    assert client.get(link(panel)).url == f"/judge/{panel.round_id}/"


def test_full_panel_shows_the_quota_full_code(client):
    panel = make_panel(
        make_pilot(),
        places=1,
        quota_full_code="LATE",
        quota_full_url="https://example.org/late?who={participant}&c={code}",
    )
    enter_and_agree(client, panel)

    late = Client().get(link(panel, participant="p2"))

    assert late.status_code == 409
    assert "All places are taken" in late.text
    assert 'value="LATE"' in late.text
    assert 'href="https://example.org/late?who=p2&amp;c=LATE"' in late.text
    assert panel.completion_code not in late.text


def test_returned_place_is_free_immediately(client):
    panel = make_panel(make_pilot(), places=1)
    client.get(link(panel))

    response = client.post(link(panel), {"decline": "1"})

    assert "Your place was returned" in response.text
    assert panel.submissions.get().status == Submission.Status.RETURNED
    assert Client().get(link(panel, participant="p2")).status_code == 200
    assert client.get(link(panel)).status_code == 409  # p2 holds the only place


def test_place_declined_by_a_stranger_can_be_taken(client):
    panel = make_panel(make_pilot())
    Client().post(link(panel), {"decline": "1"})

    enter_and_agree(client, panel)

    assert panel.submissions.get().status == Submission.Status.ACTIVE


@pytest.mark.parametrize("parameter", ["", "session"])
def test_consent_after_a_lost_session_keeps_the_annotator(client, parameter):
    panel = make_panel(make_pilot(), session_parameter=parameter)
    query = {"participant": "p1", **({"session": "s1"} if parameter else {})}
    client.get(link(panel, **query))
    client.post(link(panel, **query), {"agrees": "on"})
    del client.cookies[settings.SESSION_COOKIE_NAME]

    again = client.post(link(panel, **query), {"agrees": "on"})

    assert again.url == f"/judge/{panel.round_id}/"
    assert panel.round.annotators.count() == 1


def test_second_browser_cannot_consent_to_a_joined_place():
    panel = make_panel(make_pilot())
    submission = enter(panel, "p1", "", NOW)
    join(submission, agrees=True, browser=Browser(digest("first")))

    with pytest.raises(PlaceOfAnother):
        join(submission, agrees=True, browser=Browser(digest("second")))
    assert join(submission, agrees=True, browser=Browser(digest("first"))) == panel.round.annotators.get()


def test_leases_of_a_leaving_participant_are_released():
    round = make_round(2, judgments_per_task=1)
    panel = make_panel(round, places=1)
    abandoned = enter(panel, "p1", "", NOW)
    tasks = next_batch(join(abandoned, agrees=True), NOW)

    leave(abandoned, Submission.Status.RETURNED, NOW)

    other = join(enter(panel, "p2", "", NOW), agrees=True)
    assert set(next_batch(other, NOW)) == set(tasks)
    assert next_batch(abandoned.annotator, NOW) == []


def test_abandoned_place_is_reassigned_and_resumable_if_places_are_free():
    round = make_round(6, judgments_per_task=3)
    panel = make_panel(round, places=2, statements_per_place=3, estimated_minutes=10)
    abandoned, active = (enter(panel, name, "", NOW - timedelta(hours=2)) for name in ("gone", "busy"))
    for submission in (abandoned, active):
        join(submission, agrees=True)
        submission.refresh_from_db()
    judge(active.annotator, next_batch(active.annotator, NOW)[0])
    [first, *_] = next_batch(abandoned.annotator, NOW)
    early = Answer(first.pk, "true", uuid4())
    submit_judgment(abandoned.annotator, early, NOW - timedelta(minutes=90))

    new = enter(panel, "new", "", timezone.now())
    with pytest.raises(QuotaFull):
        enter(panel, "gone", "", timezone.now())
    leave(new, Submission.Status.RETURNED, NOW)
    again = enter(panel, "gone", "", timezone.now())

    assert (again, again.status) == (abandoned, Submission.Status.ACTIVE)
    assert len(next_batch(Annotator.objects.get(pk=abandoned.annotator_id), NOW)) == 2
    active.refresh_from_db()
    assert active.status == Submission.Status.ACTIVE


def test_recent_entry_is_not_abandoned():
    panel = make_panel(make_round(4), places=1, estimated_minutes=30)
    enter(panel, "p1", "", NOW - timedelta(minutes=89))

    with pytest.raises(QuotaFull):
        enter(panel, "p2", "", NOW)
    assert enter(panel, "p2", "", NOW + timedelta(minutes=2)).status == Submission.Status.ACTIVE


def test_participant_can_reenter_after_a_return_but_not_after_a_rejection():
    panel = make_panel(make_round(6), session_parameter="session", statements_per_place=2)
    first = enter(panel, "p1", "s1", NOW)
    annotator = join(first, agrees=True)
    judge_batch(annotator)
    leave(first, Submission.Status.RETURNED, NOW)

    with refused("TookPart"):
        enter(panel, "p1", "s1", NOW)
    second = enter(panel, "p1", "s2", NOW)
    assert join(second, agrees=True) == annotator
    assert len(next_batch(Annotator.objects.get(pk=annotator.pk), NOW)) == 2
    Submission.objects.filter(pk=second.pk).update(status="rejected")
    with refused("TookPart"):
        enter(panel, "p1", "s3", NOW)


def test_person_in_two_panels_is_one_annotator_with_one_active_place():
    round = make_round(6)
    one, two = make_panel(round, statements_per_place=2), make_panel(round, statements_per_place=2)
    first = enter(one, "p1", "", NOW)
    annotator = join(first, agrees=True)

    with refused("TookPart", match="through another link"):
        enter(two, "p1", "", NOW)
    judge_batch(annotator)
    first.refresh_from_db()
    finish(first, timezone.now())

    assert enter(two, "p1", "", NOW).annotator == annotator


def test_logged_in_annotator_cannot_enter_through_a_panel(client):
    panel = make_panel(make_pilot())
    user = make_user("ada")
    join_round(panel.round, user)
    client.force_login(user)

    response = client.get(link(panel))

    assert response.status_code == 409
    assert "You are logged in as ada" in response.text


# Completion

AS_JSON = {"accept": "application/json"}
PAGES = ("", "answers/", "instructions/", "device/", "done/")


def responses_before_end(client: Client, panel: Panel, task: str) -> list[str]:
    """Return the responses of all URLs available to a participant, as HTML and JSON."""
    judging_url = f"/judge/{panel.round_id}/"
    responses = [client.get(f"{judging_url}{page}", headers=headers) for page in PAGES for headers in ({}, AS_JSON)]
    responses += [client.get(link(panel)), client.get(f"{judging_url}?task={task}")]
    responses += [client.get("/"), client.get("/return/")]
    responses += [client.post(f"{judging_url}layout/", {"layout": "page"}), client.get(judging_url)]
    responses += [client.post(f"{judging_url}layout/", {"layout": "one"}), client.get(judging_url)]
    return [f"{answer.headers} {answer.text}" for answer in responses]


@pytest.mark.parametrize("is_scripted", [True, False])
def test_completion_code_is_hidden_until_the_last_answer(client, is_scripted):
    panel = make_panel(
        make_pilot(3, consent="Agree."),
        statements_per_place=3,
        completion_code=CODE,
        completion_url="https://example.org/back?code={code}",
    )
    responses = [
        client.get(link(panel)),
        client.post(link(panel), {"agrees": "on"}),
        client.get(f"/judge/{panel.round_id}/"),
    ]
    texts = [f"{answer.headers} {answer.text}" for answer in responses]
    judging_url, headers = f"/judge/{panel.round_id}/", AS_JSON if is_scripted else {}
    for number in range(3):
        [task, *_] = client.get(judging_url, headers=AS_JSON).json()["tasks"]
        texts += responses_before_end(client, panel, task["task"])
        answer = {"task": task["task"], "label": "true", "client_uuid": str(uuid4()), "more": "1"}
        stored = client.post(judging_url, answer, headers=headers)
        texts.append(f"{stored.headers} {stored.text}")
        assert panel.round.annotators.get().n_judged == number + 1

    end = client.get(judging_url, follow=True)

    assert not [text for text in texts if CODE in text]
    assert end.redirect_chain == [(f"{judging_url}done/", 302)]
    assert CODE in end.text
    assert panel.submissions.get().status == Submission.Status.COMPLETED
    assert balance_of(panel).owed == panel.reward
    assert CODE in client.get(link(panel), follow=True).text  # reentry


def test_return_url_has_encoded_parameters(client):
    panel = make_panel(
        make_pilot(2),
        study_parameter="study",
        session_parameter="session",
        statements_per_place=2,
        completion_code=CODE,
        completion_url="https://example.org/back?c={code}&p={participant}&s={study}&x={session}",
    )
    address = f"/enter/{panel.token}/?participant=a%26b%2Fc&study=%C3%BC&session=d%20e%23%7Ecode"
    client.get(address)
    client.post(address)
    judge_batch(panel.submissions.get().annotator)

    page = client.get(f"/judge/{panel.round_id}/", follow=True).text

    assert 'href="https://example.org/back?c=C0DE-4711&amp;p=a%26b%2Fc&amp;s=%C3%BC&amp;x=d%20e%23~code"' in page


def test_running_out_of_statements_completes_or_returns_the_place(client):
    round = make_pilot(2, judgments_per_task=1)
    panel = make_panel(round, places=3, statements_per_place=2, completion_code=CODE, quota_full_code="LATE")
    enter_and_agree(client, panel)
    judge(panel.submissions.get().annotator, next_batch(panel.submissions.get().annotator, NOW)[0])
    late = Client()
    enter_and_agree(late, panel, "p2")
    judge_batch(panel.submissions.first().annotator)

    done_page, empty_page = client.get(judging_page(), follow=True).text, late.get(judging_page(), follow=True).text

    assert CODE in done_page
    assert CODE not in empty_page
    assert "No statements left to judge" in empty_page
    assert [submission.status for submission in panel.submissions.order_by("pk")] == ["completed", "returned"]


def test_closed_round_lets_participants_finish(client):
    panel = make_panel(make_pilot(6), completion_code=CODE)
    enter_and_agree(client, panel)
    annotator = panel.submissions.get().annotator
    judge(annotator, next_batch(annotator, NOW)[0])
    close_round(panel.round)

    assert CODE in client.get(judging_page(), follow=True).text


def test_skipping_all_statements_does_not_show_the_code(client):
    panel = make_panel(make_pilot(2), completion_code=CODE)
    enter_and_agree(client, panel)
    for task in client.get(judging_page(), headers=AS_JSON).json()["tasks"]:
        client.post(judging_page(page="skip/"), {"task": task["task"]})

    page = client.get(judging_page("pilot", "done/"), follow=True).text

    assert "Only skipped statements remain" in page
    assert CODE not in page


def test_platform_status_alone_does_not_show_the_code(client):
    panel = make_panel(make_pilot(3), completion_code=CODE)
    enter_and_agree(client, panel)
    panel.submissions.update(status="approved")

    assert client.get(judging_page("pilot", "done/")).url == f"/judge/{panel.round_id}/"
    judge_batch(panel.submissions.get().annotator)
    assert CODE in client.get(judging_page(), follow=True).text
    assert panel.submissions.get().status == "approved"


def test_completion_without_judgments_leads_to_consent(client):
    panel = make_panel(make_pilot(3), completion_code=CODE)
    client.get(link(panel))
    panel.submissions.update(status="completed")

    page = client.get(link(panel)).text
    judging = client.post(link(panel), {"agrees": "on"}, follow=True)

    assert CODE not in page + judging.text
    assert judging.redirect_chain[-1] == (judging_page(), 302)


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        ("screened out", "You cannot continue in this study", "OUT"),
        ("timed out", "Your participation has ended", ""),
        ("rejected", "Your participation has ended", ""),
    ],
)
def test_each_end_has_its_page_and_code(client, status, words, code):
    panel = make_panel(make_pilot(3), completion_code=CODE, screen_out_code="OUT", screen_out_reward=25)
    enter_and_agree(client, panel)
    submission = panel.submissions.get()
    if status == "rejected":
        Submission.objects.filter(pk=submission.pk).update(status=status)
    else:
        leave(submission, Submission.Status(status), NOW)

    page = client.get(judging_page("pilot", "done/")).text

    assert words in page
    assert f'value="{code}"' in page or not code
    assert CODE not in page
    assert balance_of(submission).owed == (25 if code else 0)
