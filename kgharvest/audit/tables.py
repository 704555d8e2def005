"""Audited tables: the audit log stores a hash of each row, so that `audit verify` can detect later changes.

registries.AUDITED lists the tables. A hash covers columns that change only together with an event. For example, it does
not cover the name of a person, because that can be erased.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Model, Q
from django.utils.module_loading import import_string

ROWS_AT_ONCE = 1000
EVERY, NONE = Q(), Q(pk=None)
DELETED = "-"  # recorded instead of a hash if a row was deleted


def canonical_json(value: Any) -> str:
    """Return `value` as JSON text that is the same for every database.

    Keys are sorted, and times are in UTC with microseconds. A float without a fraction is written as an integer. A
    Decimal is written as a string without trailing zeros.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class AuditedTable:
    """Audited rows of `model`. columns: lookups of the columns that the hash covers.

    condition: condition that selects the audited rows. children: lookup of rows that belong to a row (a reverse foreign
    key), followed by their columns; the hash of the row covers them in the order of these columns. is_sealed_later:
    True if rows are recorded some time after their creation instead of in the same transaction. is_mutable: True if
    rows can change; each change is then recorded, and only the last recorded hash of a row must match. unfinished:
    condition of mutable rows that a job is changing, which are not compared.
    """

    is_sealed_later = False

    def __init__(
        self,
        model: type[Model],
        *columns: str,
        condition: Q = EVERY,
        children: Sequence[str] = (),
        is_mutable: bool = False,
        unfinished: Q = NONE,
    ):
        self.model = model
        self.columns = columns
        self.condition = condition
        self.children = children
        self.is_mutable = is_mutable
        self.unfinished = unfinished

    def row_hashes(self, ids: Collection[Any]) -> dict[str, str]:
        """Return a mapping from ids to current hashes, for those rows in `ids` that still exist."""
        columns = self.model._default_manager.filter(self.condition).order_by().values_list("pk", *self.columns)
        rows = (row for some in batched(ids, ROWS_AT_ONCE) for row in columns.filter(pk__in=some).iterator(100))
        return {str(row[0]): sha256(canonical_json([*row, *self._digest_of_children(row[0])])) for row in rows}

    def _digest_of_children(self, pk: Any) -> Iterable[str]:
        """Yield the SHA-256 of the children of a row, if the table has children."""
        if self.children:
            name, *columns = self.children
            of_row = self.model._meta.get_field(name)
            rows = of_row.related_model._default_manager.filter(**{of_row.field.name: pk}).order_by(*columns)
            digest = hashlib.sha256()
            for row in rows.values_list(*columns).iterator():
                digest.update(canonical_json(row).encode())
            yield digest.hexdigest()

    def may_contain(self, row: Model) -> bool:
        """Return True if `row` is a row of the model, or a row of its parent model (a job)."""
        return isinstance(row, self.model) or issubclass(self.model, type(row))

    def are_as_recorded(self, recorded: dict[str, str], number: int) -> dict[str, bool]:
        """Return, for each existing row, whether it matches its hash in entry `number`. recorded: hashes by id."""
        return {pk: recorded[pk] == row_hash for pk, row_hash in self.row_hashes(list(recorded)).items()}

    def ids(self, condition: Q | None = None) -> Iterable[str]:
        """Return the ids of all rows that must be recorded, or that satisfy a condition."""
        rows = self.model._default_manager.filter(condition or self.condition).order_by()
        return [str(pk) for pk in rows.values_list("pk", flat=True)]


@cache
def audited_tables() -> dict[str, AuditedTable]:
    """Return the audited tables by the names that entries use for them."""
    return {name: import_string(path) for name, path in settings.AUDITED.items()}


def table_lines(name: str, hashes: dict[str, str]) -> list[str]:
    return [f"{name} {pk} {row_hash}" for pk, row_hash in hashes.items()]


def recorded_rows(row_hashes: str) -> dict[str, dict[str, str]]:
    """Parse `row_hashes` into a mapping from table name to row id to hash."""
    tables: dict[str, dict[str, str]] = {}
    for line in row_hashes.splitlines():
        # Skip malformed lines; the hash of the entry reveals the alteration.
        if len(parts := line.split(" ")) == 3:
            name, pk, row_hash = parts
            tables.setdefault(name, {})[pk] = row_hash
    return tables


def batched(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch
