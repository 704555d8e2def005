"""Events are recorded with their act, sealed into one chain, name people by codes only, and stay."""

from __future__ import annotations

import importlib
import json
from hashlib import sha256
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.invites.erasure import erase_account, erase_annotator
from annotation.invites.services import join_round
from annotation.judging import sealing
from annotation.judging.assignment import next_batch
from annotation.judging.sealing import seal_due_judgments, seal_judgments
from annotation.models import Annotator, Judgment, Label
from annotation.rounds.services import close_round, pause_round, reopen_round
from kgharvest.accounts.models import Role
from kgharvest.audit.tables import canonical_json
from kgharvest.audit.verification import Verification
from kgharvest.events import chain
from kgharvest.events.chain import hashed_text, head, lock_head, seal_all, seal_due_events, seal_events
from kgharvest.events.models import Actor, Event
from kgharvest.events.recording import actor_code, record
from kgharvest.events.types import CORE_TYPES, TOPICS, event_types
from kgharvest.knowledge.curation import curate
from kgharvest.models import KnowledgeTuple
from tests.factories import judge, judge_all, make_annotators, make_member, make_researcher, make_round
from tests.postgres import at_once, on_postgresql, run_on_postgresql

migration = importlib.import_module("kgharvest.migrations.0035_events")

T = Label.TRUE

in_transactions = pytest.mark.django_db(transaction=True)


def test_the_code_of_every_annotator_fits():
    """SQLite enforces no length."""
    assert Event._meta.get_field("annotator").max_length >= Annotator._meta.get_field("code").max_length


@pytest.mark.django_db
def test_round_events_are_recorded_with_the_user(researcher):
    round = make_round(1, name="pilot", by=researcher)
    pause_round(round, researcher)
    reopen_round(round)
    close_round(round, researcher)

    code = actor_code(researcher)
    entries = list(Event.objects.filter(subject_type="round"))
    assert [(entry.actor, entry.sentence) for entry in entries] == [
        (code, "opened the round pilot with 1 statements"),
        (code, "paused the round pilot"),
        ("", "reopened the round pilot"),
        (code, "closed the round pilot with 1 statements incomplete"),
    ]
    assert {entry.subject_id for entry in entries} == {str(round.pk)}


@pytest.mark.django_db
def test_an_exported_chain_can_be_verified_without_this_program(tmp_path, researcher):
    judge_all(make_round(2, by=researcher), [T, T])
    seal_all()
    call_command("audit", "export", "--output", str(tmp_path / "trail.jsonl"))

    previous = "0" * 64
    for line in (tmp_path / "trail.jsonl").read_text().splitlines():
        entry = json.loads(line)
        rows = sha256("\n".join(entry["row_hashes"]).encode()).hexdigest()
        hashed = ["number", "at", "project_id", "actor", "action", "subject_type", "subject_id", "facts"]
        text = json.dumps([previous, *(entry[name] for name in hashed), rows], separators=(",", ":"))
        previous = sha256(text.encode()).hexdigest()
        assert previous == entry["hash"]
    assert previous == head().hash
    assert head().number >= 3


def test_canonical_json_is_the_same_whatever_a_database_makes_of_numbers():
    assert canonical_json({"b": [1.0, 0.1, -0.0, 1e22], "a": "é"}) == (
        '{"a":"\\u00e9","b":[1,0.1,0,10000000000000000000000]}'
    )


# -- at the same moment ------------------------------------------------------------------------------------------------


@in_transactions
def test_entries_written_at_the_same_moment_stand_in_a_row():
    make_round(12)
    tuples = list(KnowledgeTuple.objects.all())

    at_once(*[lambda known=known: curate(known, "hide", "so") for known in tuples])

    seal_events()
    assert sorted(Event.objects.values_list("number", flat=True)) == list(range(1, head().number + 1))
    assert Event.objects.filter(action="tuple.curated").count() == 12
    assert list(Verification()) == []


@in_transactions
def test_each_judgment_is_sealed_once_while_people_judge_and_several_seal(monkeypatch):
    monkeypatch.setattr(sealing, "JUDGMENTS_AT_ONCE", 3)
    round = make_round(8, judgments_per_task=4, batch_size=4)
    annotators = make_annotators(round, 4)

    def work(annotator):
        while batch := next_batch(annotator, timezone.now()):
            for task in batch:
                judge(annotator, task)
                judge(annotator, task, Label.FALSE)  # whose row the sealer may be about to mark

    def seal():
        return sum(seal_judgments() for _ in range(10))

    *_, one, other = at_once(*[lambda annotator=annotator: work(annotator) for annotator in annotators], seal, seal)
    rest = seal_judgments()

    n = Judgment.objects.count()
    assert one + other + rest == n > 16
    verification = Verification()
    assert list(verification) == []
    assert verification.verified.n_rows == {"judgment": n}
    lines = "\n".join(Event.objects.values_list("row_hashes", flat=True)).split()
    assert lines.count("judgment") == n


