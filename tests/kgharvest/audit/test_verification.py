"""Verification of the audit log reports rows altered, deleted, added, or reordered with SQL."""

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
    """Create a round with rows of every audited kind."""
    monkeypatch.setattr(services, "one_moment", nullcontext)  # PostgreSQL rejects it in a test transaction
    round = make_round(3, name="pilot", by=researcher)
    first, second, third = judge_all(round, [T, T, F], [T, F, F], [F, F, F])
    judge(first, round.tasks.get(position=0), F)  # a changed answer
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


def problems() -> list[str]:
    """Return the problems with entries and rows. Other tests cover verdicts."""
    return [sentence for sentence in Verification() if not sentence.startswith("The verdict or the counters")]


def sql(statement: str, *values) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_pending_event_covers_its_rows(round):
    curate(round.tasks.get(position=0).knowledge_tuple, "hide", "a private person")

    assert Event.objects.unsealed().exists()
    assert problems() == []


def test_unmodified_data_passes_verification(round):
    verification = Verification()

    assert list(verification) == []
    assert verification.verified.head == head()
    assert verification.verified.n_rows == {
        "judgment": 10, "exclusion": 2, "reinstatement": 1, "adjudication": 1, "curation": 1, "gold-decision": 2,
        "gold-withdrawal": 1, "report": 1, "round": 1, "stratum": 1, "statement": 3, "harvest": 1, "relation": 2,
        "account": 4, "member": 1,
    }  # fmt: skip


def test_rows_of_uninstalled_apps_are_counted_but_not_checked(round, monkeypatch):
    tables = {name: table for name, table in audited_tables().items() if name != "report"}
    monkeypatch.setattr("kgharvest.audit.verification.audited_tables", lambda: tables)
    sql("UPDATE evaluation_report SET method = 'another'")

    verification = Verification()

    assert list(verification) == []
    assert verification.verified.n_unchecked == {"report": 1}
    assert "report" not in verification.verified.n_rows


def altered(name: str, row, entry: int) -> str:
    return f"The {name} {row.pk} was altered after entry {entry}."


def problems_after(statement: str, *values) -> list[str]:
    """Execute an SQL statement, return the problems found, and roll back."""
    with transaction.atomic():
        sql(statement, *values)
        found = problems()
        transaction.set_rollback(True)
    return found


def stored(uuid: UUID):
    return uuid if connection.vendor == "postgresql" else uuid.hex


def test_altered_judgments_are_reported_for_every_column(round):
    """Include a reinstated annotator: a separate hash then covers whether the judgments count."""
    for code in round.annotators.exclude(status="excluded").values_list("code", flat=True):
        judgment = Judgment.objects.filter(annotator__code=code, superseded_by=None, task__position=0).get()
        for change in (
            "label = 'unjudgeable'", "judged_at = '2020-01-01 00:00:00'", "comment = 'no'", "seconds = 1.5",
            "is_late = NOT is_late", "is_counted = NOT is_counted",
        ):  # fmt: skip
            found = problems_after(
                f"UPDATE annotation_judgment SET {change} WHERE client_uuid = %s", stored(judgment.pk)
            )
            assert found == [altered("judgment", judgment, judgment.sealed_in)]
        found = problems_after("UPDATE annotation_annotator SET code = 'a-b' WHERE code = %s", code)
        assert altered("judgment", judgment, judgment.sealed_in) in found


def test_swapped_judgments_are_reported(round):
    """Revert a changed answer, so that the first of two judgments counts again."""
    last = Judgment.objects.exclude(superseded=None).get()
    first = last.superseded.get()
    repoint = "UPDATE annotation_judgment SET superseded_by_id = %s WHERE client_uuid = %s"

    with transaction.atomic():
        sql(repoint, stored(first.pk), stored(last.pk))
        sql(repoint, None, stored(first.pk))
        found = problems()
        transaction.set_rollback(True)

    assert set(found) == {altered("judgment", row, row.sealed_in) for row in (first, last)}


