"""Audit log verification: recompute the hash chain and compare recorded row hashes with the current rows.

Verification only reads. Entries are read in batches, and only 64 bits are stored per row, so three million judgments
take 50 MB. Mutable rows take about 300 bytes each.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from kgharvest.audit.tables import DELETED, ROWS_AT_ONCE, AuditedTable, audited_tables, batched, recorded_rows, sha256
from kgharvest.events.chain import Head, begun_tables, hashed_text, head
from kgharvest.events.models import BEFORE_ALL, AuditHead, Event
from kgharvest.registries import hook

ENTRIES_AT_ONCE = 20


class Verified(NamedTuple):
    """Scope of a verification. head: last verified entry. n_rows: number of verified rows by table.

    n_unchecked: number of rows that were not verified because their table's app is not installed, by table.
    """

    head: Head
    n_rows: Mapping[str, int]
    n_unchecked: Mapping[str, int]


class Verification:
    """Iterable of errors, one sentence each. Afterwards, `verified` describes the scope.

    expected: (source, head) pairs that were stored elsewhere. The heads in reports are always compared as well.
    """

    def __init__(self, expected: Iterable[tuple[str, Head]] = ()):
        # Read the ids before the head. Each of these rows was committed together with its event. If this event is not
        # sealed yet, it is among the pending events, which are read last.
        self._ids = {name: table.ids() for name, table in audited_tables().items() if not table.is_sealed_later}
        self._begun = begun_tables()
        last = Event.objects.sealed().last()
        self._has_head = AuditHead.objects.filter(pk=AuditHead.THE_ONE).exists() or last is None
        self.head = head() if self._has_head or last is None else Head(last.number, last.hash)
        self._expected = [*expected, *hook("audit_heads")()]
        self._seen: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._latest: dict[str, dict[str, tuple[str, int | None]]] = defaultdict(dict)  # hash and entry of mutable rows
        self._unchecked: dict[str, set[str]] = defaultdict(set)  # ids by name of uninstalled table
        self._named: set[tuple[str, str]] = set()  # rows already reported; several entries may record a row

    def __iter__(self) -> Iterator[str]:
        yield from self._wrong_entries()
        yield from self._wrong_heads()
        for event in self._pending_events():
            yield from self._wrong_rows(event)
        for name, table in audited_tables().items():
            yield from self._changed_rows(name, table)
            yield from self._added_rows(name, table)
        for path in settings.AUDIT_CHECKS:
            yield from import_string(path)()

    @property
    def verified(self) -> Verified:
        n_rows = {name: len(np.unique(seen)) for name, seen in self._seen.items() if seen}
        for name, latest in self._latest.items():
            n_rows[name] = sum(row_hash != DELETED for row_hash, _ in latest.values())
        return Verified(self.head, n_rows, {name: len(ids) for name, ids in self._unchecked.items()})

    def _wrong_entries(self) -> Iterator[str]:
        last = Head(0, BEFORE_ALL)
        for entry in stream(Event.objects.filter(number__lte=self.head.number)):
            if entry.number != last.number + 1:
                yield f"{entries(last.number + 1, entry.number - 1)} missing."
            elif entry.previous_hash != last.hash:
                yield f"Entry {entry.number} does not contain the hash of entry {last.number}."
            if entry.hash != sha256(hashed_text(entry)):
                yield f"Entry {entry.number} ({entry.action}) was altered."
            yield from self._wrong_rows(entry)
            last = Head(entry.number, entry.hash)
        if last.number < self.head.number:
            yield f"{entries(last.number + 1, self.head.number)} missing at the end."
        elif last.hash != self.head.hash:
            yield f"The head of the chain does not have the hash of entry {last.number}."

    def _wrong_heads(self) -> Iterator[str]:
        if not self._has_head:
            yield "The head of the chain is missing; the last entries may also be missing."
        for number in Event.objects.filter(number__gt=head().number).values_list("number", flat=True):
            yield f"Entry {number} is after the head of the chain."
        by_number = defaultdict(list)
        for source, expected in self._expected:
            by_number[expected.number].append((source, expected.hash))
        hashes = {0: BEFORE_ALL}
        for numbers in batched(by_number, ROWS_AT_ONCE):
            hashes |= dict(Event.objects.filter(number__in=numbers).values_list("number", "hash"))
        for number, sources in by_number.items():
            for source, expected_hash in sources:
                if number not in hashes:
                    yield f"Entry {number} is missing. It is recorded in {source}."
                elif hashes[number] != expected_hash:
                    yield f"Entry {number} differs from the head recorded in {source}."

    def _wrong_rows(self, entry: Event) -> Iterator[str]:
        for name, recorded in recorded_rows(entry.row_hashes).items():
            table = audited_tables().get(name)
            if table is None:
                # The app of the table is not installed, or the entry was altered. The entry's hash reveals an
                # alteration.
                self._unchecked[name].update(recorded)
                continue
            if table.is_mutable:
                self._latest[name].update((pk, (row_hash, entry.number)) for pk, row_hash in recorded.items())
                self._seen[name].extend(map(hash, recorded))
                continue
            are_right = table.are_as_recorded(recorded, entry.number)
            self._seen[name].extend(map(hash, are_right))
            for pk in recorded:
                if are_right.get(pk) or (name, pk) in self._named:
                    continue
                self._named.add((name, pk))
                yield changed(name, pk, pk in are_right, entry.number)

    def _changed_rows(self, name: str, table: AuditedTable) -> Iterator[str]:
        """Yield an error for each row of a mutable table that differs from its last recorded hash."""
        latest = self._latest.get(name, {})
        hashes = table.row_hashes(list(latest))
        wrong = {pk for pk, (row_hash, _) in latest.items() if hashes.get(pk, DELETED) != row_hash}
        if wrong:
            wrong -= {pk for pk, row_hash in self._pending(name) if hashes.get(pk, DELETED) == row_hash}
            wrong -= set(table.ids(table.unfinished))
        for pk in sorted(wrong):
            yield changed(name, pk, pk in hashes, latest[pk][1])

    def _pending_events(self) -> Iterator[Event]:
        """Yield the events that are not sealed, or that were sealed since the head was read."""
        pending = Event.objects.filter(Q(hash=None) | Q(number__gt=self.head.number))
        return pending.order_by("pk").iterator(ENTRIES_AT_ONCE)

    def _pending(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the row ids and hashes of pending events of this moment."""
        for event in self._pending_events():
            yield from recorded_rows(event.row_hashes).get(name, {}).items()

    def _added_rows(self, name: str, table: AuditedTable) -> Iterator[str]:
        """Yield an error for each row that no entry of the audit log records."""
        if name not in self._begun and not table.is_sealed_later:
            return  # the sealer will record the existing rows
        seen = np.unique(self._seen[name])
        if table.is_sealed_later and table.n_sealed(self.head.number) == len(seen):
            return
        ids = table.ids_sealed() if table.is_sealed_later else self._ids[name]
        recorded = set(seen.tolist())
        added = [pk for pk in ids if hash(pk) not in recorded]
        pending = {hash(pk) for pk, _ in self._pending(name)} if added else set()
        for pk in added:
            if hash(pk) not in pending:
                yield f"The {name} {pk} was added without an entry in the audit log."


def changed(name: str, pk: str, exists: bool, number: int | None) -> str:
    after = "its event, which is pending" if number is None else f"entry {number}"
    return f"The {name} {pk} was {'altered' if exists else 'deleted'} after {after}."


def entries(first: int, last: int) -> str:
    return f"Entry {first} is" if first == last else f"Entries {first} to {last} are"


def stream(entries: QuerySet[Event]) -> Iterator[Event]:
    """Yield entries in order. They are read in batches, which does not require database cursors."""
    after = 0
    while batch := list(entries.filter(number__gt=after).order_by("number")[:ENTRIES_AT_ONCE]):
        yield from batch
        after = batch[-1].number