@in_transactions
def test_judgments_committed_behind_later_ones_are_not_missed():
    """Whoever begins first may commit last: no order of ids or times says what there is to seal."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    late, early = [
        (annotator, next_batch(annotator, timezone.now())) for annotator in make_annotators(make_round(2), 2)
    ]
    first, second = late[1]

    with transaction.atomic():
        judge(late[0], first)
        at_once(lambda: judge(early[0], second))  # not the task that is locked here
        assert at_once(seal_judgments) == [1]

    assert Judgment.objects.unsealed().count() == 1
    assert seal_judgments() == 1
    assert list(Verification()) == []


@pytest.mark.django_db
def test_sealing_takes_what_waits_from_its_index():
    """To sort all that waits by its statement's place would take seconds a batch after an import of millions."""
    judge_all(make_round(2), [T, T])

    with CaptureQueriesContext(connection) as queries:
        assert seal_judgments() == 2

    [taken] = [query["sql"] for query in queries if '"sealed_in" IS NULL ORDER BY' in query["sql"]]
    assert "JOIN" not in taken


@pytest.mark.django_db
def test_a_worker_seals_once_a_minute_or_when_a_batch_is_full(monkeypatch):
    now = timezone.now()
    round = make_round(8)
    [annotator] = make_annotators(round, 1)
    tasks = next_batch(annotator, now)

    for n_waiting, task in enumerate(tasks[:3]):
        judge(annotator, task)
        seal_due_judgments(now)
        assert Judgment.objects.unsealed().count() == n_waiting  # the first one at once
    assert Event.objects.filter(action=sealing.SEALED).count() == 1
    monkeypatch.setattr(sealing, "JUDGMENTS_AT_ONCE", 2)
    seal_due_judgments(now)
    assert not Judgment.objects.unsealed().exists()


# -- people ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_erased_person_is_in_no_entry_and_the_chain_still_holds():
    owner, person = make_member(Role.OWNER), make_researcher("olga.smirnova")
    round = make_round(3, name="pilot", by=owner, takes_guests=True)
    annotator, guest = join_round(round, person), join_round(round, name="Grace Hopper")
    for somebody in (annotator, guest):
        judge(somebody, next_batch(somebody, timezone.now())[0])
    pause_round(round, person)
    reopen_round(round, person)
    seal_judgments()

    erase_account(person, owner)
    erase_annotator(guest, owner)

    assert list(Verification()) == []
    assert Judgment.objects.count() == 2
    everything = str(list(Event.objects.values())) + str(list(Actor.objects.values()))
    assert "olga" not in everything
    assert "Grace" not in everything
    assert [entry.action for entry in Event.objects.order_by("-pk")[:3]] == [
        "annotator.erased",
        "account.erased",
        "annotator.erased",
    ]
    nobody = Actor.objects.get(user=None)
    assert Event.objects.get(action="account.erased").sentence == f"erased the account {nobody}"
    assert Event.objects.filter(actor=nobody).count() == 2


# -- append-only -------------------------------------------------------------------------------------------------------


@pytest.fixture
def triggers():
    with connection.cursor() as cursor:
        editor = SimpleNamespace(
            connection=connection, execute=lambda sql, params=(): cursor.execute(sql, params or None)
        )
        migration.allow_changes(None, editor)
        migration.refuse_changes(None, editor)
        yield
        migration.allow_changes(None, editor)


