"""Whatever is altered, deleted, added or reordered by SQL, behind the services, is found and named."""

from __future__ import annotations

import re
from contextlib import nullcontext
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates, withdraw_gold
from annotation.judging.sealing import seal_judgments
from annotation.models import Exclusion, GoldDecision, Judgment, Label
from annotation.quality.adjudication import adjudicate
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from evaluation.models import Report
from evaluation.reports import services
from evaluation.reports.services import create_report
from kgharvest.audit.tables import audited_tables, sha256
from kgharvest.audit.verification import Verification
from kgharvest.events.chain import Head, hashed_text, head, seal_events
from kgharvest.events.models import Event
from kgharvest.knowledge.curation import curate
from kgharvest.models import Curation
from tests.factories import judge, judge_all, make_relation, make_round
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = pytest.mark.django_db

T, F = Label.TRUE, Label.FALSE


@pytest.fixture
def round(researcher, monkeypatch):
    """A round in which something of every audited kind has happened."""
    monkeypatch.setattr(services, "one_moment", nullcontext)  # which PostgreSQL refuses within a test's transaction
    round = make_round(3, name="pilot", by=researcher)
    first, second, third = judge_all(round, [T, T, F], [T, F, F], [F, F, F])
    judge(first, round.tasks.get(position=0), F)  # a change of mind
    seal_judgments()
    exclude_annotator(second, "clicks at random", researcher)
    reinstate_annotator(second, researcher)
    exclude_annotator(third, "is no person", researcher)
    adjudicate(round.tasks.get(position=1), T, uuid4(), by=researcher, comment="looked up")
    curate(round.tasks.get(position=2).knowledge_tuple, "hide", "a private person")
    relation = make_relation()
    one, other = gold_candidates(relation)[:2]
    decide_on_gold(relation, {one.code: True, other.code: False}, researcher)
    withdraw_gold(GoldDecision.objects.first(), "true after all")
    create_report(round, researcher)
    seal_events()
    return round


def wrong() -> list[str]:
    return list(Verification())


def sql(statement: str, *values) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_a_pending_event_speaks_for_its_rows(round, monkeypatch):
    curate(round.tasks.get(position=0).knowledge_tuple, "hide", "a private person")
    monkeypatch.setattr("kgharvest.audit.verification.seal_events", lambda: None)  # as if its event was locked

    assert Event.objects.unsealed().exists()
    assert wrong() == []


def test_what_only_services_did_is_right(round):
    verification = Verification()

    assert list(verification) == []
    assert verification.verified.head == head()
    assert verification.verified.n_rows == {
        "judgment": 10, "exclusion": 2, "reinstatement": 1, "adjudication": 1, "curation": 1, "gold-decision": 2,
        "gold-withdrawal": 1, "report": 1,
    }  # fmt: skip


def test_rows_of_a_table_whose_app_is_not_installed_are_counted_and_not_checked(round, monkeypatch):
    tables = {name: table for name, table in audited_tables().items() if name != "report"}
    monkeypatch.setattr("kgharvest.audit.verification.audited_tables", lambda: tables)
    sql("UPDATE evaluation_report SET method = 'another'")

    verification = Verification()

    assert list(verification) == []
    assert verification.verified.n_unchecked == {"report": 1}
    assert "report" not in verification.verified.n_rows


def altered(name: str, row, entry: int) -> str:
    return f"The {name} {row.pk} was altered after entry {entry}."


def wrong_after(statement: str, *values) -> list[str]:
    """Return what is wrong after a statement of SQL, which is then taken back."""
    with transaction.atomic():
        sql(statement, *values)
        found = wrong()
        transaction.set_rollback(True)
    return found


def stored(uuid: UUID):
    return uuid if connection.vendor == "postgresql" else uuid.hex


def test_an_altered_judgment_is_named_whatever_was_altered(round):
    """Of somebody who was reinstated, too: what their judgments count for has a hash of its own then."""
    for code in round.annotators.exclude(status="excluded").values_list("code", flat=True):
        judgment = Judgment.objects.filter(annotator__code=code, superseded_by=None, task__position=0).get()
        for change in (
            "label = 'unjudgeable'", "judged_at = '2020-01-01 00:00:00'", "comment = 'no'", "seconds = 1.5",
            "is_late = NOT is_late", "is_counted = NOT is_counted",
        ):  # fmt: skip
            found = wrong_after(f"UPDATE annotation_judgment SET {change} WHERE client_uuid = %s", stored(judgment.pk))
            assert found == [altered("judgment", judgment, judgment.sealed_in)]
        found = wrong_after("UPDATE annotation_annotator SET code = 'a-b' WHERE code = %s", code)
        assert altered("judgment", judgment, judgment.sealed_in) in found


