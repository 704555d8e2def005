"""MTurk's API through the real client, against a stand-in that botocore's own model of the API holds to the letter."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from xml.etree import ElementTree

import pytest
from django.utils import timezone

from annotation.models import Panel, Platform, PlatformCommand, Round, Submission
from annotation.recruiting.mturk.hits import QUESTION_SCHEMA, cents, dollars, fee_on
from annotation.recruiting.mturk.platform import PRODUCTION, SANDBOX, MTurk
from annotation.recruiting.panels.publishing import publish_panel
from annotation.recruiting.panels.services import enter
from annotation.recruiting.pay.commands import ask, send, start_next
from annotation.recruiting.pay.ledger import panel_balance
from annotation.recruiting.platforms import OutcomeUnknown, PlatformRefused, PlatformUnavailable, platform_of
from annotation.recruiting.reconciliation import reconcile
from tests.annotation.recruiting.mturk.fake import FAILED, HANGS_UP, THROTTLED, FakeMTurk
from tests.annotation.recruiting.mturk.worker import Worker
from tests.factories import make_round

pytestmark = pytest.mark.django_db

WORKER, ASSIGNMENT = "A2WORKEREXAMPLE", "3ASSIGNMENTEXAMPLE0001"
Status = Submission.Status


@pytest.fixture
def turk(settings, monkeypatch) -> Iterator[FakeMTurk]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    settings.ORIGIN = "https://kg.example.org"
    with FakeMTurk() as turk:
        settings.MTURK_ENDPOINT = turk.url
        yield turk


def make_panel(turk: FakeMTurk | None = None, **fields) -> Panel:
    """Make a panel; one that is published, if MTurk is given."""
    values = {"name": "turk", "platform": Platform.MTURK, "places": 9, "reward": 105, "estimated_minutes": 12}
    panel = Panel.objects.create(round=make_round(), **values | fields)
    if turk:
        panel.external_id = MTurk(panel).publish()
        panel.status = Panel.Status.PUBLISHED
        panel.save()
    return panel


def make_submission(turk: FakeMTurk, panel: Panel, worker: str = WORKER, assignment: str = ASSIGNMENT) -> Submission:
    """Let somebody come, do their work and submit the assignment at MTurk."""
    submission = enter(panel, worker, assignment, timezone.now())
    turk.submit(panel.external_id, worker, assignment)
    return submission


def make_command(submission: Submission, kind: str, **fields) -> PlatformCommand:
    return submission.commands.create(kind=kind, key=f"{kind}-{submission.commands.count()}", **fields)


# -- the study ---------------------------------------------------------------------------------------------------------


def test_a_panel_is_a_hit_whose_question_is_our_page(turk):
    panel = make_panel(turk, platform_options={"title": "True & <false>", "lifetime_days": 2, "frame_height": 700})

    hit = turk.hits[panel.external_id]
    question = ElementTree.fromstring(hit["Question"])
    assert question.findtext(f"{{{QUESTION_SCHEMA}}}ExternalURL") == f"https://kg.example.org/mturk/{panel.token}/"
    assert question.findtext(f"{{{QUESTION_SCHEMA}}}FrameHeight") == "700"
    assert (hit["Title"], hit["Reward"], hit["MaxAssignments"]) == ("True & <false>", "1.05", 9)
    assert hit["AssignmentDurationInSeconds"] == 36 * 60  # thrice the estimate
    assert hit["Expiration"] - datetime.now(UTC) == pytest.approx(timedelta(days=2), abs=timedelta(minutes=1))


def test_the_platform_is_found_by_the_panel(turk):
    assert isinstance(platform_of(make_panel()), MTurk)


def test_it_is_the_sandbox_unless_the_panel_says_otherwise(settings):
    settings.MTURK_ENDPOINT = ""

    assert MTurk(make_panel())._client.meta.endpoint_url == SANDBOX
    assert MTurk(make_panel(is_sandbox=False))._client.meta.endpoint_url == PRODUCTION


def test_publishing_twice_makes_one_hit(turk):
    panel = make_panel(turk)

    assert MTurk(panel).publish() == panel.external_id
    assert len(turk.hits) == 1


def test_a_hit_whose_answer_was_lost_is_found_again(turk):
    panel = make_panel()
    turk.faults["CreateHIT"] = [HANGS_UP]

    with pytest.raises(PlatformUnavailable):
        MTurk(panel).publish()

    panel.reward += 1
    with pytest.raises(PlatformRefused, match="with a reward of USD"):  # which people are shown there
        MTurk(panel).publish()
    panel.reward -= 1
    assert MTurk(panel).publish() in turk.hits
    assert len(turk.hits) == 1


def test_qualifications_are_passed_on(turk):
    wanted = [{"QualificationTypeId": "000000000000000000L0", "Comparator": "GreaterThan", "IntegerValues": [95]}]

    panel = make_panel(turk, platform_options={"qualifications": wanted})

    assert turk.hits[panel.external_id]["QualificationRequirements"] == wanted


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"currency": "EUR"}, "pays in USD only"),
        ({"platform_options": {"colour": "red"}}, "no option 'colour'"),
        ({"platform_options": ["red"]}, "is an object with some of title"),
        ({"platform_options": {"lifetime_days": "long"}}, "give a int"),
        ({"platform_options": {"qualifications": [{"Comparator": 7}]}}, "would not take this"),
    ],
)
def test_what_mturk_does_not_take_is_refused_in_words(turk, fields, reason):
    with pytest.raises(PlatformRefused, match=reason):
        MTurk(make_panel(**fields)).publish()

    assert turk.hits == {}


@pytest.mark.parametrize("asks", [{"training_size": 2}, {"ask_country": "optional"}])
def test_a_round_that_begins_with_more_than_statements_is_for_other_platforms(turk, asks):
    panel = make_panel()
    Round.objects.update(**asks)
    panel.refresh_from_db()

    with pytest.raises(PlatformRefused, match="neither training nor questions"):
        MTurk(panel).publish()


def test_a_panel_is_published_without_a_code_as_mturk_needs_none(turk):
    panel = make_panel(status=Panel.Status.DRAFT)

    publish_panel(panel)

    panel.refresh_from_db()
    assert (panel.status, panel.external_id) == (Panel.Status.PUBLISHED, next(iter(turk.hits)))


def test_a_server_without_https_is_not_shown_in_frames(turk, settings):
    settings.ORIGIN = "http://127.0.0.1:8000"

    with pytest.raises(PlatformRefused, match="KGHARVEST_BASE_URL"):
        MTurk(make_panel()).publish()


def test_pausing_expires_the_hit_and_resuming_opens_it_with_more_places(turk):
    panel = make_panel(turk, places=5)
    expires = lambda: turk.hits[panel.external_id]["Expiration"]  # noqa: E731

    MTurk(panel).pause()
    assert expires() < datetime.now(UTC)

    panel.places = 7
    MTurk(panel).resume()
    assert expires() > datetime.now(UTC)
    assert turk.hits[panel.external_id]["MaxAssignments"] == 7

    MTurk(panel).stop()
    assert expires() < datetime.now(UTC)


# -- money -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    # mturk.com/pricing: 20 %, 40 % from ten assignments on, a cent at least, halves up
    ("places", "reward", "total"),
    [(9, 105, 9 * 126), (10, 105, 10 * 147), (1, 1, 2), (3, 13, 3 * 16), (2, 52, 2 * 62)],
)
def test_the_cost_is_rewards_and_fees(places, reward, total):
    assert MTurk(make_panel(places=places, reward=reward)).cost().total == total


def test_dollars_are_exact():
    assert [dollars(amount) for amount in (5, 105, 100_000)] == ["0.05", "1.05", "1000.00"]
    assert [cents(text) for text in ("0.05", "1.5", "7", "10000.00")] == [5, 150, 700, 1_000_000]
    assert fee_on(2) == 1


def test_in_production_nothing_is_published_that_the_account_cannot_pay(turk):
    turk.balance = Decimal(5)
    panel = make_panel(is_sandbox=False)

    with pytest.raises(PlatformRefused, match=r"has USD 5\.00, and this panel costs USD 11\.34"):
        MTurk(panel).publish()

    assert turk.hits == {}


# -- who took part -----------------------------------------------------------------------------------------------------


def test_submissions_come_by_pages_with_what_they_were_paid(turk, monkeypatch):
    monkeypatch.setattr("annotation.recruiting.mturk.platform.LARGEST_PAGE", 2)
    panel = make_panel(turk)
    for number in range(5):
        make_submission(turk, panel, f"A{number}WORKER", f"3ASSIGNMENT{number}")
    approved = panel.submissions.first()
    MTurk(panel).execute(make_command(approved, "approve"))
    MTurk(panel).execute(make_command(approved, "bonus", amount=250, message="For the time."))

    remote = {submission.session: submission for submission in MTurk(panel).submissions()}

    assert len(remote) == 5
    assert remote["3ASSIGNMENT0"].status == Status.APPROVED
    assert (remote["3ASSIGNMENT0"].reward_paid, remote["3ASSIGNMENT0"].paid_bonuses) == (105, [250])
    assert remote["3ASSIGNMENT1"].status == Status.COMPLETED
    assert remote["3ASSIGNMENT1"].reward_paid is None
    assert remote["3ASSIGNMENT1"].approves_itself_at - remote["3ASSIGNMENT1"].at == timedelta(days=3)


def test_what_was_never_submitted_is_over_when_its_time_is(turk):
    panel = make_panel(turk)
    late, now = timezone.now() - timedelta(minutes=42), timezone.now()
    enter(panel, "A1GONE", "3GONE", late)
    enter(panel, "A2WORKING", "3WORKING", now)
    enter(panel, "A3DONE", "3DONE", late)
    turk.submit(panel.external_id, "A3DONE", "3DONE")

    remote = {submission.participant: submission.status for submission in MTurk(panel).submissions()}

    assert remote == {"A1GONE": Status.TIMED_OUT, "A3DONE": Status.COMPLETED}


def test_who_returns_a_hit_and_accepts_it_again_is_known_by_the_assignment_that_mturk_confirms(turk):
    panel = make_panel(turk)
    submission = enter(panel, WORKER, "3FIRST", timezone.now())
    turk.submit(panel.external_id, WORKER, "3SECOND")

    list(MTurk(panel).submissions())

    submission.refresh_from_db()
    assert submission.session_id == "3SECOND"


# -- commands ----------------------------------------------------------------------------------------------------------


def test_approving_twice_pays_once(turk):
    submission = make_submission(turk, panel := make_panel(turk))
    before = turk.balance
    command = make_command(submission, "approve", message="Thank you.")

    MTurk(panel).execute(command)
    MTurk(panel).execute(command)

    assert turk.n_asked("ApproveAssignment") == 1
    assert before - turk.balance == Decimal("1.26")  # 1.05 and 20 %


def test_rejecting_says_why_and_no_approval_takes_it_back(turk):
    submission = make_submission(turk, panel := make_panel(turk))

    with pytest.raises(PlatformRefused, match="Tell the person why"):
        MTurk(panel).execute(make_command(submission, "reject", state="failed"))
    MTurk(panel).execute(make_command(submission, "reject", message="All in two seconds.", state="failed"))
    assert turk.assignments[ASSIGNMENT]["RequesterFeedback"] == "All in two seconds."
    with pytest.raises(PlatformRefused, match="take that back on MTurk's pages"):
        MTurk(panel).execute(make_command(submission, "approve", state="failed"))
    assert turk.assignments[ASSIGNMENT]["AssignmentStatus"] == "Rejected"


def test_what_is_approved_is_not_rejected(turk):
    submission = make_submission(turk, panel := make_panel(turk))
    MTurk(panel).execute(make_command(submission, "approve"))

    with pytest.raises(PlatformRefused, match="approved and paid"):
        MTurk(panel).execute(make_command(submission, "reject", message="After all.", state="failed"))


def test_a_bonus_sent_again_is_paid_once(turk):
    submission = make_submission(turk, panel := make_panel(turk))
    command = make_command(submission, "bonus", amount=37, message="For the long statements.")

    MTurk(panel).execute(command)
    MTurk(panel).execute(command)

    assert [(bonus["BonusAmount"], bonus["WorkerId"]) for bonus in turk.bonuses] == [("0.37", WORKER)]


def test_mturk_itself_refuses_a_bonus_that_its_list_does_not_show_yet(turk, monkeypatch):
    submission = make_submission(turk, panel := make_panel(turk))
    command = make_command(submission, "bonus", amount=37)
    MTurk(panel).execute(command)
    monkeypatch.setattr(turk, "_ListBonusPayments", lambda **page: {"BonusPayments": [], "NumResults": 0})

    with pytest.raises(PlatformRefused, match="made before"):
        MTurk(panel).execute(command)

    assert len(turk.bonuses) == 1


def test_two_bonuses_of_the_same_amount_are_two(turk):
    submission = make_submission(turk, panel := make_panel(turk))

    for _ in range(2):
        MTurk(panel).execute(make_command(submission, "bonus", amount=37, message="Thanks."))

    assert len(turk.bonuses) == 2


def test_a_bonus_without_an_answer_may_have_been_paid(turk):
    submission = make_submission(turk, panel := make_panel(turk))
    command = make_command(submission, "bonus", amount=37)
    turk.faults["SendBonus"] = [HANGS_UP]

    with pytest.raises(OutcomeUnknown):
        MTurk(panel).execute(command)
    MTurk(panel).execute(command)

    assert len(turk.bonuses) == 1


def test_nobody_is_paid_for_an_assignment_that_is_somebody_elses(turk):
    panel = make_panel(turk)
    forged = enter(panel, "A9FORGER", ASSIGNMENT, timezone.now())
    turk.submit(panel.external_id, WORKER, ASSIGNMENT)

    with pytest.raises(PlatformRefused, match="somebody else's"):
        MTurk(panel).execute(make_command(forged, "approve"))

    assert turk.n_asked("ApproveAssignment") == 0


@pytest.mark.parametrize("kind", ["return", "screen_out"])
def test_what_mturk_cannot_do_is_refused(turk, kind):
    submission = make_submission(turk, panel := make_panel(turk))

    with pytest.raises(PlatformRefused, match="neither"):
        MTurk(panel).execute(make_command(submission, kind))


# -- the wire ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "words"), [(THROTTLED, "slow down"), (FAILED, "did not answer")])
def test_later_is_told_from_no(turk, fault, words):
    submission = make_submission(turk, panel := make_panel(turk))
    turk.faults["ApproveAssignment"] = [fault]

    with pytest.raises(PlatformUnavailable, match=words):
        MTurk(panel).execute(make_command(submission, "approve"))

    assert turk.n_asked("ApproveAssignment") == 0  # and nothing was tried again behind our back


def test_a_throttled_bonus_was_not_paid(turk):
    submission = make_submission(turk, panel := make_panel(turk))
    turk.faults["SendBonus"] = [THROTTLED]

    with pytest.raises(PlatformUnavailable):
        MTurk(panel).execute(make_command(submission, "bonus", amount=10))

    assert turk.bonuses == []


def test_what_mturk_says_is_passed_on_without_ids(turk):
    submission = enter(panel := make_panel(turk), WORKER, ASSIGNMENT, timezone.now())

    with pytest.raises(PlatformRefused, match=r"Assignment \[id\] does not exist") as refusal:
        MTurk(panel).execute(make_command(submission, "approve"))

    assert not re.search(f"{WORKER}|{ASSIGNMENT}", repr(refusal.value))


def test_without_credentials_it_says_which_variables_to_set(turk, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))

    with pytest.raises(PlatformRefused, match="AWS_ACCESS_KEY_ID"):
        MTurk(make_panel()).publish()


def test_a_server_that_is_not_there_is_asked_later(turk, settings):
    panel = make_panel()
    settings.MTURK_ENDPOINT = "http://127.0.0.1:1"

    with pytest.raises(PlatformUnavailable, match="cannot be reached"):
        MTurk(panel).publish()


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_what_mturk_confirms_is_owed_and_paid_to_the_cent(turk, enqueued):
    """Judged in the frame, submitted at MTurk, confirmed by reconciliation, approved, and thanked by a bonus."""
    panel = make_panel(turk, statements_per_place=1, places=2, reward=105)
    before = turk.balance
    worker = Worker(panel)
    worker.start()
    worker.send(label="true")
    turk.submit(panel.external_id, worker.ids["workerId"], worker.ids["assignmentId"])

    reconcile(panel, timezone.now())
    submission = panel.submissions.get()
    assert (submission.status, panel_balance(panel)) == (Status.COMPLETED, (105, 0))

    ask(submission, "approve", "approve")
    ask(submission, "bonus", "bonus:time", amount=45, message="For the time it took.")
    for _ in range(2):
        while command := start_next(timezone.now()):
            send(command)
        reconcile(panel, timezone.now())

    submission.refresh_from_db()
    assert (submission.status, panel_balance(panel)) == (Status.APPROVED, (150, 150))
    assert before - turk.balance == Decimal("1.80")  # 1.05 and 0.45, and 20 %


def test_a_bonus_of_which_nobody_heard_is_found_by_reconciliation(turk, enqueued):
    submission = make_submission(turk, panel := make_panel(turk))
    ask(submission, "bonus", "bonus:time", amount=45, message="For the time it took.")
    turk.faults["SendBonus"] = [HANGS_UP]
    send(start_next(timezone.now()))
    command = submission.commands.get()
    assert command.state == PlatformCommand.State.UNCERTAIN

    reconcile(panel, timezone.now())

    command.refresh_from_db()
    assert command.state == PlatformCommand.State.DONE
    assert len(turk.bonuses) == 1
