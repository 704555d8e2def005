"""Events: recording, sealing into the hash chain, pseudonymous codes, and append-only storage."""

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
truncation = importlib.import_module("kgharvest.migrations.0042_refuse_truncation_of_events")

T = Label.TRUE

in_transactions = pytest.mark.django_db(transaction=True)


def test_annotator_codes_fit_the_event_column():
    """Compare the field lengths, because SQLite does not enforce them."""
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
def test_exported_chain_can_be_verified_independently(tmp_path, researcher):
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


def test_canonical_json_normalizes_numbers():
    assert canonical_json({"b": [1.0, 0.1, -0.0, 1e22], "a": "é"}) == (
        '{"a":"\\u00e9","b":[1,0.1,0,10000000000000000000000]}'
    )


# Concurrency


@in_transactions
def test_simultaneous_entries_get_consecutive_numbers():
    make_round(12)
    tuples = list(KnowledgeTuple.objects.all())

    at_once(*[lambda each=each: curate(each, "hide", "so") for each in tuples])

    seal_events()
    assert sorted(Event.objects.values_list("number", flat=True)) == list(range(1, head().number + 1))
    assert Event.objects.filter(action="tuple.curated").count() == 12
    assert list(Verification()) == []


@in_transactions
def test_concurrent_sealers_seal_each_judgment_once(monkeypatch):
    monkeypatch.setattr(sealing, "JUDGMENTS_AT_ONCE", 3)
    round = make_round(8, judgments_per_task=4, batch_size=4)
    annotators = make_annotators(round, 4)

    def work(annotator):
        while batch := next_batch(annotator, timezone.now()):
            for task in batch:
                judge(annotator, task)
                judge(annotator, task, Label.FALSE)  # a sealer may be marking the superseded row

    def seal():
        return sum(seal_judgments() for _ in range(10))

    *_, one, other = at_once(*[lambda annotator=annotator: work(annotator) for annotator in annotators], seal, seal)
    rest = seal_judgments()

    n = Judgment.objects.count()
    assert one + other + rest == n > 16
    verification = Verification()
    assert list(verification) == []
    assert verification.verified.n_rows["judgment"] == n
    lines = "\n".join(Event.objects.values_list("row_hashes", flat=True)).split()
    assert lines.count("judgment") == n