def test_judgments_in_each_others_place_are_named(round):
    """A mind that was changed is changed back: of two judgments the first one counts."""
    last = Judgment.objects.exclude(superseded=None).get()
    first = last.superseded.get()
    repoint = "UPDATE annotation_judgment SET superseded_by_id = %s WHERE client_uuid = %s"

    with transaction.atomic():
        sql(repoint, stored(first.pk), stored(last.pk))
        sql(repoint, None, stored(first.pk))
        found = wrong()
        transaction.set_rollback(True)

    assert set(found) == {altered("judgment", row, row.sealed_in) for row in (first, last)}


def test_deleted_judgments_are_named(round):
    judgment = Judgment.objects.filter(task__position=2).first()

    found = wrong_after("DELETE FROM annotation_judgment WHERE client_uuid = %s", stored(judgment.pk))

    assert found == [f"The judgment {judgment.pk} was deleted after entry {judgment.sealed_in}."]


def test_marks_without_a_decision_are_named(round):
    others = round.annotators.filter(exclusions=None)
    counted = Judgment.objects.counted().filter(annotator__in=others).first()
    excluded = Judgment.objects.filter(is_excluded=True).first()
    mark = "UPDATE annotation_judgment SET is_counted = %s, is_excluded = %s WHERE client_uuid = %s"

    assert wrong_after(mark, False, True, stored(counted.pk)) == [altered("judgment", counted, counted.sealed_in)]
    assert wrong_after(mark, True, False, stored(excluded.pk)) == []  # the exclusion may be at work right now
    Exclusion.objects.update(excluded_at="2026-01-01T00:00Z")
    assert altered("judgment", excluded, excluded.sealed_in) in wrong_after(mark, True, False, stored(excluded.pk))


def test_a_statement_that_reads_otherwise_alters_its_judgments(round):
    task = round.tasks.get(position=1)

    found = wrong_after("UPDATE annotation_judgmenttask SET statement = 'Fish swim .' WHERE id = %s", task.pk)

    assert set(found) == {altered("judgment", judgment, judgment.sealed_in) for judgment in task.judgments.all()}
    assert len(found) == 3


def test_a_judgment_that_only_claims_to_be_sealed_is_named(round):
    annotator = round.annotators.create(code="a-behind")
    row = {"task": round.tasks.first(), "annotator": annotator, "label": T, "judged_at": timezone.now()}
    for entry in (2, 10**6):
        added = Judgment.objects.create(client_uuid=uuid4(), sealed_in=entry, **row)
        assert wrong() == [f"The judgment {added.pk} was added without an entry in the audit log."]
        Judgment.objects.filter(pk=added.pk).delete()


def test_other_altered_and_deleted_rows_are_named(round):
    for name, table, where, change in (
        ("adjudication", "annotation_adjudication", "1 = 1", "label = 'false'"),
        ("exclusion", "annotation_exclusion", "1 = 1", "reason = 'none'"),
        ("reinstatement", "annotation_exclusion", "reinstated_at IS NOT NULL", "reinstated_at = '2020-01-01 00:00'"),
        ("gold-decision", "annotation_golddecision", "1 = 1", "is_confirmed = NOT is_confirmed"),
        ("gold-withdrawal", "annotation_golddecision", "withdrawn_at IS NOT NULL", "reason = 'none'"),
        ("curation", "kgharvest_curation", "1 = 1", "reason = 'none'"),
        ("report", "evaluation_report", "1 = 1", "method = 'none'"),
    ):
        found = wrong_after(f"UPDATE {table} SET {change} WHERE {where}")
        assert found
        assert all(re.fullmatch(rf"The {name} \S+ was altered after entry \d+\.", sentence) for sentence in found)
        found = wrong_after(f"DELETE FROM {table} WHERE {where}")
        assert any(re.fullmatch(rf"The {name} \S+ was deleted after entry \d+\.", sentence) for sentence in found)
    report = Report.objects.get()
    Report.objects.filter(pk=report.pk).update(document=report.document | {"n_judgments": 1000})
    assert wrong() == [altered("report", report, head().number)]