def test_deleted_judgments_are_reported(round):
    judgment = Judgment.objects.filter(task__position=2).first()

    found = problems_after("DELETE FROM annotation_judgment WHERE client_uuid = %s", stored(judgment.pk))

    assert found == [f"The judgment {judgment.pk} was deleted after entry {judgment.sealed_in}."]


def test_exclusion_marks_without_decision_are_reported(round):
    others = round.annotators.filter(exclusions=None)
    counted = Judgment.objects.counted().filter(annotator__in=others).first()
    excluded = Judgment.objects.filter(is_excluded=True).first()
    mark = "UPDATE annotation_judgment SET is_counted = %s, is_excluded = %s WHERE client_uuid = %s"

    assert problems_after(mark, False, True, stored(counted.pk)) == [altered("judgment", counted, counted.sealed_in)]
    assert problems_after(mark, True, False, stored(excluded.pk)) == []  # the exclusion may be in progress
    Exclusion.objects.update(excluded_at="2026-01-01T00:00Z")
    assert altered("judgment", excluded, excluded.sealed_in) in problems_after(mark, True, False, stored(excluded.pk))


def test_altered_statement_text_alters_its_judgments(round):
    task = round.tasks.get(position=1)

    found = problems_after("UPDATE annotation_judgmenttask SET statement = 'Fish swim .' WHERE id = %s", task.pk)

    altered_judgments = {altered("judgment", judgment, judgment.sealed_in) for judgment in task.judgments.all()}
    assert len(altered_judgments) == 3
    assert set(found) - altered_judgments == {sentence for sentence in found if f"The statement {task.pk} " in sentence}


def test_judgment_with_forged_seal_is_reported(round):
    annotator = round.annotators.create(code="a-behind")
    row = {"task": round.tasks.first(), "annotator": annotator, "label": T, "judged_at": timezone.now()}
    for entry in (2, 10**6):
        added = Judgment.objects.create(client_uuid=uuid4(), sealed_in=entry, **row)
        assert problems() == [f"The judgment {added.pk} was added without an entry in the audit log."]
        Judgment.objects.filter(pk=added.pk).delete()


def test_other_altered_and_deleted_rows_are_reported(round):
    for name, table, condition, change in (
        ("adjudication", "annotation_adjudication", "1 = 1", "label = 'false'"),
        ("exclusion", "annotation_exclusion", "1 = 1", "reason = 'none'"),
        ("reinstatement", "annotation_exclusion", "reinstated_at IS NOT NULL", "reinstated_at = '2020-01-01 00:00'"),
        ("gold-decision", "annotation_golddecision", "1 = 1", "is_confirmed = NOT is_confirmed"),
        ("gold-withdrawal", "annotation_golddecision", "withdrawn_at IS NOT NULL", "reason = 'none'"),
        ("curation", "kgharvest_curation", "1 = 1", "reason = 'none'"),
        ("report", "evaluation_report", "1 = 1", "method = 'none'"),
    ):
        found = problems_after(f"UPDATE {table} SET {change} WHERE {condition}")
        assert found
        assert all(re.fullmatch(rf"The {name} \S+ was altered after entry \d+\.", sentence) for sentence in found)
        found = problems_after(f"DELETE FROM {table} WHERE {condition}")
        assert any(re.fullmatch(rf"The {name} \S+ was deleted after entry \d+\.", sentence) for sentence in found)
    report = Report.objects.get()
    Report.objects.filter(pk=report.pk).update(document=report.document | {"n_judgments": 1000})
    assert problems() == [altered("report", report, head().number)]


def test_rows_without_entries_are_reported(round):
    exclusion, curation = Exclusion.objects.get(reinstated_at=None), Curation.objects.get()
    sql("UPDATE annotation_exclusion SET reinstated_at = '2026-01-01 00:00:00' WHERE id = %s", exclusion.pk)
    added = Curation.objects.create(knowledge_tuple_id=curation.knowledge_tuple_id, decision="restore", reason="so")

    assert problems() == [
        f"The reinstatement {exclusion.pk} was added without an entry in the audit log.",
        f"The curation {added.pk} was added without an entry in the audit log.",
    ]


