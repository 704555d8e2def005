"""The page in MTurk's frame: no cookies, forged ids, previews, and the form that goes to MTurk at the end."""

from uuid import uuid4

import pytest
from django.core import signing
from django.test import Client
from django.utils import timezone

from annotation.models import Judgment, Panel, Platform, Submission
from annotation.recruiting.mturk import entries
from annotation.recruiting.mturk.entries import Entry
from annotation.rounds.services import close_round
from tests.annotation.recruiting.mturk.worker import Worker
from tests.factories import make_round

pytestmark = pytest.mark.django_db

SANDBOX = "https://workersandbox.mturk.com"


def make_panel(tuples: int = 3, **fields) -> Panel:
    spec = {name: fields.pop(name) for name in ("consent", "instructions") if name in fields}
    values = {"name": "turk", "platform": Platform.MTURK, "status": "published", "statements_per_place": 2}
    return Panel.objects.create(round=make_round(tuples, **spec), **values | fields)


def test_a_worker_judges_without_cookies_and_submits_to_mturk():
    panel = make_panel()
    worker = Worker(panel)

    worker.start()
    worker.send(label="true", seconds="3.5")
    end = worker.send(label="false").content.decode()

    assert [(row.label, row.seconds) for row in Judgment.objects.order_by("judged_at")] == [
        ("true", 3.5),
        ("false", None),
    ]
    assert f'action="{SANDBOX}/mturk/externalSubmit"' in end
    assert worker.hidden() == {"assignmentId": "3ASSIGNMENT1", "judged": "2"}


def test_nothing_is_owed_before_mturk_has_confirmed_the_assignment():
    worker = Worker(make_panel())

    worker.start()
    worker.send(label="true")
    worker.send(label="true")

    submission = Submission.objects.get()
    assert submission.status == Submission.Status.ACTIVE
    assert submission.completed_at
    assert not submission.pay_entries.exists()


def test_in_production_the_form_goes_to_the_real_mturk():
    worker = Worker(make_panel(tuples=1, is_sandbox=False), turkSubmitTo="https://www.mturk.com/")

    worker.start()

    assert 'action="https://www.mturk.com/mturk/externalSubmit"' in worker.send(label="true").content.decode()


@pytest.mark.parametrize("ids", [{"assignmentId": "ASSIGNMENT_ID_NOT_AVAILABLE"}, {"assignmentId": ""}])
def test_a_preview_shows_instructions_and_judges_nothing(ids):
    panel = make_panel(instructions="Judge **with care**.")
    worker = Worker(panel, **ids)

    page = worker.open().content.decode()

    assert "with care" in page
    assert "<form" not in page
    assert worker.send(start="1").status_code == 400
    assert not Submission.objects.exists()


def test_looking_at_the_page_takes_no_place():
    worker = Worker(make_panel())

    assert "Start" in worker.open().content.decode()
    assert not Submission.objects.exists()


@pytest.mark.parametrize(
    "ids",
    [
        {"turkSubmitTo": "https://evil.example.org"},
        {"turkSubmitTo": "https://www.mturk.com.evil.example.org"},
        {"turkSubmitTo": "javascript:alert(1)"},
        {"turkSubmitTo": "https://www.mturk.com"},  # of production, while the panel is in the sandbox
        {"workerId": "'><script>"},
        {"workerId": ""},
        {"assignmentId": "../x"},
    ],
)
def test_an_address_that_mturk_did_not_make_is_refused(ids):
    response = Worker(make_panel()).open(**ids)

    assert response.status_code == 400
    assert "<script>" not in response.content.decode()


def test_only_mturks_pages_may_show_it():
    response = Worker(make_panel()).open()

    policy = response["Content-Security-Policy"]
    hosts = "https://www.mturk.com https://worker.mturk.com https://workersandbox.mturk.com"
    assert f"frame-ancestors {hosts}" in policy
    assert f"form-action 'self' {hosts}" in policy
    assert "script-src 'self'" in policy
    assert "X-Frame-Options" not in response
    assert "frame-ancestors 'none'" in Client().get("/return/")["Content-Security-Policy"]


def test_a_form_that_was_altered_is_refused():
    panel, other = make_panel(), make_panel()
    worker = Worker(panel)
    worker.start()
    task = worker.hidden()["task"]
    made_up = signing.dumps({"panel": panel.pk, "assignment": "3X", "worker": "A3OTHER", "submit_to": SANDBOX})
    of_other_panel = Entry(other.pk, "3ASSIGNMENT1", "A2WORKER", SANDBOX).token

    for token in ("", made_up, of_other_panel, worker.hidden()["entry"] + "x"):
        fields = {"entry": token, "task": task, "client_uuid": str(uuid4()), "label": "true"}
        assert Client().post(worker.path, fields).status_code == 400

    assert not Judgment.objects.exists()


