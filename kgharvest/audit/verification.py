"""Audit log verification: recompute the hash chain and compare recorded row hashes with the current rows.

Entries are read in batches, and only 64 bits are stored per row, so three million judgments take 50 MB.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from django.db.models import QuerySet

from kgharvest.audit.tables import AuditedTable, audited_tables, recorded_rows, sha256
from kgharvest.events.chain import Head, hashed_text, head, seal_events
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
        self._has_head = AuditHead.objects.exists() or not Event.objects.sealed().exists()
        # Read the ids before sealing events. Each of these rows was committed together with its event, so its event
        # will be sealed.
        self._ids = {name: table.ids() for name, table in audited_tables().items() if not table.is_sealed_later}
        seal_events()
        self._expected = [*expected, *hook("audit_heads")()]
        self._seen: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._unchecked: dict[str, set[str]] = defaultdict(set)  # ids by name of uninstalled table
        self._named: set[tuple[str, str]] = set()  # rows already reported; several entries may record a row
        self.head = head()

    def __iter__(self) -> Iterator[str]:
        yield from self._wrong_entries()
        yield from self._wrong_heads()
        for name, table in audited_tables().items():
            yield from self._added_rows(name, table)

    @property
    def verified(self) -> Verified:
        n_rows = {name: len(np.unique(seen)) for name, seen in self._seen.items() if seen}
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
        elif beyond := Event.objects.filter(number__gt=head().number).count():
            yield f"The chain has {beyond} entries after its head."
        by_number = defaultdict(list)
        for source, expected in self._expected:
            by_number[expected.number].append((source, expected.hash))
        hashes = dict(Event.objects.filter(number__in=by_number).values_list("number", "hash")) | {0: BEFORE_ALL}
        for number, sources in by_number.items():
            for source, expected_hash in sources:
                if hashes.get(number) != expected_hash:
                    yield f"Entry {number} differs from the head recorded in {source}."

    def _wrong_rows(self, entry: Event) -> Iterator[str]:
        for name, recorded in recorded_rows(entry.row_hashes).items():
            table = audited_tables().get(name)
            if table is None:
                # The app of the table is not installed, or the entry was altered. The entry's hash reveals an
                # alteration.
                self._unchecked[name].update(recorded)
                continue
            are_right = table.are_as_recorded(recorded, entry.number)
            self._seen[name].extend(map(hash, are_right))
            for pk in recorded:
                if are_right.get(pk) or (name, pk) in self._named:
                    continue
                self._named.add((name, pk))
                yield f"The {name} {pk} was {'altered' if pk in are_right else 'deleted'} after entry {entry.number}."

    def _added_rows(self, name: str, table: AuditedTable) -> Iterator[str]:
        """Yield an error for each row that no entry of the audit log records."""
        seen = np.unique(self._seen[name])
        if table.is_sealed_later and table.n_sealed(self.head.number) == len(seen):
            return
        ids = table.ids_sealed() if table.is_sealed_later else self._ids[name]
        recorded = set(seen.tolist())
        added = [pk for pk in ids if hash(pk) not in recorded]
        # Rows can also be recorded by locked events, which have not been sealed.
        pending = added and {
            hash(pk) for event in Event.objects.unsealed() for pk in recorded_rows(event.row_hashes).get(name, ())
        }
        for pk in added:
            if hash(pk) not in pending:
                yield f"The {name} {pk} was added without an entry in the audit log."


def entries(first: int, last: int) -> str:
    return f"Entry {first} is" if first == last else f"Entries {first} to {last} are"


def stream(entries: QuerySet[Event]) -> Iterator[Event]:
    """Yield entries in order. They are read in batches, which does not require database cursors."""
    after = 0
    while batch := list(entries.filter(number__gt=after).order_by("number")[:ENTRIES_AT_ONCE]):
        yield from batch
        after = batch[-1].number
