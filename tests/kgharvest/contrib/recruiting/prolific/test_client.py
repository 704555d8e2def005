"""Prolific client: documented requests, retries of safe requests, and no retries of payments."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from django.urls import reverse
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, Platform, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.links import BadEntryLink
from kgharvest.contrib.recruiting.panels.services import complete, enter
from kgharvest.contrib.recruiting.pay import commands
from kgharvest.contrib.recruiting.pay.commands import SENDING_LASTS, ask, outbox, settle
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from kgharvest.contrib.recruiting.platforms import (
    PlatformRefused,
    PlatformUnavailable,
    platform_of,
)
from kgharvest.contrib.recruiting.prolific.client import Client, retry_after_s
from kgharvest.contrib.recruiting.prolific.events import is_genuine
from kgharvest.contrib.recruiting.prolific.platform import SHOWS_WITHIN, STATUSES, least_allowed_minutes
from kgharvest.contrib.recruiting.reconciliation import reconcile
from tests import factories
from tests.kgharvest.contrib.recruiting.prolific.api_fields import faults_of_request
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import (
    SECRET,
    TOKEN,
    Event,
    FakeProlific,
    Trouble,
    serving,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]

Status, Kind = Submission.Status, PlatformCommand.Kind
OPTIONS = {"title": "True or false?", "description": "Judge short sentences.", "devices": ["desktop"]}
EXPLANATION = "All forty statements were answered within a minute, the same label for each of them, also the checks."


@pytest.fixture
def fake(settings, monkeypatch) -> Iterator[FakeProlific]:
    """Fake of Prolific. Clients that are created without `sleep` retry immediately."""
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "sleep", lambda seconds: None)
    with serving() as fake:
        settings.PROLIFIC = {"token": TOKEN, "url": fake.url, "webhook_secret": SECRET}
        yield fake
    assert fake.violations == []


@pytest.fixture
def panel(db) -> Panel:
    return make_panel()


def make_panel(**fields) -> Panel:
    values = {
        "round": factories.make_round(),
        "name": "panel",
        "platform": Platform.PROLIFIC,
        "places": 3,
        "reward": 150,
        "estimated_minutes": 10,
        "completion_code": "DONE1",
        "platform_options": OPTIONS,
        **fields,
    }
    return Panel.objects.create(**values)


def publish(panel: Panel) -> Panel:
    Panel.objects.filter(pk=panel.pk).update(external_id=platform_of(panel).publish(), status=Panel.Status.PUBLISHED)
    panel.refresh_from_db()
    return panel


def complete_on(fake: FakeProlific, panel: Panel) -> Submission:
    """Let a participant enter from Prolific, complete the place, and submit the code."""
    remote, _ = fake.arrive(panel.external_id)
    submission = enter(panel, remote.participant, remote.id, timezone.now())
    complete(submission, timezone.now())
    fake.submit(remote, panel.completion_code)
    return submission


def troubled(path_end: str, *troubles: Trouble):
    """Return a trouble function that fails the first non-GET requests to paths ending in `path_end`."""
    remaining = list(troubles)

    def trouble(method: str, path: str) -> Trouble:
        return remaining.pop(0) if remaining and path.endswith(path_end) and method != "GET" else Trouble.NONE

    return trouble


# Studies


def test_study_is_created_from_the_panel_and_published(fake, panel, settings):
    publish(panel)

    [study] = fake.studies.values()
    address = settings.ORIGIN + reverse("recruiting:panel_enter", args=[panel.token])
    assert study["status"] == "ACTIVE"
    assert study["external_study_url"].startswith(f"{address}?")
    assert "participant={{%PROLIFIC_PID%}}&study={{%STUDY_ID%}}&session={{%SESSION_ID%}}" in study["external_study_url"]
    assert study["completion_codes"] == [
        {
            "code": "DONE1",
            "code_type": "COMPLETED",
            "actions": [{"action": "MANUALLY_REVIEW"}],
            "actor": "participant",
        }
    ]
    assert (study["reward"], study["total_available_places"], study["estimated_completion_time"]) == (150, 3, 10)
    assert study["maximum_allowed_time"] == least_allowed_minutes(10) == 29  # 2 + 20 + 2 * 3.16
    assert study["prolific_id_option"] == "url_parameters"


def test_screen_out_code_pays_or_requests_a_return(fake):
    paid = publish(make_panel(screen_out_code="OUT1", screen_out_reward=20, quota_full_code="FULL1"))
    unpaid = publish(make_panel(screen_out_code="OUT2"))

    [first, second] = [fake.studies[panel.external_id]["completion_codes"] for panel in (paid, unpaid)]
    assert first[1]["actions"] == [{"action": "FIXED_SCREEN_OUT_PAYMENT", "fixed_screen_out_reward": 20, "slots": 3}]
    assert [code["actions"][0]["action"] for code in (first[2], second[1])] == ["REQUEST_RETURN"] * 2


@pytest.mark.parametrize("trouble", [Trouble.UNANSWERED, Trouble.LOST, Trouble.DOWN])
def test_study_is_created_once_despite_a_lost_answer(fake, panel, trouble):
    fake.trouble = troubled("/studies/", trouble)
    with pytest.raises(PlatformUnavailable):
        publish(panel)

    publish(panel)
    publish(panel)

    assert len(fake.studies) == 1


def test_transition_succeeds_despite_lost_response_and_refused_retry(fake, panel):
    fake.trouble = troubled("/transition/", Trouble.UNANSWERED)
    publish(panel)
    fake.trouble = troubled("/transition/", Trouble.UNANSWERED)
    platform_of(panel).pause()

    assert platform_of(panel).status() == Panel.Status.PAUSED


def test_cost_is_calculated_without_a_study(fake, panel):
    assert platform_of(panel).cost() == 630  # 450 in rewards and 180 in fees
    assert fake.studies == {}


def test_repeated_pause_resume_and_stop_have_no_effect(fake, panel):
    platform = platform_of(publish(panel))
    statuses = []
    for act in (platform.pause, platform.pause, platform.resume, platform.resume, platform.stop, platform.stop):
        act()
        statuses.append(platform.status())

    assert statuses == ["paused", "paused", "published", "published", "stopped", "stopped"]
    with pytest.raises(PlatformRefused, match="has ended"):
        platform.publish()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"platform_options": {}}, "title and a description"),
        ({"currency": "EUR"}, "USD or GBP"),
        ({"reward": 100}, "6.00 USD per hour"),
        ({"completion_code": ""}, "completion code"),
        ({"screen_out_code": "DONE1"}, "all codes must differ"),
        ({"screen_out_code": "OUT", "screen_out_reward": 150}, "lower than the reward"),
        ({"study_parameter": ""}, "sends study and session"),
        ({"platform_options": OPTIONS | {"maximum_minutes": 12}}, "29 minutes"),
    ],
)
def test_invalid_studies_are_refused_before_any_request(fake, fields, reason):
    with pytest.raises(PlatformRefused, match=reason):
        platform_of(make_panel(**fields)).publish()

    assert fake.requests == []


def test_empty_wallet_error_quotes_prolific(fake, panel):
    fake.wallet = 100

    with pytest.raises(PlatformRefused, match="not enough funds"):
        platform_of(panel).publish()


# Failures


def test_retries_wait_as_long_as_retry_after(fake):
    waits: list[float] = []
    fake.trouble = troubled("/study-cost-calculator/", Trouble.BUSY, Trouble.DOWN)

    assert Client(sleep=waits.append).cost(100, 1) == 140
    assert waits == [0.0, 0.0]  # the fake's Retry-After


def test_retries_without_retry_after_back_off_and_stop(fake):
    waits: list[float] = []
    fake.trouble = lambda method, path: Trouble.LOST

    with pytest.raises(PlatformUnavailable, match="retried later"):
        Client(sleep=waits.append).cost(100, 1)
    assert waits == [1.0, 2.0]


def test_retry_after_is_seconds_or_a_date():
    in_a_minute = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = [{"Retry-After": "7"}, {"Retry-After": in_a_minute}, {"Retry-After": "soon"}, {}]
    waits = [retry_after_s(httpx.Response(429, headers=header)) for header in headers]

    assert waits[0] == 7
    assert 50 < waits[1] <= 60
    assert waits[2:] == [None, None]


def client_with_response(response: httpx.Response) -> Client:
    client = Client(sleep=lambda seconds: None)
    client._http = httpx.Client(base_url="https://prolific", transport=httpx.MockTransport(lambda request: response))
    return client


def test_payment_accepted_without_json_is_not_retried(fake):
    client_with_response(httpx.Response(202, text="Accepted")).pay_bonus("bonus")


def test_redirect_has_no_effect_and_names_the_setting(fake):
    redirect = httpx.Response(301, headers={"Location": "https://elsewhere"})

    with pytest.raises(PlatformRefused, match="Check KGHARVEST_PROLIFIC_URL"):
        client_with_response(redirect).pay_bonus("bonus")


def test_unreachable_prolific_and_missing_token_have_clear_errors(fake, settings):
    settings.PROLIFIC = settings.PROLIFIC | {"token": ""}
    with pytest.raises(PlatformRefused, match="KGHARVEST_PROLIFIC_TOKEN"):
        Client()
    settings.PROLIFIC = settings.PROLIFIC | {"token": "wrong"}
    with pytest.raises(PlatformRefused, match="lacks permission"):
        Client().cost(1, 1)
    settings.PROLIFIC = settings.PROLIFIC | {"url": "http://127.0.0.1:1"}
    with pytest.raises(PlatformUnavailable, match="unreachable"):
        Client(sleep=lambda seconds: None).cost(1, 1)


def test_errors_and_logs_contain_no_ids(fake, panel, caplog):
    caplog.set_level("INFO")
    publish(panel)
    submission = complete_on(fake, panel)
    fake.give_back(fake.submissions[submission.session_id])
    ask(submission, Kind.APPROVE, "approve")
    [command] = batch = outbox.claim(timezone.now())

    outbox.send(batch)

    command.refresh_from_db()
    assert command.state == "failed"
    assert command.error == "Prolific rejected the request: Submission [id] is RETURNED"
    assert submission.session_id not in caplog.text
    assert submission.participant_id not in caplog.text


# Commands


@pytest.mark.parametrize("trouble", [*Trouble])
def test_approval_is_executed_once_despite_failures(fake, panel, trouble):
    submission = complete_on(fake, publish(panel))
    fake.trouble = troubled("/transition/", trouble)
    ask(submission, Kind.APPROVE, "approve")

    outbox.send(outbox.claim(timezone.now()))

    [remote] = fake.submissions.values()
    assert (remote.status, remote.n_payments) == ("APPROVED", 1)
    assert submission.commands.get().state == "done"


def test_approval_waits_until_the_code_is_entered(fake, panel):
    remote, _ = fake.arrive(publish(panel).external_id)
    submission = enter(panel, remote.participant, remote.id, timezone.now())
    complete(submission, timezone.now())
    ask(submission, Kind.APPROVE, "approve")

    outbox.send(outbox.claim(timezone.now()))
    waiting = submission.commands.get()
    fake.submit(remote, panel.completion_code)
    outbox.send(outbox.claim(waiting.next_try_at))

    assert (waiting.state, "has not entered the code" in waiting.error) == ("waiting", True)
    assert submission.commands.get().state == "done"
    assert remote.status == "APPROVED"


@pytest.mark.parametrize(
    ("trouble", "state", "n_paid"),
    [
        (Trouble.NONE, "done", 1),
        (Trouble.BUSY, "done", 1),  # rejected before execution, so a retry is safe
        (Trouble.UNANSWERED, "uncertain", 1),
        (Trouble.LOST, "uncertain", 0),
        (Trouble.DOWN, "uncertain", 0),
    ],
)
def test_bonus_is_sent_once_and_settled_by_reconciliation(fake, panel, trouble, state, n_paid):
    submission = complete_on(fake, publish(panel))
    fake.trouble = troubled("/pay/", trouble)
    ask(submission, Kind.BONUS, "bonus:floor", amount=107)

    outbox.send(outbox.claim(timezone.now()))

    [remote] = fake.submissions.values()
    assert submission.commands.get().state == state
    assert remote.bonuses == [107] * n_paid
    for _ in range(2):
        reconcile(panel, timezone.now())
    assert remote.bonuses == [107] * n_paid
    assert submission.commands.get().state == ("done" if n_paid else "uncertain")


def test_bonus_is_set_up_once_despite_failed_payments(fake, panel):
    submission = complete_on(fake, publish(panel))
    fake.trouble = troubled("/pay/", *[Trouble.BUSY] * 3)
    ask(submission, Kind.BONUS, "bonus:floor", amount=5)
    outbox.send(outbox.claim(timezone.now()))
    assert submission.commands.get().state == "waiting"

    outbox.send(outbox.claim(timezone.now() + timedelta(hours=1)))

    set_up = [request for request in fake.requests if request.path.endswith("/bonus-payments/")]
    assert [request.body["csv_bonuses"] for request in set_up] == [f"{submission.session_id},0.05"]
    assert fake.submissions[submission.session_id].bonuses == [5]


def test_stale_worker_does_not_repeat_a_payment(fake, panel):
    submission = complete_on(fake, publish(panel))
    ask(submission, Kind.BONUS, "bonus:floor", amount=107)
    later = timezone.now() + SENDING_LASTS
    [stale] = outbox.claim(timezone.now())
    settle(stale, False, later + timedelta(seconds=1))

    outbox.send(outbox.claim(later + timedelta(seconds=2)))
    outbox.send([stale])

    assert fake.submissions[submission.session_id].bonuses == [107]
    assert submission.commands.get().state == "done"


@pytest.mark.parametrize("session", ["../studies/1", "aaaa,100.00", "a?b", "a/b"])
def test_malformed_session_ids_are_never_sent(fake, panel, session):
    publish(panel)
    submission = enter(panel, "ada", session, timezone.now() - SHOWS_WITHIN)
    ask(submission, Kind.BONUS, "bonus:1", amount=5)
    n_before = len(fake.requests)

    outbox.send(outbox.claim(timezone.now()))
    reconcile(panel, timezone.now())

    submission.refresh_from_db()
    assert (submission.commands.get().state, submission.status) == ("failed", Status.RETURNED)
    assert not [request for request in fake.requests[n_before:] if "aaaa" in str(request) or "../" in request.path]
    assert not [request for request in fake.requests if "bonus" in request.path]


def test_existing_study_is_not_reused_with_a_different_reward(fake, panel):
    fake.trouble = troubled("/transition/", *[Trouble.UNANSWERED] * 3)
    with pytest.raises(PlatformUnavailable):
        platform_of(panel).publish()
    panel.reward = 200

    with pytest.raises(PlatformRefused, match=r"with a reward of USD 1\.50"):
        platform_of(panel).publish()


def test_rejection_return_and_screen_out_are_sent(fake, panel):
    publish(panel)
    rejected, return_requested, out = (complete_on(fake, panel) for _ in range(3))
    ask(rejected, Kind.REJECT, "reject", message=EXPLANATION, category="LOW_EFFORT")
    ask(return_requested, Kind.RETURN, "return", message="Withdrew consent")
    ask(out, Kind.SCREEN_OUT, "screen_out")
    while batch := outbox.claim(timezone.now()):
        outbox.send(batch)

    remote = [fake.submissions[submission.session_id] for submission in (rejected, return_requested, out)]
    assert [row.status for row in remote] == ["REJECTED", "AWAITING REVIEW", "SCREENED OUT"]
    assert remote[1].return_requested is not None


@pytest.mark.parametrize(("message", "category"), [("Too fast.", "TOO_QUICKLY"), (EXPLANATION, "DISAGREEMENT")])
def test_invalid_rejection_is_not_sent(fake, panel, message, category):
    submission = complete_on(fake, publish(panel))
    command = submission.commands.create(kind=Kind.REJECT, key="reject", message=message, category=category)

    with pytest.raises(PlatformRefused):
        platform_of(panel).execute(command)

    assert not [request for request in fake.requests if request.body and request.body.get("action") == "REJECT"]


def test_bulk_approval_is_one_request_confirmed_by_reconciliation(fake, panel, monkeypatch):
    monkeypatch.setattr(commands, "FEWEST_AT_ONCE", 3)
    publish(panel)
    people = [complete_on(fake, panel) for _ in range(3)]
    for submission in people:
        ask(submission, Kind.APPROVE, "approve")

    outbox.send(outbox.claim(timezone.now()))
    assert outbox.claim(timezone.now()) == []
    reconcile(panel, timezone.now())

    [body] = [request.body for request in fake.requests if request.path.endswith("/bulk-approve/")]
    assert set(body["submission_ids"]) == {submission.session_id for submission in people}
    assert [row.n_payments for row in fake.submissions.values()] == [1, 1, 1]
    assert {command.state for command in PlatformCommand.objects.all()} == {"done"}
    assert balance_of(panel) == (450, 450)


# Submissions


def test_reconciliation_applies_missed_events(fake):
    panel = publish(make_panel(places=5))
    people = [fake.arrive(panel.external_id)[0] for _ in range(5)]
    for remote in people:
        enter(panel, remote.participant, remote.id, timezone.now())
    fake.give_back(people[0]), fake.time_out(people[1]), fake.submit(people[2], "DONE1")
    newcomer, _ = fake.arrive(panel.external_id)
    fake.submit(newcomer, "NOCODE")

    reconcile(panel, timezone.now())

    assert_statuses_match(fake, panel)
    waiting = panel.submissions.get(status=Status.COMPLETED, completed_at=None, session_digest=digest_of(people[2].id))
    assert waiting.approves_itself_at == people[2].completed_at + timedelta(days=21)
    assert panel.submissions.get(session_digest=digest_of(newcomer.id)).status == Status.COMPLETED
    n_changed = reconcile(panel, timezone.now())
    assert n_changed == 0


def digest_of(name: str) -> str:
    from kgharvest.contrib.recruiting.panels.identifiers import digest

    return digest(name)


def assert_statuses_match(fake: FakeProlific, panel: Panel) -> None:
    statuses = {row.session_id: row.status for row in panel.submissions.all()}
    remote_statuses = {row.id: STATUSES[row.status] for row in fake.submissions.values() if row.id in statuses}
    assert statuses == remote_statuses


def test_place_taken_by_a_forged_link_is_released(fake, panel):
    earlier = timezone.now() - SHOWS_WITHIN
    forged = enter(publish(panel), "nobody", "f" * 24, earlier)
    recent = enter(panel, "somebody", "e" * 24, timezone.now())

    reconcile(panel, timezone.now())

    forged.refresh_from_db(), recent.refresh_from_db()
    assert (forged.status, recent.status) == (Status.RETURNED, Status.ACTIVE)


def test_all_pages_of_submissions_are_read(fake):
    panel = publish(make_panel(places=250))
    for _ in range(200):
        fake.arrive(panel.external_id)

    assert len(list(platform_of(panel).submissions())) == 200
    pages = [request for request in fake.requests if request.path == "/api/v1/submissions/"]
    assert len(pages) == 3


# Entry tokens


def parameters_of(address: str) -> dict[str, str]:
    return dict(httpx.URL(address).params)


def test_entry_link_signature_is_verified(fake):
    panel = publish(make_panel(platform_options=OPTIONS | {"signs_entry": True}))
    remote, address = fake.arrive(panel.external_id)
    link = parameters_of(address)

    platform_of(panel).check_entry(link)

    other = {"participant": "another", "study": remote.study_id, "session": remote.id}
    forged = [
        {name: value for name, value in link.items() if name != "prolific_token"},
        link | {"participant": "another"},
        link | {"session": "another"},
        link | {"prolific_token": link["prolific_token"][:-8] + "AAAAAAAA"},
        *(
            parameters_of(fake.entry_url(remote, **claims))
            for claims in (
                {"exp": 1_700_000_000},
                {"iss": "https://example.org"},
                {"aud": "https://example.org/panel/"},
                {"sub": "another"},
                {"prolific": other},
            )
        ),
    ]
    for parameters in forged:
        with pytest.raises(BadEntryLink):
            platform_of(panel).check_entry(parameters)


def test_unsigned_entry_tokens_are_rejected(fake, panel):
    publish(panel)
    remote, address = fake.arrive(panel.external_id)
    header, claims = ({"alg": "none", "kid": "key-1"}, {"sub": remote.id, "exp": 9_999_999_999})
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]

    with pytest.raises(BadEntryLink):
        platform_of(panel).check_entry(parameters_of(address) | {"prolific_token": ".".join([*parts, ""])})


def test_links_of_unsigned_studies_are_not_verified(fake, panel):
    publish(panel)
    _, address = fake.arrive(panel.external_id)

    platform_of(panel).check_entry(parameters_of(address))

    assert "prolific_token" not in address


# Event signatures and the field table


def test_event_signature_covers_secret_body_and_time(settings):
    settings.PROLIFIC = {"token": "", "url": "", "webhook_secret": SECRET}
    event, now = Event("1", b'{"resource_id": "\xc3\xa4"}'), 1_800_000_000
    headers = FakeProlific.headers(event, at=now)

    assert is_genuine(headers, event.body, now + 599)
    assert not is_genuine(headers, event.body + b" ", now)
    assert not is_genuine(headers, event.body, now + 601)
    assert not is_genuine(headers | {"X-Prolific-Request-Timestamp": str(now + 1)}, event.body, now)
    assert not is_genuine(FakeProlific.headers(event, "another", at=now), event.body, now)
    assert not is_genuine({}, event.body, now)
    settings.PROLIFIC["webhook_secret"] = ""
    assert not is_genuine(FakeProlific.headers(event, "", at=now), event.body, now)


def test_field_table_rejects_fields_unknown_to_prolific():
    study = {"name": "x", "colour": "red"}
    assert any("colour" in fault for fault in faults_of_request("POST", "/api/v1/studies/", {}, study))
    short = {"action": "REJECT", "message": "short", "rejection_category": "OTHER"}
    assert faults_of_request("POST", f"/api/v1/submissions/{'0' * 24}/transition/", {}, short)
    assert faults_of_request("DELETE", "/api/v1/studies/", {}, None)
    assert not faults_of_request("GET", "/api/v1/submissions/", {"study": ["1"]}, None)


def test_fake_deliveries_contain_all_events(fake, panel):
    publish(panel)
    fake.arrive(panel.external_id)

    deliveries = fake.deliveries(random.Random(1))

    assert len(deliveries) == 13 * len(fake.events)
    assert {body for _, body in deliveries} == {event.body for event in fake.events}