@pytest.mark.django_db
def test_the_database_refuses_to_change_or_delete_events(triggers):
    make_round(2)
    seal_events()
    make_round(2)

    for change in (
        "UPDATE kgharvest_auditentry SET actor = 'x'",
        "UPDATE kgharvest_auditentry SET facts = '{}' WHERE number IS NULL",
        "UPDATE kgharvest_auditentry SET kind = 'closed' WHERE number IS NULL",
        "UPDATE kgharvest_auditentry SET hash = 'x' WHERE number = 2",
        "UPDATE kgharvest_auditentry SET number = NULL, previous_hash = NULL, hash = NULL WHERE number = 2",
        "UPDATE kgharvest_auditentry SET hash = 'x' WHERE number IS NULL",
        "UPDATE kgharvest_auditentry SET texts = '{}'",
        f"UPDATE kgharvest_auditentry SET by_id = {make_researcher().pk}",
        "DELETE FROM kgharvest_auditentry WHERE number = 2",
        "DELETE FROM kgharvest_auditentry WHERE number IS NULL",
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(change)


@pytest.mark.django_db
def test_events_can_be_sealed_once_and_their_account_and_free_text_erased(triggers, researcher):
    round = make_round(2, by=researcher)
    record("panel.stopped", round, researcher, round=round, texts={"reason": "Olga asked"}, panel="p")
    seal_events()
    before = list(Event.objects.values_list("number", "hash"))

    Event.objects.update(by=None, texts=None)

    assert list(Event.objects.values_list("number", "hash")) == before
    assert list(Verification()) == []
    assert round.events.first().history_sentence == "stopped the panel p: …"


# -- recording and sealing ---------------------------------------------------------------------------------------------


@in_transactions
def test_an_act_that_is_rolled_back_leaves_no_event():
    round = make_round(1)
    n = Event.objects.count()

    with transaction.atomic():
        pause_round(round)
        assert Event.objects.count() == n + 1
        transaction.set_rollback(True)

    assert Event.objects.count() == n


@in_transactions
def test_events_wait_for_their_sealer_as_long_as_it_takes():
    """A process that dies between an act and its sealing loses nothing: the event committed with the act."""
    round = make_round(1)
    pause_round(round)
    assert Event.objects.unsealed().count() == 2
    assert head().number == 0

    seal_due_events(timezone.now())

    assert not Event.objects.unsealed().exists()
    assert [event.action for event in Event.objects.sealed()] == ["trail.begun", "round.opened", "round.paused"]
    assert list(Verification()) == []


@in_transactions
def test_a_sealer_that_dies_leaves_the_chain_as_it_was(monkeypatch):
    round = make_round(1)
    seal_events()
    before = head()
    pause_round(round)
    reopen_round(round)
    hashed = []

    def dies_at_the_second(entry):
        if hashed:
            raise KeyboardInterrupt
        hashed.append(entry)
        return hashed_text(entry)

    monkeypatch.setattr(chain, "hashed_text", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        seal_events()
    monkeypatch.undo()

    assert head() == before
    assert Event.objects.unsealed().count() == 2
    assert seal_events() == 2
    assert list(Verification()) == []


@in_transactions
def test_recording_waits_for_no_lock_of_the_head():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    round = make_round(1)
    seal_events()

    with transaction.atomic():
        lock_head()
        at_once(lambda: pause_round(round))

    assert Event.objects.unsealed().get().action == "round.paused"


@in_transactions
def test_sealers_at_the_same_moment_seal_each_event_once(monkeypatch):
    monkeypatch.setattr(chain, "EVENTS_AT_ONCE", 3)
    round = make_round(1)

    def work():
        for _ in range(5):
            pause_round(round)
            reopen_round(round)

    _, *n_sealed = at_once(work, *[lambda: sum(seal_events() for _ in range(5)) for _ in range(2)])
    rest = seal_events()

    assert sum(n_sealed) + rest == 11
    assert sorted(Event.objects.values_list("number", flat=True)) == list(range(1, 13))
    assert list(Verification()) == []


@in_transactions
def test_a_sealer_passes_over_events_that_are_being_erased():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    round = make_round(1)
    pause_round(round)

    with transaction.atomic():
        round.events.filter(kind="paused").update(texts=None)
        assert at_once(seal_events) == [1]

    assert seal_events() == 1
    assert list(Verification()) == []


@pytest.mark.django_db
def test_the_chain_does_not_connect_an_account_with_its_annotator_code(researcher):
    round = make_round(1)
    annotator = join_round(round, researcher)

    event = Event.objects.get(kind="joined")
    assert (event.by, event.actor, event.annotator) == (researcher, "", annotator.code)
    erase_annotator(annotator)
    event.refresh_from_db()
    assert event.by is None


@pytest.mark.django_db
def test_a_fact_that_is_missing_is_found_when_the_event_is_recorded():
    round = make_round(1)
    with pytest.raises(KeyError):
        record("round.closed", round, None, round=round)
    with pytest.raises(KeyError):
        record("round.unknown", round, None, round=round)


def test_each_type_of_event_is_declared_once_and_names_topics_that_exist():
    assert len(event_types()) == len(CORE_TYPES)
    assert {kind.topic for kind in CORE_TYPES} - {""} == set(TOPICS)
    assert all(bool(kind.kind) == bool(kind.history) and len(kind.key) <= 40 for kind in CORE_TYPES)


@on_postgresql
def test_all_of_this_holds_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout[-3000:]
