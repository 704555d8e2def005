"""A database owner who alters rows with SQL is detected by `audit verify` with a head recorded elsewhere.

Each kind of tampering names the row or entry that verification must report. The database is prepared once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from io import StringIO
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.judges.runs import record_run
from annotation.judging.sealing import seal_judgments
from annotation.models import Draw, Exclusion, Judgment, Label
from annotation.quality.adjudication import adjudicate
from annotation.quality.exclusion import exclude_annotator
from annotation.rounds.services import open_round, pause_round, reopen_round
from evaluation.models import Report
from evaluation.reports import services
from evaluation.reports.services import create_report
from kgharvest.accounts.projects import default_project, set_role
from kgharvest.accounts.tokens import create_token
from kgharvest.audit.heads import signed_head
from kgharvest.audit.tables import sha256
from kgharvest.events.chain import hashed_text, head, seal_all
from kgharvest.events.models import AuditHead, Event
from kgharvest.harvests.launches import record_ended_jobs
from kgharvest.knowledge.curation import curate
from kgharvest.models import Curation, ProjectMember
from kgharvest.relations.services import record_relations
from tests.factories import (
    judge_all,
    make_harvest,
    make_judge_answer,
    make_judge_run,
    make_member,
    make_relation,
    make_user,
)
from tests.postgres import on_postgresql, run_on_postgresql

T, F = Label.TRUE, Label.FALSE
EVENTS, TASKS, JUDGMENTS = "kgharvest_auditentry", "annotation_judgmenttask", "annotation_judgment"


def sql(statement: str, *values) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def uuid_in_sql(value):
    return value if connection.vendor == "postgresql" else value.hex


@pytest.fixture
def prepared(db, monkeypatch, tmp_path) -> SimpleNamespace:
    """Create a study with rows of every kind through services, and record its head in a file."""
    monkeypatch.setattr(services, "one_moment", nullcontext)  # PostgreSQL rejects it in a test transaction
    owner = make_member("owner", default_project())
    seal_all()  # the chain begins without the following rows
    viewer = make_user("viewer")
    member = set_role(default_project(), viewer, "viewer", owner)
    token = create_token(viewer, "script", "read", 30, timezone.now()).token
    relation = make_relation(seed_tuples=[[f"seed {n}", f"value {n}"] for n in range(6)])
    record_relations(relation.relation_set, [relation], owner)
    job = make_harvest([(f"head {n}", f"tail {n}") for n in range(4)], relation=relation)
    record_ended_jobs([job.pk])
    decide_on_gold(relation, {candidate.code: True for candidate in gold_candidates(relation)}, owner)
    document = {"name": "pilot", "cells": [{"job": job.pk, "n": None}], "gold_share": 0.4}
    round = open_round(document, owner, default_project())
    annotators = judge_all(round, *[[T] * round.n_tasks] * 3)
    exclude_annotator(annotators[0], "clicks at random", owner)
    judge_all(round, [T] * round.n_tasks)
    seal_judgments()
    adjudicate(round.tasks.without_gold().first(), T, uuid4(), by=owner)
    curate(round.tasks.without_gold().last().knowledge_tuple, "hide", "a private person")
    run = make_judge_run(round)
    answer = make_judge_answer(run, round.tasks.without_gold().first().knowledge_tuple, T)
    record_run(run, owner)
    report = create_report(round, owner)
    pause_round(round, owner)
    reopen_round(round, owner)
    seal_all()
    file = tmp_path / "outside.jsonl"
    file.write_text(signed_head(head(), timezone.now()) + "\n")
    rows = {"owner": owner, "viewer": viewer, "member": member, "token": token, "relation": relation, "job": job}
    rows |= {"round": round, "run": run, "answer": answer, "report": report, "file": file, "last": head().number}
    rows["statement"] = round.tasks.without_gold().first()
    rows["gold"] = round.tasks.gold().filter(judgments=None).first() or round.tasks.gold().first()
    rows["judgment"] = Judgment.objects.counted().first()
    return SimpleNamespace(**rows)


def delete_tail(of: SimpleNamespace) -> None:
    sql(f"DELETE FROM {EVENTS} WHERE number > %s", of.last - 2)


def delete_tail_and_head(of: SimpleNamespace) -> None:
    delete_tail(of)
    sql("DELETE FROM kgharvest_audithead")


def delete_tail_and_continue(of: SimpleNamespace) -> None:
    delete_tail_and_head(of)
    pause_round(of.round)
    seal_all()


def recompute_chain(of: SimpleNamespace) -> None:
    previous = "0" * 64
    for entry in Event.objects.sealed():
        entry.previous_hash, entry.facts = previous, entry.facts.replace("pilot", "other")
        entry.hash = previous = sha256(hashed_text(entry))
        entry.save()
    AuditHead.objects.update(hash=previous)


def swap_entries(of: SimpleNamespace) -> None:
    for old, new in ((3, 10**6), (4, 3), (10**6, 4)):
        sql(f"UPDATE {EVENTS} SET number = %s WHERE number = %s", new, old)


def insert_event(of: SimpleNamespace) -> None:
    entry = Event.objects.get(number=of.last)
    entry.pk, entry.number, entry.previous_hash = None, of.last + 1, entry.hash
    entry.hash = sha256(hashed_text(entry))
    entry.save(force_insert=True)


def insert_judgment(of: SimpleNamespace) -> None:
    annotator = of.round.annotators.create(code="a-forged")
    Judgment.objects.create(
        client_uuid=uuid4(), task=of.statement, annotator=annotator, label=F, judged_at=timezone.now()
    )


def in_table(table: str, change: str, row: str) -> Callable[[SimpleNamespace], None]:
    return lambda of: sql(f"UPDATE {table} SET {change} WHERE id = %s", getattr(of, row).pk)


FORGED_VERDICT = "n_true = 0, n_false = n_judgments, n_unjudgeable = 0, verdict = 'rejected'"
# Kind of tampering: how it is done, and the start of a line that verification must print
KINDS = {
    "judgment edited": (
        lambda of: sql(f"UPDATE {JUDGMENTS} SET label = 'false' WHERE client_uuid = %s", uuid_in_sql(of.judgment.pk)),
        lambda of: f"The judgment {of.judgment.pk} was altered",
    ),
    "judgment deleted": (
        lambda of: sql(f"DELETE FROM {JUDGMENTS} WHERE client_uuid = %s", uuid_in_sql(of.judgment.pk)),
        lambda of: f"The judgment {of.judgment.pk} was deleted",
    ),
    "judgment inserted": (insert_judgment, lambda of: f"The verdict or the counters of statement {of.statement.pk} "),
    "verdict forged": (
        in_table(TASKS, FORGED_VERDICT, "statement"),
        lambda of: f"The verdict or the counters of statement {of.statement.pk} ",
    ),
    "fewer judgments required": (
        in_table(TASKS, "n_wanted = 1, n_judgments = 1, n_true = 1, n_false = 0, n_unjudgeable = 0", "statement"),
        lambda of: f"The verdict or the counters of statement {of.statement.pk} ",
    ),
    "statement reworded": (
        in_table(TASKS, "statement = 'Fish swim .'", "statement"),
        lambda of: f"The statement {of.statement.pk} was altered",
    ),
    "gold answer flipped": (
        in_table(TASKS, "gold_label = CASE gold_label WHEN 'true' THEN 'false' ELSE 'true' END", "gold"),
        lambda of: f"The statement {of.gold.pk} was altered",
    ),
    "event edited": (
        lambda of: sql(f"UPDATE {EVENTS} SET facts = '{{}}' WHERE number = 3"),
        lambda of: "Entry 3 (",
    ),
    "event deleted": (lambda of: sql(f"DELETE FROM {EVENTS} WHERE number = 3"), lambda of: "Entry 3 is missing"),
    "event inserted": (insert_event, lambda of: f"Entry {of.last + 1} is after the head"),
    "event's time": (
        lambda of: sql(f"UPDATE {EVENTS} SET at = '2020-01-01 00:00:00' WHERE number = 3"),
        lambda of: "Entry 3 (",
    ),
    "event's actor": (
        lambda of: sql(f"UPDATE {EVENTS} SET actor = 'p-other' WHERE number = 3"),
        lambda of: "Entry 3 (",
    ),
    "tail deleted": (delete_tail, lambda of: f"Entries {of.last - 1} to {of.last} are missing"),
    "tail and head deleted": (delete_tail_and_head, lambda of: f"Entry {of.last} is missing"),
    "tail and head deleted, log continued": (delete_tail_and_continue, lambda of: f"Entry {of.last} "),
    "chain recomputed": (recompute_chain, lambda of: f"Entry {of.last} differs from the head"),
    "entries swapped": (swap_entries, lambda of: "Entry 3 ("),
    "exclusion edited": (
        lambda of: sql("UPDATE annotation_exclusion SET reason = 'none'"),
        lambda of: f"The exclusion {Exclusion.objects.get().pk} was altered",
    ),
    "judge answer edited": (
        in_table("annotation_judgeanswer", "label = 'false'", "answer"),
        lambda of: f"The judge-run {of.run.pk} was altered",
    ),
    "population of a stratum": (
        lambda of: sql("UPDATE annotation_stratum SET population = 1000"),
        lambda of: f"The stratum {of.round.strata.get().pk} was altered",
    ),
    "draw deleted": (
        lambda of: sql("DELETE FROM annotation_draw WHERE id = %s", Draw.objects.first().pk),
        lambda of: f"The stratum {of.round.strata.get().pk} was altered",
    ),
    "round's k": (
        in_table("annotation_round", "judgments_per_task = 5", "round"),
        lambda of: f"The round {of.round.pk} was altered",
    ),
    "report edited": (
        lambda of: Report.objects.filter(pk=of.report.pk).update(document=of.report.document | {"n_judgments": 1000}),
        lambda of: f"The report {of.report.pk} was altered",
    ),
    "score of a tuple": (
        lambda of: sql("UPDATE kgharvest_harvestedtuple SET score = -9 WHERE rank = 1"),
        lambda of: f"The harvest {of.job.pk} was altered",
    ),
    "superuser made": (
        in_table("auth_user", "is_superuser = NOT is_superuser", "viewer"),
        lambda of: f"The account {of.viewer.pk} was altered",
    ),
    "password set": (
        in_table("auth_user", "password = 'md5$x$y'", "viewer"),
        lambda of: f"The account {of.viewer.pk} was altered",
    ),
    "account inserted": (
        lambda of: type(of.viewer).objects.bulk_create([type(of.viewer)(pk=10**6, username="eve", is_superuser=True)]),
        lambda of: f"The account {10**6} was added",
    ),
    "scope of a token": (
        in_table("kgharvest_apitoken", "scope = 'write'", "token"),
        lambda of: f"The token {of.token.pk} was altered",
    ),
    "role of a member": (
        in_table("kgharvest_projectmember", "role = 'owner'", "member"),
        lambda of: f"The member {of.member.pk} was altered",
    ),
    "member inserted": (
        lambda of: ProjectMember.objects.create(pk=10**6, project=default_project(), user=make_user(), role="owner"),
        lambda of: f"The member {10**6} was added",
    ),
    "template of a relation": (
        in_table("kgharvest_relation", "statement = '<ENT0> is not <ENT1> .'", "relation"),
        lambda of: f"The relation {of.relation.pk} was altered",
    ),
    "curation deleted": (
        lambda of: sql("DELETE FROM kgharvest_curation"),
        lambda of: f"The curation {Curation.objects.first()} " if Curation.objects.exists() else "The curation ",
    ),
}


def verify(of: SimpleNamespace) -> list[str]:
    """Run `audit verify` with the head recorded outside, and return the lines that it prints. Raises CommandError."""
    output = StringIO()
    try:
        call_command("audit", "verify", "--head", str(of.file), stdout=output)
    finally:
        of.lines = output.getvalue().splitlines()
    return of.lines


def test_database_that_was_not_altered_passes(prepared):
    before = Event.objects.count(), head()

    assert "Heads recorded elsewhere: 1." in verify(prepared)
    assert (Event.objects.count(), head()) == before


def test_each_kind_of_tampering_is_detected_and_named(prepared):
    undetected = {}
    for kind, (tamper, named) in KINDS.items():
        with transaction.atomic():
            tamper(prepared)
            with pytest.raises(CommandError):
                verify(prepared)
            expected = named(prepared)
            transaction.set_rollback(True)
        if not any(line.startswith(expected) for line in prepared.lines):
            undetected[kind] = (expected, prepared.lines)

    assert undetected == {}
    assert len(KINDS) >= 20


def test_forged_verdicts_stop_the_report(prepared):
    """Twelve forged verdicts gave "accepted 0" beside an accuracy of 1.0."""
    with transaction.atomic():
        in_table(TASKS, FORGED_VERDICT, "statement")(prepared)
        with pytest.raises(services.DomainError) as refusal:
            create_report(prepared.round, prepared.owner)
        transaction.set_rollback(True)

    assert refusal.value.code == "VerdictsAltered"
    assert f"statement {prepared.statement.pk} " in str(refusal.value)


def test_verification_does_not_write(prepared):
    with transaction.atomic():
        pause_round(prepared.round, prepared.owner)
        sql("DELETE FROM kgharvest_audithead")
        with pytest.raises(CommandError):
            verify(prepared)
        assert not AuditHead.objects.exists()
        assert Event.objects.unsealed().exists()
        transaction.set_rollback(True)


def test_line_with_a_forged_head_is_reported(prepared, tmp_path):
    file, line = tmp_path / "heads.jsonl", prepared.file.read_text()
    file.write_text(line.replace('"number":', '"number":1'))

    with pytest.raises(CommandError):
        call_command("audit", "verify", "--head", str(file), stdout=(output := StringIO()))

    assert output.getvalue().startswith(f"The head in line 1 of {file} is not signed")


def test_changes_through_services_pass(prepared):
    """Changes of rights, and rows deleted with an account, are recorded."""
    prepared.viewer.is_superuser = True
    prepared.viewer.set_password("another long password")
    prepared.viewer.save()
    set_role(default_project(), prepared.viewer, "researcher", prepared.owner)
    verify(prepared)
    prepared.viewer.delete()
    verify(prepared)
    seal_all()
    verify(prepared)


@on_postgresql
def test_module_passes_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout[-3000:]
