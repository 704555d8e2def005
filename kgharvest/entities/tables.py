"""Entity tables of relation sets: import from files, and canonicalization of entities in stored and exported tuples.

Tuples with the same canonical `entities` are one knowledge tuple, which is judged once. `surface` stores the spelling
used in each harvest.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import islice
from typing import NamedTuple, TypeVar

from django.db import transaction

from kgharvest.bulk.file_reading import CONTROL, lines_of
from kgharvest.bulk.insert import insert_rows
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.entities.canonical_form import canonical_form
from kgharvest.entities.models import EntityName, EntityTable
from kgharvest.errors import BadEntry, Faults
from kgharvest.knowledge.tuple_store import TupleRow
from kgharvest.relations.models import Relation, RelationSet
from kgharvest.relations.services import check_can_edit

SAME_FACT = "same_fact"  # reason for which duplicates in a harvest are rejected
LONGEST_ID = 200
MOST_NAMES = 1_000_000
NAMES_AT_ONCE = 500  # maximum number of names per query
ALIAS_SEPARATOR = "|"
HEADER = ("label", "aliases", "id")
WRONG_SEPARATORS = ",;|"  # separators that are often used by mistake instead of tabs

Canonical = Callable[[str], str]
Entities = Sequence[str]
Row = TypeVar("Row")


class Names(NamedTuple):
    """Content of a label file. by_name: (label, id) by case-folded name.

    n_aliases: number of unambiguous names that are not labels. n_ambiguous: number of names with several labels or ids.
    Ambiguous names are not in by_name.
    """

    by_name: dict[str, tuple[str, str]]
    n_labels: int
    n_aliases: int
    n_ambiguous: int


def parse_names(content: bytes, source: str) -> Names:
    """Parse a file with an optional header and lines of tab-separated label, aliases (separated by |), and id.

    Aliases and id are optional. A label always denotes itself, even if it is also an alias of another label. Other
    names with two labels are ambiguous, and so are labels with two ids. Raises ImportRefused with all invalid lines.
    """
    faults = Faults()
    ids: dict[str, dict[tuple[str, str], None]] = {}
    aliases: dict[str, dict[tuple[str, str], None]] = {}
    for number, line in enumerate(lines_of(BytesIO(content), source), start=1):
        cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
        if not any(cells) or (number == 1 and tuple(cell.casefold() for cell in cells) == HEADER[: len(cells)]):
            continue
        if number == 1 and (separator := _wrong_separator(cells)):
            faults.add(BadEntry("line 1", f"the header has {separator!r} between its cells; use tabs"))
            break
        if reason := _line_error(cells):
            faults.add(BadEntry(f"line {number}", reason))
            continue
        label, label_aliases, identifier = (*cells, "", "")[:3]
        ids.setdefault(label.casefold(), {})[label, identifier] = None
        for alias in filter(None, map(str.strip, label_aliases.split(ALIAS_SEPARATOR))):
            aliases.setdefault(alias.casefold(), {})[label, identifier] = None
    if not ids and not faults.n:
        faults.add(BadEntry("the file", "contains no labels"))
    if len(ids.keys() | aliases.keys()) > MOST_NAMES:
        faults.add(BadEntry("the file", f"has more than {MOST_NAMES:,} names; remove names that do not occur"))
    faults.refuse(source)
    all_names = {**aliases, **ids}
    by_name = {name: next(iter(labels)) for name, labels in all_names.items() if len(labels) == 1}
    return Names(by_name, len(ids), len(by_name.keys() - ids.keys()), len(all_names) - len(by_name))


def _wrong_separator(cells: Sequence[str]) -> str | None:
    """Return the separator of a header that uses another separator than tabs.

    Without this check, each line would become a label.
    """
    for separator in WRONG_SEPARATORS:
        names = tuple(name.strip(' "') for name in cells[0].casefold().split(separator))
        if 1 < len(names) <= len(HEADER) and names == HEADER[: len(names)]:
            return separator
    return None


def _line_error(cells: Sequence[str]) -> str | None:
    if len(cells) > len(HEADER):
        return f"has {len(cells)} cells; expected label, aliases, id"
    if not cells[0]:
        return "has no label"
    names = [cells[0], *(cells[1].split(ALIAS_SEPARATOR) if len(cells) > 1 else [])]
    if any(len(name) > LONGEST_ENTITY for name in names):
        return f"has a name of more than {LONGEST_ENTITY} characters"
    if len(cells) == len(HEADER) and len(cells[2]) > LONGEST_ID:
        return f"has an id of more than {LONGEST_ID} characters"
    return "has a control character" if any(map(CONTROL.search, cells)) else None


@transaction.atomic
def save_table(
    relation_set: RelationSet, without_articles: bool, in_singular: bool, file: tuple[str, bytes] | None = None, by=None
) -> EntityTable:
    """Create or change the entity table of a set.

    file: name and content of the label file, or None to keep the current names.

    Raises SetIsShipped, NotAllowed, or ImportRefused. Nothing is stored in these cases.
    """
    check_can_edit(relation_set, by)
    table = EntityTable.objects.filter(relation_set=relation_set).first() or EntityTable(relation_set=relation_set)
    table.without_articles, table.in_singular, table.changed_by = without_articles, in_singular, by
    if file is None:
        table.save()
    else:
        source, content = file
        names = parse_names(content, source)
        table.source, table.sha256 = source[:255], hashlib.sha256(content).hexdigest()
        table.n_labels, table.n_aliases, table.n_ambiguous = names.n_labels, names.n_aliases, names.n_ambiguous
        table.save()
        table.names.all().delete()
        rows = ((table.pk, name, label, identifier) for name, (label, identifier) in names.by_name.items())
        insert_rows(EntityName, ("table", "name", "label", "identifier"), rows)
    return table


@transaction.atomic
def delete_table(relation_set: RelationSet, by=None) -> None:
    """Delete the entity table of a set. Stored tuples do not change. Raises SetIsShipped or NotAllowed."""
    check_can_edit(relation_set, by)
    EntityTable.objects.filter(relation_set=relation_set).delete()


def table_of(relation: Relation) -> EntityTable | None:
    return EntityTable.objects.filter(relation_set=relation.relation_set_id).first()


def canonicalizer(relation: Relation) -> Canonical | None:
    """Return a function that maps an entity of the relation to its canonical form, or None if the set has no table.

    If the table contains the entity or one of its rule-based forms, the canonical form is the case-folded label.
    Otherwise, it is the rule-based form.
    """
    table = table_of(relation)
    return table and _canonicalizer(table, None)


def _canonicalizer(table: EntityTable, entities: Iterable[str] | None) -> Canonical:
    """Return the canonicalizer of a table.

    entities: all entities that will be canonicalized. Only their names are loaded. If None, all names are loaded.
    """

    def forms_of(entity: str) -> list[str]:
        without_articles, in_singular = table.without_articles, table.in_singular
        steps = [(False, False), (without_articles, False), (without_articles, in_singular)]
        return [canonical_form(entity, *step) for step in steps]

    if entities is None:
        labels = dict(table.names.values_list("name", "label").iterator())
    else:
        labels = _values_of_names(table, {form for entity in entities for form in forms_of(entity)}, "label")

    @cache
    def canonical(entity: str) -> str:
        forms = forms_of(entity)
        label = next((labels[form] for form in forms if form in labels), None)
        return forms[-1] if label is None else canonical_form(label, False, False)

    return canonical


def canonical_entities(
    tuples_by_relation: Mapping[Relation, Iterable[Entities] | None],
) -> dict[int, Callable[[Entities], list[str]]]:
    """Return, by relation id, functions that map the surface forms of a tuple to its canonical entities.

    tuples_by_relation: all tuples that will be canonicalized. Only the names of their entities are loaded. If None, all
    names are loaded.
    """
    sets = {relation.relation_set_id for relation in tuples_by_relation}
    tables = {table.relation_set_id: table for table in EntityTable.objects.filter(relation_set__in=sets)}
    functions = {}
    for relation, tuples in tuples_by_relation.items():
        table = tables.get(relation.relation_set_id)
        entities = None if tuples is None or table is None else {entity for row in tuples for entity in row}
        canonical = _canonicalizer(table, entities) if table else str.casefold
        functions[relation.pk] = lambda entities, canonical=canonical: list(map(canonical, entities))
    return functions


def _values_of_names(table: EntityTable, names: Iterable[str], field: str) -> dict[str, str]:
    """Return the non-empty labels or identifiers of `names` in the table. field: "label" or "identifier"."""
    values: dict[str, str] = {}
    names = sorted(names)
    for start in range(0, len(names), NAMES_AT_ONCE):
        entries = table.names.filter(name__in=names[start : start + NAMES_AT_ONCE]).exclude(**{field: ""})
        values.update(entries.values_list("name", field))
    return values


def with_canonical_entities(rows: Iterable[TupleRow], canonical: Canonical | None) -> Iterator[TupleRow]:
    """Canonicalize the entities of the rows with the function `canonical`.

    If it is None, the entities stay unchanged.
    """
    for row in rows:
        yield row if canonical is None else row._replace(entities=tuple(map(canonical, row.entities)))


def distinct_facts(rows: Iterable[TupleRow]) -> tuple[list[TupleRow], int]:
    """Return the first row for each tuple of entities, and the number of discarded rows."""
    rows = list(rows)
    first_rows: dict[tuple[str, ...], TupleRow] = {}
    for row in rows:
        first_rows.setdefault(row.entities, row)
    return list(first_rows.values()), len(rows) - len(first_rows)


class EntityIds:
    """Ids of a relation's entities, for exports. has_any: True if the set has a table with labels."""

    ROWS_AT_ONCE = 2000

    def __init__(self, relation: Relation):
        self._table = table_of(relation)
        self.has_any = self._table is not None and self._table.n_labels > 0

    def with_ids(
        self, rows: Iterable[Row], entities_of: Callable[[Row], Sequence[str]]
    ) -> Iterator[tuple[Row, Sequence[str | None]]]:
        """Yield each row with the ids of its canonical entities, or with () if the set has no labels."""
        if not self.has_any:
            yield from ((row, ()) for row in rows)
            return
        rows = iter(rows)
        while batch := list(islice(rows, self.ROWS_AT_ONCE)):
            yield from zip(batch, self.of(list(map(entities_of, batch))), strict=True)

    def of(self, rows: Sequence[Sequence[str]]) -> list[list[str | None]]:
        """Return the id of each entity in each row, or None for an entity without an id."""
        if self._table is None:
            return [[None] * len(entities) for entities in rows]
        ids = _values_of_names(self._table, {entity for entities in rows for entity in entities}, "identifier")
        return [[ids.get(entity) for entity in entities] for entities in rows]
