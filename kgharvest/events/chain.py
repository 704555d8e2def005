"""Hash chain over the events: seal events in batches, and read the head.

Events are not yet sealed when they are committed. A sealer locks the head and adds the visible events to the chain in
the order of their ids. Events that are committed later are sealed in a later batch, regardless of their ids.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone

from kgharvest.audit.tables import audited_tables, batched, canonical_json, sha256, table_lines
from kgharvest.events.models import BEFORE_ALL, AuditHead, Event
from kgharvest.registries import hook

EVENTS_AT_ONCE = 500
BATCHES_AT_ONCE = 10  # maximum number of events per run of the periodic task, because other tasks wait until it ends
LINES_AT_ONCE = 50_000  # maximum number of rows of an entry (4 MB)
SEALED_COLUMNS = ("number", "previous_hash", "hash")
# Audited tables of releases whose entry trail.begun does not list them
FIRST_TABLES = (
    "judgment", "adjudication", "exclusion", "reinstatement", "withdrawal", "gold-decision", "gold-withdrawal",
    "curation", "report", "payment", "preregistration",
)  # fmt: skip


class Head(NamedTuple):
    """Number and hash of the last entry. Before the first entry, the number is 0 and the hash consists of zeros."""

    number: int
    hash: str


def head() -> Head:
    """Return the stored head. Call `seal_all` first to include pending events."""
    stored = AuditHead.objects.filter(pk=AuditHead.THE_ONE).first()
    return Head(stored.number, stored.hash) if stored else Head(0, BEFORE_ALL)


def seal_all() -> None:
    """Seal the pending judgments and events of the installation."""
    hook("seal")()
    seal_events()


def seal_due_events(now: datetime) -> None:
    """Seal pending events. A periodic task of every worker."""
    seal_events(most=BATCHES_AT_ONCE * EVENTS_AT_ONCE)


def seal_events(most: int | None = None) -> int:
    """Seal pending events in batches and return their number. Several sealers may run at once.

    most: approximate maximum number of events, or None for all. Events that are being committed or erased are sealed
    later.
    """
    n_sealed = 0
    begin_tables()
    while (most is None or n_sealed < most) and Event.objects.unsealed().exists():
        with transaction.atomic():
            last = lock_head()
            # Skip locked rows. Otherwise, an erasure and a sealer that wait for each other's rows would deadlock.
            unlocked = Event.objects.unsealed().select_for_update(of=("self",), no_key=True, skip_locked=True)
            events = list(unlocked[:EVENTS_AT_ONCE])
            _chain(last, events)
            Event.objects.bulk_update(events, SEALED_COLUMNS, batch_size=100)
        n_sealed += len(events)
        if len(events) < EVENTS_AT_ONCE:
            break
    return n_sealed


@transaction.atomic
def append(
    action: str, subject: tuple[str, Any], project_id: int | None, row_lines: Iterable[str], facts: dict[str, Any]
) -> Event:
    """Append a system event and seal it immediately, for callers that need its number."""
    last = lock_head()
    event = Event(
        at=timezone.now(),
        project_id=project_id,
        action=action,
        subject_type=subject[0],
        subject_id=str(subject[1]),
        facts=canonical_json(facts),
        row_hashes="\n".join(row_lines),
    )
    _chain(last, [event])
    event.save(force_insert=True)
    return event


def _chain(last: AuditHead, events: Iterable[Event]) -> None:
    """Set the numbers and hashes of events, and move the locked head to the last of them."""
    for event in events:
        event.number, event.previous_hash = last.number + 1, last.hash
        event.hash = sha256(hashed_text(event))
        last.number, last.hash = event.number, event.hash
    last.save()


def lock_head() -> AuditHead:
    """Lock the head until the transaction ends, and return it. If there is no chain, start it."""
    last, is_new = AuditHead.objects.select_for_update().get_or_create(pk=AuditHead.THE_ONE)
    if is_new and (latest := Event.objects.sealed().last()):  # the head was deleted, but entries exist
        AuditHead.objects.filter(pk=last.pk).update(number=latest.number, hash=latest.hash)
        append("trail.head_restored", ("audithead", AuditHead.THE_ONE), None, (), {"entry": latest.number})
        last.refresh_from_db()
    elif is_new:
        _record_tables("trail.begun", audited_tables())
        last.refresh_from_db()
    return last


@transaction.atomic
def begin_tables() -> None:
    """Record the existing rows of tables that this release, or a newly installed app, added to the audited tables."""
    if Event.objects.sealed().exists() and audited_tables().keys() - begun_tables():
        lock_head()
        if new := audited_tables().keys() - begun_tables():  # another sealer may have recorded them
            _record_tables("trail.extended", new)


def _record_tables(action: str, names: Iterable[str]) -> None:
    """Append an entry that records all rows of these tables. A column of the judgments says whether they are sealed."""
    tables = {name: table for name in sorted(names) if not (table := audited_tables()[name]).is_sealed_later}
    hashes = {name: table.row_hashes(table.ids()) for name, table in tables.items()}
    lines = [line for name, row_hashes in hashes.items() for line in table_lines(name, row_hashes)]
    for some in [*batched(lines, LINES_AT_ONCE)] or [[]]:
        facts = {"n_rows": len(some), "tables": sorted(names)}
        append(action, ("audithead", AuditHead.THE_ONE), None, some, facts)


def begun_tables() -> set[str]:
    """Return the names of the tables whose existing rows are recorded."""
    entries = Event.objects.filter(action__in=("trail.begun", "trail.extended")).values_list("facts", flat=True)
    return {name for facts in entries for name in json.loads(facts).get("tables", FIRST_TABLES)}


def hashed_text(entry: Event) -> str:
    """Return an entry's canonical JSON, whose SHA-256 is the hash of the entry. docs/audit.md describes the format."""
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
