"""Append to the audit trail, and read its head.

An entry is written in the transaction of what it records, so that neither is there without the other. Whoever appends
holds the lock of the chain's head until that transaction ends: services record last, after the locks of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from kgharvest.audit.models import BEFORE_ALL, SENTENCES, Actor, AuditEntry, AuditHead, new_actor_code
from kgharvest.audit.tables import audited_tables, canonical_json, lines_of, sha256, table_lines


class Head(NamedTuple):
    """Number and hash of the last entry; 0 and zeros before the first."""

    number: int
    hash: str


def head() -> Head:
    stored = AuditHead.objects.filter(pk=AuditHead.THE_ONE).first()
    return Head(stored.number, stored.hash) if stored else Head(0, BEFORE_ALL)


def record(
    action: str, subject: Model, by, project_id: int | None = None, rows: Sequence[Model] = (), **facts: Any
) -> AuditEntry:
    """Append an entry, within the caller's transaction and as its last act.

    action: a key of SENTENCES, facts: its names and more; they name people by codes only. by: an account; None for a
    worker or the operator. project_id: None for what is the installation's. rows: of audited tables, which the entry
    speaks for besides `subject`.
    """
    SENTENCES[action].format(**facts)  # a fact that is missing is a bug of the caller, found here
    return append(action, (subject._meta.model_name, subject.pk), by, project_id, lines_of([subject, *rows]), facts)


@transaction.atomic
def append(
    action: str, subject: tuple[str, Any], by, project_id: int | None, row_lines: Iterable[str], facts: dict[str, Any]
) -> AuditEntry:
    """Append an entry. subject: its type and id."""
    actor = actor_code(by)
    last = lock_head()
    subject_type, subject_id = subject
    entry = AuditEntry(
        number=last.number + 1,
        at=timezone.now(),
        project_id=project_id,
        actor=actor,
        action=action,
        subject_type=subject_type,
        subject_id=str(subject_id),
        facts=canonical_json(facts),
        row_hashes="\n".join(row_lines),
        previous_hash=last.hash,
    )
    entry.hash = entry_hash(entry)
    entry.save(force_insert=True)
    AuditHead.objects.filter(pk=last.pk).update(number=entry.number, hash=entry.hash)
    return entry


def lock_head() -> AuditHead:
    """Return the head, locked until the transaction ends. Begins the trail if there is none."""
    last, is_new = AuditHead.objects.select_for_update().get_or_create(pk=AuditHead.THE_ONE)
    if is_new and (latest := AuditEntry.objects.last()):  # somebody deleted the head; the entries go on
        AuditHead.objects.filter(pk=last.pk).update(number=latest.number, hash=latest.hash)
        last.refresh_from_db()
    elif is_new:
        _begin()
        last.refresh_from_db()
    return last


def _begin() -> None:
    """Let the first entry speak for all decisions and reports that were made before there was a trail.

    Judgments have a column that says whether they are sealed; all others are few.
    """
    lines = [
        line
        for name, table in audited_tables().items()
        if not table.is_sealed_later
        for line in table_lines(name, table.row_hashes(table.ids()))
    ]
    append("trail.begun", ("audithead", AuditHead.THE_ONE), None, None, lines, {"n_rows": len(lines)})


def entry_hash(entry: AuditEntry) -> str:
    """Return the SHA-256 of an entry's canonical JSON (docs/audit.md says how to compute it elsewhere)."""
    return sha256(hashed_text(entry))


def hashed_text(entry: AuditEntry) -> str:
    return canonical_json([
        entry.previous_hash,
        entry.number,
        entry.at,
        entry.project_id,
        entry.actor,
        entry.action,
        entry.subject_type,
        entry.subject_id,
        entry.facts,
        sha256(entry.row_hashes),
    ])  # fmt: skip


def actor_code(user) -> str:
    """Return the code under which entries name an account; empty for None, a worker or the operator."""
    if user is None:
        return ""
    return Actor.objects.get_or_create(user=user, defaults={"code": new_actor_code()})[0].code