@in_transactions
def test_late_committed_judgments_are_sealed():
    """Transactions can commit out of order, so neither ids nor timestamps identify the pending rows."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    late, early = [
        (annotator, next_batch(annotator, timezone.now())) for annotator in make_annotators(make_round(2), 2)
    ]
    first, second = late[1]

    with transaction.atomic():
        judge(late[0], first)
        at_once(lambda: judge(early[0], second))  # a different task: `first` is locked
        assert at_once(seal_judgments) == [1]

    assert Judgment.objects.unsealed().count() == 1
    assert seal_judgments() == 1
    assert list(Verification()) == []


@pytest.mark.django_db
def test_sealing_reads_pending_judgments_from_their_index():
    """Check for a join: sorting by statement position takes seconds per batch after an import of millions."""
    judge_all(make_round(2), [T, T])

    with CaptureQueriesContext(connection) as queries:
        assert seal_judgments() == 2

    [taken] = [query["sql"] for query in queries if '"sealed_in" IS NULL ORDER BY' in query["sql"]]
    assert "JOIN" not in taken


@pytest.mark.django_db
def test_worker_seals_once_per_minute_or_if_batch_is_full(monkeypatch):
    now = timezone.now()
    round = make_round(8)
    [annotator] = make_annotators(round, 1)
    tasks = next_batch(annotator, now)

    for n_waiting, task in enumerate(tasks[:3]):
        judge(annotator, task)
        seal_due_judgments(now)
        assert Judgment.objects.unsealed().count() == n_waiting  # the first judgment is sealed immediately
    assert Event.objects.filter(action=sealing.SEALED).count() == 1
    monkeypatch.setattr(sealing, "JUDGMENTS_AT_ONCE", 2)
    seal_due_judgments(now)
    assert not Judgment.objects.unsealed().exists()


# Erasure


@pytest.mark.django_db
def test_erasure_removes_names_and_keeps_the_chain_valid():
    owner, person = make_member(Role.OWNER), make_researcher("olga.smirnova")
    round = make_round(3, name="pilot", by=owner, who_can_join="link")
    annotator, guest = join_round(round, person), join_round(round, name="Grace Hopper")
    for each in (annotator, guest):
        judge(each, next_batch(each, timezone.now())[0])
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
    erased_actor = Actor.objects.get(user=None)
    assert Event.objects.get(action="account.erased").sentence == f"erased the account {erased_actor}"
    assert Event.objects.filter(actor=erased_actor).count() == 2


# Append-only storage


@pytest.fixture
def triggers():
    with connection.cursor() as cursor:
        editor = SimpleNamespace(
            connection=connection, execute=lambda sql, params=(): cursor.execute(sql, params or None)
        )
        migration.allow_changes(None, editor)
        truncation.allow_truncation(None, editor)
        migration.refuse_changes(None, editor)
        truncation.refuse_truncation(None, editor)
        yield
        migration.allow_changes(None, editor)
        truncation.allow_truncation(None, editor)


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
        *(["TRUNCATE kgharvest_auditentry"] if connection.vendor == "postgresql" else []),
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(change)


@pytest.mark.django_db
def test_sealed_events_permit_erasing_account_and_free_text(triggers, researcher):
    round = make_round(2, by=researcher)
    record("panel.stopped", round, researcher, round=round, texts={"reason": "Olga asked"}, panel="p")
    seal_events()
    before = list(Event.objects.values_list("number", "hash"))

    Event.objects.update(by=None, texts=None)

    assert list(Event.objects.values_list("number", "hash")) == before
    assert list(Verification()) == []
    assert round.events.first().history_sentence == "stopped the panel p: …"


# Recording and sealing


@in_transactions
def test_rolled_back_action_leaves_no_event():
    round = make_round(1)
    n = Event.objects.count()

    with transaction.atomic():
        pause_round(round)
        assert Event.objects.count() == n + 1
        transaction.set_rollback(True)

    assert Event.objects.count() == n


@in_transactions
def test_pending_events_persist_until_sealed():
    """A process that dies before sealing loses no event: the event is committed with the action."""
    round = make_round(1)
    pause_round(round)
    assert Event.objects.unsealed().count() == 2
    assert head().number == 0

    seal_due_events(timezone.now())

    assert not Event.objects.unsealed().exists()
    assert [event.action for event in Event.objects.sealed()] == ["trail.begun", "round.opened", "round.paused"]
    assert list(Verification()) == []


@in_transactions
def test_interrupted_sealer_leaves_the_chain_unchanged(monkeypatch):
    round = make_round(1)
    seal_events()
    before = head()
    pause_round(round)
    reopen_round(round)
    hashed = []

    def die_at_second_entry(entry):
        if hashed:
            raise KeyboardInterrupt
        hashed.append(entry)
        return hashed_text(entry)

    monkeypatch.setattr(chain, "hashed_text", die_at_second_entry)
    with pytest.raises(KeyboardInterrupt):
        seal_events()
    monkeypatch.undo()

    assert head() == before
    assert Event.objects.unsealed().count() == 2
    assert seal_events() == 2
    assert list(Verification()) == []


@in_transactions
def test_recording_does_not_wait_for_the_head_lock():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    round = make_round(1)
    seal_events()

    with transaction.atomic():
        lock_head()
        at_once(lambda: pause_round(round))

    assert Event.objects.unsealed().get().action == "round.paused"


@in_transactions
def test_concurrent_sealers_seal_each_event_once(monkeypatch):
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
def test_sealer_skips_events_during_erasure():
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
def test_chain_does_not_link_account_and_annotator_code(researcher):
    round = make_round(1)
    annotator = join_round(round, researcher)

    event = Event.objects.get(kind="joined")
    assert (event.by, event.actor, event.annotator) == (researcher, "", annotator.code)
    erase_annotator(annotator)
    event.refresh_from_db()
    assert event.by is None


@pytest.mark.django_db
def test_recording_rejects_missing_facts_and_unknown_events():
    round = make_round(1)
    with pytest.raises(KeyError):
        record("round.closed", round, None, round=round)
    with pytest.raises(KeyError):
        record("round.unknown", round, None, round=round)


def test_event_types_are_unique_and_use_existing_topics():
    assert len(event_types()) == len(CORE_TYPES)
    assert {kind.topic for kind in CORE_TYPES} - {""} == set(TOPICS)
    assert all(bool(kind.kind) == bool(kind.history) and len(kind.key) <= 40 for kind in CORE_TYPES)


@on_postgresql
def test_module_passes_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout[-3000:]