def test_rows_without_entries_are_named(round):
    exclusion, curation = Exclusion.objects.get(reinstated_at=None), Curation.objects.get()
    sql("UPDATE annotation_exclusion SET reinstated_at = '2026-01-01 00:00:00' WHERE id = %s", exclusion.pk)
    added = Curation.objects.create(knowledge_tuple_id=curation.knowledge_tuple_id, decision="restore", reason="so")

    assert wrong() == [
        f"The reinstatement {exclusion.pk} was added without an entry in the audit log.",
        f"The curation {added.pk} was added without an entry in the audit log.",
    ]


def test_altered_entries_are_named(round):
    sql("UPDATE kgharvest_auditentry SET facts = '{}' WHERE number = 3")
    sql("UPDATE kgharvest_auditentry SET actor = 'p-other' WHERE number = 4")

    actions = dict(Event.objects.values_list("number", "action"))
    assert wrong() == [f"Entry 3 ({actions[3]}) was altered.", f"Entry 4 ({actions[4]}) was altered."]


def test_an_entry_with_a_new_hash_of_its_own_does_not_fit_the_next(round):
    entry = Event.objects.get(number=3)
    entry.facts = '{"round":"other"}'
    entry.hash = sha256(hashed_text(entry))
    entry.save()

    assert wrong() == ["Entry 4 does not contain the hash of entry 3."]


def test_reordered_entries_are_named(round):
    for number, moved in ((3, 1003), (4, 3), (1003, 4)):
        sql("UPDATE kgharvest_auditentry SET number = %s WHERE number = %s", moved, number)

    found = wrong()
    assert any(sentence.startswith("Entry 3 (") for sentence in found)
    assert any(sentence.startswith("Entry 4 (") for sentence in found)


def test_deleted_entries_are_named(round):
    last = head().number
    sql("DELETE FROM kgharvest_auditentry WHERE number = 1 OR number IN (3, 4) OR number = %s", last)

    found = wrong()
    assert {"Entry 1 is missing.", "Entries 3 to 4 are missing.", f"Entry {last} is missing at the end."} <= set(found)
    assert any("without an entry" in sentence for sentence in found)  # whatever the lost entries spoke for


def test_a_recomputed_chain_differs_from_the_heads_in_reports(round):
    """Whoever can write everything can make another chain; what was printed of the old one stays."""
    said = Report.objects.get().document["audit"]
    previous = "0" * 64
    for entry in Event.objects.sealed():
        entry.previous_hash = previous
        entry.facts = entry.facts.replace("pilot", "other")
        entry.hash = previous = sha256(hashed_text(entry))
        entry.save()
    sql("UPDATE kgharvest_audithead SET hash = %s", previous)

    report = Report.objects.get()
    assert wrong() == [f"Entry {said['number']} differs from the head recorded in report {report.pk}."]
    known_elsewhere = Head(2, "f" * 64)
    assert "Entry 2 differs from the head recorded in my diary." in list(Verification([("my diary", known_elsewhere)]))


def test_a_missing_head_is_named_and_the_chain_goes_on(round):
    sql("DELETE FROM kgharvest_audithead")

    assert "The head of the chain is missing; the last entries may also be missing." in wrong()
    curate(round.tasks.get(position=0).knowledge_tuple, "hide", "more")
    seal_events()
    assert wrong() == []


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_what_was_verified(round):
    output = StringIO()
    call_command("audit", "verify", "--head", f"{head().number}:{head().hash}", stdout=output)

    assert f"{head().number} entries verified" in output.getvalue()
    assert "10 of judgment" in output.getvalue()
    assert f"head: {head().number}:{head().hash}" in output.getvalue()


def test_the_command_seals_names_and_fails(round):
    judge_all(round, [T, T, T])  # of slots that the exclusion freed
    assert Judgment.objects.unsealed().exists()
    sql("UPDATE annotation_exclusion SET reason = 'none'")
    output = StringIO()

    with pytest.raises(CommandError, match="verification failed: 2 problems"):
        call_command("audit", "verify", stdout=output)

    assert len(output.getvalue().splitlines()) == 2
    assert not Judgment.objects.unsealed().exists()


@pytest.mark.parametrize("text", ["", "3", "x:y", "3:abc", "٣:" + "0" * 64])
def test_an_invalid_head_is_rejected(db, text):
    with pytest.raises(CommandError, match="Use NUMBER:HASH"):
        call_command("audit", "verify", "--head", text)


@on_postgresql
def test_all_of_this_holds_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout[-3000:]
