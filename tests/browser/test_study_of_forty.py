"""Prolific study with 40 participants on a simulated Prolific, from the entry link to the final payment.

One participant uses a browser. Three others return their place, two time out, and one fails the comprehension check.
One event and one payment response are lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone
from playwright.sync_api import expect

from kgharvest.contrib.recruiting.models import Panel, PayEntry, Platform, PlatformCommand
from kgharvest.contrib.recruiting.models import Submission as OwnSubmission
from kgharvest.contrib.recruiting.panels.publishing import create_panel
from kgharvest.contrib.recruiting.pay.bonuses import grant_bonus
from kgharvest.contrib.recruiting.pay.commands import ask
from kgharvest.contrib.recruiting.pay.ledger import Balance, balance_of
from kgharvest.contrib.recruiting.prolific.platform import STATUSES
from kgharvest.contrib.recruiting.reconciliation import reconcile
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests import factories
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import (
    FEE,
    SECRET,
    TOKEN,
    FakeProlific,
    Submission,
    Trouble,
    serving,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

N_PEOPLE, N_STATEMENTS = 40, 3
REWARD, SCREEN_OUT_REWARD, BONUS = 150, 35, 45  # cents
CHECK = "What if you do not know?\n+ Unjudgeable\n- Guess"
RIGHT, WRONG = "Unjudgeable", "Guess"
EVENTS = "/recruiting/prolific/events/"
N_RETURNED, N_TIMED_OUT, N_WITH_BONUS = 3, 2, 5


class Study:
    """A panel on the simulated platform, with event delivery and job processing."""

    def __init__(self, panel: Panel, fake: FakeProlific):
        self.panel, self.fake = panel, fake
        self._n_delivered = 0

    def deliver_events(self, *, is_lost: bool = False) -> None:
        """Deliver new Prolific events, first in reverse order and then in order, and run the queued jobs."""
        events = self.fake.events[self._n_delivered :]
        self._n_delivered += len(events)
        for event in [] if is_lost else [*reversed(events), *events]:
            headers = {name: value for name, value in self.fake.headers(event).items() if name != "Content-Type"}
            response = Client().post(EVENTS, event.body, content_type="application/json", headers=headers)
            assert response.status_code == 204
        run_jobs()

    def codes(self) -> set[str]:
        return {self.panel.completion_code, self.panel.screen_out_code}


def run_jobs() -> None:
    """Run all queued jobs, as a worker does."""
    while job := Job.objects.filter(status=Job.Status.QUEUED).order_by("pk").first():
        ledger.run_job(job.pk)


@pytest.fixture
def fake(settings, live_server) -> Iterator[FakeProlific]:
    with serving() as fake:
        settings.PROLIFIC = {"token": TOKEN, "url": fake.url, "webhook_secret": SECRET}
        settings.ORIGIN = live_server.url
        yield fake
    assert fake.violations == []


@pytest.fixture
def study(fake, enqueued) -> Study:
    """A round with a panel that a researcher publishes on the Prolific page, which shows the cost."""
    owner = factories.make_researcher("ada")
    options = {"consent": "We keep **what you judge**.", "check_questions": CHECK, "judgments_per_task": 3}
    round = factories.make_round(46, name="pilot", by=owner, batch_size=3, **options)
    panel = create_panel(
        round,
        {
            "name": "forty",
            "platform": Platform.PROLIFIC,
            "places": N_PEOPLE,
            "statements_per_place": N_STATEMENTS,
            "reward": REWARD,
            "screen_out_reward": SCREEN_OUT_REWARD,
            "estimated_minutes": 6,
            "currency": "USD",
            "hourly_floor": 0,
        },
        owner,
    )
    client = Client()
    client.force_login(owner)
    page = f"/projects/default/rounds/pilot/panels/{panel.name}/prolific/"
    form = {"title": "Is it true?", "description": "Read statements.", "devices": ["desktop", "mobile"]}
    assert "84.00" in client.get(page).text  # 40 x 1.50 and 40 %
    client.post(page, {**form, "signs_entry": "on", "action": "publish"})
    panel.refresh_from_db()
    assert panel.status == Panel.Status.PUBLISHED
    return Study(panel, fake)


# Participants


class Person:
    """Prolific participant who uses the Django test client instead of a browser."""

    def __init__(self, study: Study):
        self.study, self._client = study, Client()
        self.submission, self.entry = study.fake.arrive(study.panel.external_id)
        self.judging = f"/judge/{study.panel.round_id}/"
        study.deliver_events()

    def begin(self, answer: str = RIGHT, n_tries: int = 1) -> None:
        """Open the entry link, give consent, and answer the comprehension check."""
        link = self.entry.partition(urlsplit(self.entry).netloc)[2]
        self._check_response(self._client.get(link))
        self._check_response(self._client.post(link, {"agrees": "on"}, follow=True))
        for _ in range(n_tries):
            sent = {"stage": "check", "check-1": answer}
            self.page = self._client.post(f"{self.judging}questions/", sent, follow=True)

    def judge(self, n: int) -> None:
        for _ in range(n):
            [statement, *_] = self._check_response(self._json("get"))["tasks"]
            answer = {"task": statement["task"], "label": "true", "client_uuid": uuid4(), "seconds": 20}
            self._check_response(self._json("post", **answer))

    def _json(self, method: str, **sent: Any):
        return getattr(self._client, method)(self.judging, sent, headers={"accept": "application/json"})

    def _check_response(self, response) -> Any:
        """Fail if the response reveals a completion code before the last judgment; return its JSON content."""
        assert response.status_code == 200
        assert not any(code in response.text for code in self.study.codes())
        return response.json() if response["Content-Type"] == "application/json" else None

    def end(self) -> None:
        """Submit the completion code from the last page to Prolific."""
        page = self._client.get(self.judging, follow=True).text
        [code] = re.findall(r'id="panel-code"[^>]*value="([^"]+)"', page)
        self.study.fake.submit(self.submission, code)
        self.study.deliver_events()


def take_part(study: Study) -> Submission:
    person = Person(study)
    person.begin()
    person.judge(N_STATEMENTS)
    person.end()
    return person.submission


def leave(study: Study, how: Callable[[Submission], None], n_judged: int, *, is_lost: bool = False) -> OwnSubmission:
    """Start, judge `n_judged` statements, and leave through Prolific."""
    person = Person(study)
    person.begin()
    person.judge(n_judged)
    how(person.submission)
    study.deliver_events(is_lost=is_lost)
    return study.panel.submissions.latest("pk")


def take_part_in_browser(study: Study, visitor) -> Submission:
    submission, entry = study.fake.arrive(study.panel.external_id)
    study.deliver_events()
    page = visitor.page
    page.goto(entry)
    page.get_by_label("I have read this and agree").check()
    page.get_by_role("button", name="Start judging").click()
    page.get_by_label(RIGHT).check()
    page.get_by_role("button", name="Submit answers").click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()  # the page accepts keys
    expect(page.get_by_text(f"0 judged, {N_STATEMENTS} left")).to_be_visible()
    for _ in range(N_STATEMENTS):
        statement = page.locator("#statement").inner_text()
        assert not any(code in page.content() for code in study.codes())
        page.keyboard.press("t")
        page.wait_for_function("was => document.querySelector('#statement')?.innerText !== was", arg=statement)
    code = page.get_by_label("Your code")
    expect(code).to_have_value(study.panel.completion_code)
    study.fake.submit(submission, code.input_value())
    study.deliver_events()
    assert visitor.complaints == []
    assert visitor.foreign_requests() == []
    return submission


# Study


def test_forty_participants_are_paid_exactly(study, fake, visit):
    panel = study.panel
    wallet = fake.wallet
    holding = panel.submissions.holding_places()

    # Leaving releases a place. If the event is lost, reconciliation releases the place.
    for number in range(N_RETURNED - 1):
        assert leave(study, fake.give_back, number).status == "returned"
    for _ in range(N_TIMED_OUT):
        assert leave(study, fake.time_out, 1).status == "timed out"
    lost = leave(study, fake.give_back, 2, is_lost=True)
    assert (lost.status, holding.count()) == ("active", 1)
    reconcile(panel, timezone.now())
    lost.refresh_from_db()
    assert (lost.status, holding.count()) == ("returned", 0)
    turned_away = Person(study)
    turned_away.begin(WRONG, n_tries=2)
    turned_away.end()

    # 40 participants complete the study.
    completions = [take_part(study) for _ in range(N_PEOPLE - 1)]
    completions.append(take_part_in_browser(study, visit()))
    assert {submission.status for submission in completions} == {"AWAITING REVIEW"}
    assert balance_of(panel) == Balance(N_PEOPLE * REWARD + SCREEN_OUT_REWARD, SCREEN_OUT_REWARD)

    # Payment: each submission is approved twice, and one bonus request gets no response.
    by = panel.created_by
    completed = list(panel.submissions.filter(status="completed"))
    for submission in completed * 2:
        ask(submission, PlatformCommand.Kind.APPROVE, "approve", by=by)
    run_jobs()
    fake.trouble = lambda method, path: Trouble.UNANSWERED if path.endswith("/pay/") else Trouble.NONE
    grant_bonus(completed[-1], BONUS, "For the long statements.", by)
    run_jobs()
    fake.trouble = lambda method, path: Trouble.NONE
    for submission in completed[: N_WITH_BONUS - 1]:
        grant_bonus(submission, BONUS, "For the long statements.", by)
    run_jobs()
    assert PlatformCommand.objects.unfinished().count() == 1
    for _ in range(2):
        study.deliver_events()
        reconcile(panel, timezone.now())

    check_sums(panel, fake, wallet - fake.wallet)
    assert panel.submissions.count() == len(fake.submissions) == N_PEOPLE + N_RETURNED + N_TIMED_OUT + 1
    assert panel.submissions.filter(status="approved").count() == N_PEOPLE


def check_sums(panel: Panel, fake: FakeProlific, spent: int) -> None:
    """Fail if a payment is pending or duplicated, or if the wallet change differs from the ledger plus fees."""
    paid = N_PEOPLE * REWARD + SCREEN_OUT_REWARD + N_WITH_BONUS * BONUS
    assert balance_of(panel) == Balance(paid, paid)
    assert not PlatformCommand.objects.exclude(state=PlatformCommand.State.DONE).exists()
    payments = PayEntry.objects.filter(side=PayEntry.Side.PAID).values_list("amount", flat=True)
    assert spent == sum(round(amount * (1 + FEE)) for amount in payments)
    for submission in panel.submissions.all():
        remote = fake.submissions[submission.session_id]
        assert submission.status == STATUSES[remote.status]
        assert remote.n_payments == (remote.status in ("APPROVED", "SCREENED OUT"))
        bonuses = submission.pay_entries.filter(side=PayEntry.Side.PAID, purpose=PayEntry.Purpose.BONUS)
        assert sorted(remote.bonuses) == sorted(bonuses.values_list("amount", flat=True))