def test_a_token_ends_with_the_time_for_the_hit(monkeypatch):
    worker = Worker(make_panel(estimated_minutes=1))
    worker.start()
    monkeypatch.setattr(signing.time, "time", lambda: timezone.now().timestamp() + 30 * 60 + entries.LOADING_S + 1)

    response = worker.send(label="true")

    assert response.status_code == 400
    assert "time for this HIT is over" in response.content.decode()


def test_consent_is_asked_for_first():
    panel = make_panel(consent="We keep *nothing*.")
    worker = Worker(panel)

    refused = worker.start()
    assert refused.status_code == 400
    assert "Tick that you agree" in refused.content.decode()

    worker.send(start="1", agrees="on")
    assert Submission.objects.get().annotator.consent_sha256


def test_a_page_that_is_reloaded_goes_on_where_it_stopped():
    panel = make_panel()
    worker = Worker(panel)
    worker.start()
    worker.send(label="true")

    page = Worker(panel).start().content.decode()

    assert "1 judged, 1 left" in page
    assert Submission.objects.count() == 1


def test_an_answer_that_is_incomplete_is_asked_for_again():
    worker = Worker(make_panel())
    worker.start()

    response = worker.send(label="perhaps")

    assert response.status_code == 409
    assert "answer once more" in response.content.decode()


def test_a_statement_can_be_skipped():
    worker = Worker(make_panel())
    first = worker.start() and worker.hidden()["task"]

    worker.send(skip="1")

    assert worker.hidden()["task"] != first
    assert not Judgment.objects.exists()


def test_what_was_skipped_comes_again_before_the_end():
    worker = Worker(make_panel(tuples=2))
    worker.start()
    for _ in range(5):
        worker.send(skip="1")
        assert "task" in worker.hidden()

    assert not Submission.objects.get().completed_at


def test_whoever_is_at_work_when_the_round_closes_submits_what_they_judged():
    panel = make_panel()
    worker = Worker(panel)
    worker.start()
    worker.send(label="true")
    close_round(panel.round)

    worker.send(label="true")

    assert worker.hidden() == {"assignmentId": "3ASSIGNMENT1", "judged": "1"}
    assert Submission.objects.get().completed_at


def test_who_judged_nothing_has_nothing_to_submit():
    panel = make_panel()
    worker = Worker(panel)
    worker.start()
    close_round(panel.round)

    page = worker.send(label="true").content.decode()

    assert "Please return the HIT" in page
    assert "externalSubmit" not in page
    assert not Submission.objects.get().completed_at


def test_made_up_ids_take_only_so_many_places(settings):
    settings.LIMITS = settings.LIMITS | {"panel_entries": (2, 600)}
    panel = make_panel(places=5)
    statuses = [Worker(panel, workerId=f"A{n}UP", assignmentId=f"3UP{n}").start().status_code for n in range(3)]

    assert statuses == [200, 200, 409]
    assert panel.submissions.count() == 2


def test_whose_part_has_ended_judges_no_more():
    worker = Worker(make_panel())
    worker.start()
    Submission.objects.update(status=Submission.Status.TIMED_OUT, platform_status="Abandoned")

    assert worker.send(label="true").status_code == 400
    assert Worker(Panel.objects.get()).start().status_code == 409
    assert not Judgment.objects.exists()


def test_mturk_counts_places_itself_but_not_without_end():
    """Who gives a place back says so to MTurk alone, which gives it to others at once."""
    panel = make_panel(places=1)
    for number in (1, 2):
        worker = Worker(panel, workerId=f"A{number}EARLY", assignmentId=f"3EARLY{number}")
        assert worker.start().status_code == 200

    response = Worker(panel, workerId="A3LATE", assignmentId="3LATE").start()

    assert response.status_code == 409
    assert "All places" in response.content.decode()


def test_an_assignment_is_one_persons():
    panel = make_panel()
    Worker(panel).start()

    response = Worker(panel, workerId="A3OTHER").start()

    assert response.status_code == 409
    assert "Somebody else came by this very link" in response.text.replace("&#x27;", "'")


def test_there_is_nothing_under_other_tokens_or_panels_of_other_platforms():
    by_link = make_panel(platform=Platform.LINK)

    assert Worker(by_link).open().status_code == 404
    assert Client().get("/mturk/made-up/").status_code == 404


def test_a_panel_of_mturk_is_entered_by_its_frame_alone():
    """Elsewhere nobody would ask MTurk's API before the reward is owed."""
    panel = make_panel()

    assert Client().get(f"/enter/{panel.token}/?participant=A1").status_code == 404