def test_altered_entries_are_reported(round):
    sql("UPDATE kgharvest_auditentry SET facts = '{}' WHERE number = 3")
    sql("UPDATE kgharvest_auditentry SET actor = 'p-other' WHERE number = 4")

    actions = dict(Event.objects.values_list("number", "action"))
    assert problems() == [f"Entry 3 ({actions[3]}) was altered.", f"Entry 4 ({actions[4]}) was altered."]


def test_rehashed_entry_does_not_match_the_next_entry(round):
    entry = Event.objects.get(number=3)
    entry.facts = '{"round":"other"}'
    entry.hash = sha256(hashed_text(entry))
    entry.save()

    assert problems() == ["Entry 4 does not contain the hash of entry 3."]


def test_reordered_entries_are_reported(round):
    for number, moved in ((3, 1003), (4, 3), (1003, 4)):
        sql("UPDATE kgharvest_auditentry SET number = %s WHERE number = %s", moved, number)

    found = problems()
    assert any(sentence.startswith("Entry 3 (") for sentence in found)
    assert any(sentence.startswith("Entry 4 (") for sentence in found)


def test_deleted_entries_are_reported(round):
    last = head().number
    sql("DELETE FROM kgharvest_auditentry WHERE number IN (3, 4) OR number = %s", last)

    found = problems()
    assert {"Entries 3 to 4 are missing.", f"Entry {last} is missing at the end."} <= set(found)
    assert any("without an entry" in sentence for sentence in found)  # rows covered by the deleted entries
    assert "Entry 1 is missing." in problems_after("DELETE FROM kgharvest_auditentry WHERE number = 1")


def test_a_recomputed_chain_differs_from_the_heads_in_reports(round):
    """Full write access suffices to recompute the chain, but not to change heads recorded earlier."""
    recorded = Report.objects.get().document["audit"]
    previous = "0" * 64
    for entry in Event.objects.sealed():
        entry.previous_hash = previous
        entry.facts = entry.facts.replace("pilot", "other")
        entry.hash = previous = sha256(hashed_text(entry))
        entry.save()
    sql("UPDATE kgharvest_audithead SET hash = %s", previous)

    report = Report.objects.get()
    assert problems() == [f"Entry {recorded['number']} differs from the head recorded in report {report.pk}."]
    external_head = Head(2, "f" * 64)
    assert "Entry 2 differs from the head recorded in my diary." in list(Verification([("my diary", external_head)]))


def test_missing_head_is_reported_and_sealing_continues(round):
    sql("DELETE FROM kgharvest_audithead")

    assert "The head of the chain is missing; the last entries may also be missing." in problems()
    curate(round.tasks.get(position=0).knowledge_tuple, "hide", "more")
    seal_events()
    assert problems() == []


# Command


def test_command_prints_verified_counts_and_head(round):
    output = StringIO()
    call_command("audit", "verify", "--head", f"{head().number}:{head().hash}", stdout=output)

    assert f"{head().number} entries verified" in output.getvalue()
    assert "10 of judgment" in output.getvalue()
    assert f"head: {head().number}:{head().hash}" in output.getvalue()


def test_command_fails_on_problems_and_seals_nothing(round):
    judge_all(round, [T, T, T])  # slots freed by the exclusion
    sql("UPDATE annotation_exclusion SET reason = 'none'")
    output = StringIO()

    with pytest.raises(CommandError, match="verification failed: 2 problems"):
        call_command("audit", "verify", stdout=output)

    assert len(output.getvalue().splitlines()) == 2
    assert Judgment.objects.unsealed().count() == 3


@pytest.mark.parametrize("text", ["", "3", "x:y", "3:abc", "٣:" + "0" * 64])
def test_an_invalid_head_is_rejected(db, text):
    with pytest.raises(CommandError, match="NUMBER:HASH"):
        call_command("audit", "verify", "--head", text)


@on_postgresql
def test_module_passes_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout[-3000:]
