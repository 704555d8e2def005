"""Search for leaked participant ids and tokens.

A study runs with unique ids and tokens. The test then searches all logs, files, responses, and database rows for them.
Only project members see participant ids, on the pages of the panel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.test import Client
from django.utils import timezone

from annotation.models import Label, Round
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.packs.pack_jobs import queue_pack
from kgharvest.contrib.recruiting.models import Panel, PanelEvent, Platform
from kgharvest.contrib.recruiting.panels import participant_views
from kgharvest.contrib.recruiting.pay.bonuses import grant_bonus, note_paid
from kgharvest.contrib.recruiting.pay.commands import ask
from kgharvest.contrib.recruiting.pay.commands import outbox as commands
from kgharvest.contrib.recruiting.platforms import platform_of
from kgharvest.contrib.recruiting.prolific.events import outbox as events
from kgharvest.contrib.recruiting.reconciliation import reconcile
from kgharvest.events.types import TOPICS
from kgharvest.jobs import ledger
from kgharvest.models import Role
from kgharvest.webhooks.outbox import create_webhook
from tests import factories
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import SECRET as PROLIFIC_SECRET
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import TOKEN as PROLIFIC_TOKEN
from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import Event, FakeProlific, Trouble, serving
from tests.kgharvest.contrib.recruiting.searched import Log, addresses, database, forms_of, found_in, responses

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

IDS = {
    "participant": "pid-6f1dQzPARTICIPANT",
    "participant who left": "pid-8a2cQzLEFT",
    "participant who came too late": "pid-9b3dQzLATE",
    "participant with a wrong link": "pid-0c4eQzWRONG",
    "participant at a failure": "pid-1d5fQzFAILED",
    "session": "sid-77e0QzSESSION",
    "Prolific participant": "c0ffeef00dc0ffeef00dc0de",
    "Prolific participant who left": "c0ffeef00dc0ffeef00dc0df",
}
TOKENS = {
    "entry token": "eyJhbGciOiJSUzI1NiJ9.QzENTRYTOKEN.c2ln",
    "Prolific's token": PROLIFIC_TOKEN,
    "Prolific's webhook secret": PROLIFIC_SECRET,
}
CODES = {"completion": "QZC0DE77", "screen-out": "QZ0UT88", "quota full": "QZFULL99"}


@dataclass
class Study:
    """A study and its recorded output. Pages and end pages are (URL, text); end pages can contain a code."""

    round: Round
    panel: Panel
    pages: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=lambda: {**IDS, **TOKENS})


class Person:
    """Browser of a participant who enters with the link of a panel."""

    def __init__(self, study: Study, **ids: str):
        self._client, self._study = Client(raise_request_exception=False), study
        query = {"participant": IDS["participant"], "study": "stu-31", "session": IDS["session"]} | ids
        query["prolific_token"] = TOKENS["entry token"]
        self.link = f"/enter/{study.panel.token}/?" + "&".join(f"{name}={value}" for name, value in query.items())

    def open(self, path: str, **form_data: str) -> str:
        response = self._client.post(path, form_data) if form_data else self._client.get(path, follow=True)
        page = response.content.decode()
        is_end = "recruiting/panels/panel_end.html" in [template.name for template in response.templates]
        (self._study.ends if is_end else self._study.pages).append((path.partition("?")[0], page))
        return page

    def judge(self, n: int) -> None:
        """Enter, agree, judge `n` statements, and open all pages for annotators."""
        self.open(self.link)
        self.open(self.link, agrees="on")
        judging = f"/judge/{self._study.round.pk}/"
        for _ in range(n):
            hidden = dict(re.findall(r'name="(task|client_uuid)" value="([^"]+)"', self.open(judging)))
            self.open(judging, label=Label.TRUE, seconds="4", **hidden)
        for page_name in ("answers/", "instructions/", "device/", "training/"):
            self.open(judging + page_name)
        self.open(judging)


@pytest.fixture
def owner(db):
    return factories.make_member(Role.OWNER)


@pytest.fixture
def prolific(settings, monkeypatch) -> Iterator[FakeProlific]:
    settings.ORIGIN = "https://kg.example.org"
    monkeypatch.setattr("kgharvest.contrib.recruiting.prolific.client.FIRST_WAIT_S", 0)
    with serving(FakeProlific(seed=987_654_321_098)) as fake:
        settings.PROLIFIC = {"token": PROLIFIC_TOKEN, "url": fake.url, "webhook_secret": PROLIFIC_SECRET}
        yield fake


@pytest.fixture
def study(owner, prolific, enqueued, settings, tmp_path, monkeypatch) -> Study:
    files = {"BACKEND": "kgharvest.operations.files.DataFolder", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = settings.STORAGES | {"files": files}
    # The search finds no text in PDF files, because they are compressed.
    monkeypatch.setattr("kgharvest.contrib.publishing.packs.pack.rendered_figures", lambda document: [])
    # Each annotator starts at a random statement. With fewer than 6 statements, three annotators can fill so many that
    # the participant who left at Prolific runs out of statements and completes.
    round = factories.make_round(6, name="pilot", by=owner, consent="We keep **nothing** of who you are.")
    create_webhook(round.project_id, "https://1.1.1.1/hook", list(TOPICS), owner)
    panel = make_panel(
        round, name="people", places=2, statements_per_place=3, reward=120, completion_code=CODES["completion"],
        screen_out_code=CODES["screen-out"], quota_full_code=CODES["quota full"], study_parameter="study",
        session_parameter="session",
    )  # fmt: skip
    study = Study(round, panel)
    with Log() as log:
        take_part(study, monkeypatch)
        pay(study, owner)
        take_part_at_prolific(study, prolific, owner)
        ledger.run_job(queue_pack(create_report(round, by=owner), owner).pk)
    study.log = log.lines
    return study


def take_part(study: Study, monkeypatch) -> None:
    """Let five participants enter: complete, leave early, arrive too late, use a wrong link, and hit a server error."""
    Person(study).judge(3)
    leaving = Person(study, participant=IDS["participant who left"], session="another")
    leaving.judge(1)
    late = Person(study, participant=IDS["participant who came too late"], session="a-third")
    late.open(late.link)
    wrong = Person(study, participant=IDS["participant with a wrong link"])
    wrong.open(f"{wrong.link}&participant={IDS['participant with a wrong link']}")
    wrong.open(wrong.link.replace(study.panel.token, "made-up"))
    failing = Person(study, participant=IDS["participant at a failure"], session="a-fourth")
    with monkeypatch.context() as patch:
        patch.setattr(participant_views.services, "enter", lambda *ids, **more: {}["a bug"])
        failing.open(failing.link)


def pay(study: Study, owner) -> None:
    completed = study.panel.submissions.exclude(completed_at=None).get()
    ask(completed, "approve", "approve", by=owner)
    grant_bonus(completed, 35, "For the time it took.", owner)
    send_commands()
    note_paid(study.panel, [completed.pk], 35, owner)


def take_part_at_prolific(study: Study, fake: FakeProlific, owner) -> None:
    """Let two Prolific participants enter: one completes and is paid, one leaves.

    Prolific refuses to approve the participant who left, with an error that contains ids.
    """
    names = {"participant_parameter": "PROLIFIC_PID", "study_parameter": "STUDY_ID", "session_parameter": "SESSION_ID"}
    options = {"title": "Is it true?", "description": "Read statements.", "signs_entry": True}
    fields = {"platform": Platform.PROLIFIC, "places": 2, "statements_per_place": 3, "reward": 150}
    panel = make_panel(
        study.round, name="prolific", platform_options=options, completion_code=CODES["completion"], **names, **fields
    )
    panel.external_id = platform_of(panel).publish()
    panel.save()
    for name, n_judged in (("Prolific participant", 3), ("Prolific participant who left", 1)):
        submission, address = fake.arrive(panel.external_id, IDS[name])
        study.secrets |= {
            f"submission of {name}": submission.id,
            f"entry token of {name}": address.partition("token=")[2],
        }
        person = Person(study)
        person.link = address.partition("example.org")[2]
        person.judge(n_judged)
        fake.submit(submission, CODES["completion"]) if n_judged == 3 else fake.give_back(submission)
    fake.trouble = lambda method, path: Trouble.DOWN if "submissions/" in path else Trouble.NONE
    deliver(fake)
    fake.trouble = lambda method, path: Trouble.NONE
    reconcile(panel, timezone.now())
    completed, left = panel.submissions.order_by("pk")
    assert (completed.status, left.status) == ("completed", "returned")
    premature = left.commands.create(kind="approve", key="too late")
    ask(completed, "approve", "approve", by=owner)
    grant_bonus(completed, 35, "For the time it took.", owner)
    send_commands()
    premature.refresh_from_db()
    assert premature.state == "failed"
    PanelEvent.objects.update(next_try_at=timezone.now())
    deliver(fake)


def deliver(fake: FakeProlific) -> None:
    """Deliver all events and a forged event, and handle them."""
    forged = Event("forged", fake.events[0].body)
    for event, headers in [
        *((event, fake.headers(event)) for event in fake.events),
        (forged, fake.headers(forged, "x")),
    ]:
        form_data = {name: value for name, value in headers.items() if name != "Content-Type"}
        Client().post("/recruiting/prolific/events/", event.body, content_type="application/json", headers=form_data)
    while batch := events.claim(timezone.now()):
        events.send(batch)


def send_commands() -> None:
    while batch := commands.claim(timezone.now()):
        commands.send(batch)


def urls_of(round: Round) -> list[str]:
    """Return the URLs of all pages, files, and API resources of a round."""
    report = round.reports.get()
    codes = [annotator.code for annotator in round.annotators.all()[:1]]
    values = {
        "path": [round.path],
        "round_id": [round.pk],
        "code": codes,
        "slug": ["default"],
        "pk": sorted({report.pk, round.tasks.first().pk}),
        "file_format": ["csv", "jsonl", "json", "parquet", "xlsx"],
    }
    return ["/", *addresses(values, "rounds/", "reports/", "projects/", "judging/", "audit")]


def is_of_panel(address: str) -> bool:
    return "/panels/" in address


# Searches


def test_search_finds_encoded_secrets():
    for text in ("x=pid-6f1dQzPARTICIPANT&", "eyJpZCI6ICJwaWQtNmYxZFF6UEFSVElDSVBBTlQifQ==", "7069642d366631"):
        assert (found_in(text, IDS) == ["participant"]) == ("7069" not in text)
    assert all(len(form) > 8 for secret in {**IDS, **TOKENS}.values() for form in forms_of(secret))


def test_study_leaks_no_ids_or_tokens(study, owner):
    """Search all output in one test, because the study is slow. The failure message lists every leak."""
    leaks = [f"log: {name} in {line[:200]}" for line in study.log for name in found_in(line, study.secrets | CODES)]
    leaks += [
        f"a page for people who judge, {path}: {name}"
        for path, page in study.pages
        for name in found_in(page, study.secrets | CODES)
    ]
    leaks += [f"the end, {path}: {name}" for path, page in study.ends for name in found_in(page, study.secrets)]
    leaks += [
        f"{table} in the database: {name}" for table, rows in database() for name in found_in(rows, study.secrets)
    ]
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    shown_on = set()
    n_responses = 0
    not_followed = ("/accounts/", "/static/", "/admin/", ".pdf", "&sort=")
    for address, response in responses(client, urls_of(study.round), *not_followed):
        n_responses += 1
        if is_of_panel(address):
            shown_on.add(address) if found_in(response, IDS) else None
            leaks += [f"{address}: {name}" for name in found_in(response, TOKENS)]
        else:
            leaks += [f"{address}: {name}" for name in found_in(response, study.secrets | CODES)]

    assert leaks == [], "\n".join(leaks)
    assert n_responses > 100
    assert shown_on  # project members see the ids
    assert len(study.pages) > 20
    assert any("enter/<slug:token>/" in line for line in study.log)  # proves that the log was recorded
    assert any("a bug" in line for line in study.log)
    assert [name for _, page in study.ends for name in found_in(page, CODES)] == [
        "completion",
        "quota full",
        "completion",
    ]
    viewer = Client()
    viewer.force_login(factories.make_member(Role.VIEWER))
    for address in shown_on:
        assert not found_in(viewer.get(address).getvalue().decode(errors="replace"), study.secrets), address
