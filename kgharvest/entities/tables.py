"""Tables of entities: read from a file, kept with a set of relations, used where tuples are stored and exported.

A tuple's `entities` are its identity, so tuples whose entities have one canonical form are one knowledge tuple, which
people judge once; how each harvest wrote it stays in `surface`.
"""

from __future__ import annotations

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

SAME_FACT = "same_fact"  # why a harvest left a tuple out
LONGEST_ID = 200
MOST_NAMES = 1_000_000
NAMES_AT_ONCE = 500  # looked up by one statement
ALIASES = "|"  # between two of them
HEADER = ("label", "aliases", "id")
SEPARATORS = ",;|"  # that people and spreadsheets put where tabs belong

Canonical = Callable[[str], str]
Row = TypeVar("Row")


class Names(NamedTuple):
    """What a file of labels says. by_name: (label, id) of each name, both as written; n_ambiguous: names of several.

    n_aliases: names that are no label and lead to one.
    """

    by_name: dict[str, tuple[str, str]]
    n_labels: int
    n_aliases: int
    n_ambiguous: int


# -- files -------------------------------------------------------------------------------------------------------------


def names_of_content(content: bytes, source: str) -> Names:
    """Return the names of a file: label, aliases separated by |, id, a tab between them; a header may stand first.

    Aliases and id may be missing. A label stands for itself, whoever has it as an alias; a name that is otherwise of
    two labels, or of a label with two ids, leads to none. Raises ImportRefused with every bad line.
    """
    faults = Faults()
    ids: dict[str, dict[tuple[str, str], None]] = {}
    aliases: dict[str, dict[tuple[str, str], None]] = {}
    for number, line in enumerate(lines_of(BytesIO(content), source), start=1):
        cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
        if not any(cells) or (number == 1 and tuple(cell.casefold() for cell in cells) == HEADER[: len(cells)]):
            continue
        if number == 1 and (separator := _separator_of_head(cells)):
            faults.add(BadEntry("line 1", f"has {separator!r} between its cells; put tabs there"))
            break
        if reason := _fault(cells):
            faults.add(BadEntry(f"line {number}", reason))
            continue
        label, others, identifier = (*cells, "", "")[:3]
        ids.setdefault(label.casefold(), {})[label, identifier] = None
        for alias in filter(None, map(str.strip, others.split(ALIASES))):
            aliases.setdefault(alias.casefold(), {})[label, identifier] = None
    if not ids and not faults.n:
        faults.add(BadEntry("the file", "has no label"))
    if len(ids.keys() | aliases.keys()) > MOST_NAMES:
        faults.add(BadEntry("the file", f"has more than {MOST_NAMES:,} names; give those that may occur"))
    faults.refuse(source)
    every = {**aliases, **ids}
    by_name = {name: next(iter(meant)) for name, meant in every.items() if len(meant) == 1}
    return Names(by_name, len(ids), len(by_name.keys() - ids.keys()), len(every) - len(by_name))


def _separator_of_head(cells: Sequence[str]) -> str | None:
    """Return what stands between the cells of a header in the place of tabs: such a file would be labels alone."""
    for separator in SEPARATORS:
        names = tuple(name.strip(' "') for name in cells[0].casefold().split(separator))
        if 1 < len(names) <= len(HEADER) and names == HEADER[: len(names)]:
            return separator
    return None


def _fault(cells: Sequence[str]) -> str | None:
    if len(cells) > len(HEADER):
        return f"has {len(cells)} cells; a line is label, aliases, id"
    if not cells[0]:
        return "has no label"
    names = [cells[0], *(cells[1].split(ALIASES) if len(cells) > 1 else [])]
    if any(len(name) > LONGEST_ENTITY for name in names):
        return f"has a name of more than {LONGEST_ENTITY} characters"
    if len(cells) == len(HEADER) and len(cells[2]) > LONGEST_ID:
        return f"has an id of more than {LONGEST_ID} characters"
    if any(map(CONTROL.search, cells)):
        return "has a control character"
    return None


# -- keeping -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def save_table(
    relation_set: RelationSet,
    without_articles: bool,
    in_singular: bool,
    file: tuple[str, bytes] | None = None,
    by=None,
) -> EntityTable:
    """Keep how entities of a set are written, from the next tuples on. file: name and content; None keeps the names.

    Raises SetIsShipped, NotAllowed or ImportRefused; then nothing is changed.
    """
    check_can_edit(relation_set, by)
    table = EntityTable.objects.filter(relation_set=relation_set).first() or EntityTable(relation_set=relation_set)
    table.without_articles, table.in_singular, table.changed_by = without_articles, in_singular, by
    names = None
    if file:
        source, content = file
        names = names_of_content(content, source)
        table.source, table.sha256 = source[:255], hashlib.sha256(content).hexdigest()
        table.n_labels, table.n_aliases, table.n_ambiguous = names.n_labels, names.n_aliases, names.n_ambiguous
    table.save()
    if names:
        table.names.all().delete()
        rows = ((table.pk, name, label, identifier) for name, (label, identifier) in names.by_name.items())
        insert_rows(EntityName, ("table", "name", "label", "identifier"), rows)
    return table


@transaction.atomic
def delete_table(relation_set: RelationSet, by=None) -> None:
    """Take entities as they are written again, from the next tuples on. Raises SetIsShipped, NotAllowed."""
    check_can_edit(relation_set, by)
    EntityTable.objects.filter(relation_set=relation_set).delete()


def table_of(relation: Relation) -> EntityTable | None:
    return EntityTable.objects.filter(relation_set=relation.relation_set_id).first()


# -- using -------------------------------------------------------------------------------------------------------------


def canonicalizer(relation: Relation) -> Canonical | None:
    """Return the function that brings an entity of the relation into its form; None where its set has no table.

    A name of the table becomes its label, case-folded. What the table does not have is tried in its canonical form,
    and stays in that.
    """
    table = table_of(relation)
    return table and _canonicalizer(table, None)


def _canonicalizer(table: EntityTable, among: Iterable[str] | None) -> Canonical:
    """among: the entities that will be asked for, where they are few beside the table's names; None for any."""

    def forms_of(entity: str) -> list[str]:
        without_articles, in_singular = table.without_articles, table.in_singular
        steps = [(False, False), (without_articles, False), (without_articles, in_singular)]
        return [canonical_form(entity, *step) for step in steps]

    if among is None:
        labels = dict(table.names.values_list("name", "label").iterator())
    else:
        labels = _values_of_names(table, {form for entity in among for form in forms_of(entity)}, "label")

    @cache
    def canonical(entity: str) -> str:
        forms = forms_of(entity)
        label = next((labels[form] for form in forms if form in labels), None)
        return forms[-1] if label is None else canonical_form(label, False, False)

    return canonical


Entities = Sequence[str]


def canonical_entities(
    asked: Mapping[Relation, Iterable[Entities] | None],
) -> dict[int, Callable[[Entities], list[str]]]:
    """Return by relation the function that gives entities, as written, those of the tuple they are.

    asked: by relation the tuples that will be asked for, where they are few beside its table's names; None for any.
    """
    sets = {relation.relation_set_id for relation in asked}
    tables = {table.relation_set_id: table for table in EntityTable.objects.filter(relation_set__in=sets)}
    return {
        relation.pk: _canonical_tuple(tables.get(relation.relation_set_id), tuples)
        for relation, tuples in asked.items()
    }


def _canonical_tuple(table: EntityTable | None, among: Iterable[Entities] | None) -> Callable[[Entities], list[str]]:
    if table is None:
        return lambda entities: [entity.casefold() for entity in entities]
    names = None if among is None else {entity for entities in among for entity in entities}
    canonical = _canonicalizer(table, names)
    return lambda entities: list(map(canonical, entities))


def _values_of_names(table: EntityTable, names: Iterable[str], field: str) -> dict[str, str]:
    """Return label or identifier of those of `names` that the table has, without empty ones."""
    wanted = sorted(names)
    values: dict[str, str] = {}
    for start in range(0, len(wanted), NAMES_AT_ONCE):
        found = table.names.filter(name__in=wanted[start : start + NAMES_AT_ONCE]).exclude(**{field: ""})
        values.update(found.values_list("name", field))
    return values


def with_canonical_entities(rows: Iterable[TupleRow], canonical: Canonical | None) -> Iterator[TupleRow]:
    """Yield the rows with the entities that make them one fact; as they are where there is no table."""
    for row in rows:
        yield row if canonical is None else row._replace(entities=tuple(map(canonical, row.entities)))


def each_fact_once(rows: Iterable[TupleRow]) -> tuple[list[TupleRow], int]:
    """Return rows, best first, without those whose entities came before, and how many these were."""
    kept: dict[tuple[str, ...], TupleRow] = {}
    n = 0
    for row in rows:
        n += 1
        kept.setdefault(row.entities, row)
    return list(kept.values()), n - len(kept)


class EntityIds:
    """The ids of entities of a relation, for exports; `has_any` only where its set has a table with labels."""

    ROWS_AT_ONCE = 2000

    def __init__(self, relation: Relation):
        self._table = table_of(relation)
        self.has_any = self._table is not None and self._table.n_labels > 0

    def beside(
        self, rows: Iterable[Row], entities_of: Callable[[Row], Sequence[str]]
    ) -> Iterator[tuple[Row, Sequence[str | None]]]:
        """Yield each row with the ids of its entities, as they are the tuple's identity; () where there are none."""
        if not self.has_any:
            yield from ((row, ()) for row in rows)
            return
        rows = iter(rows)
        while chunk := list(islice(rows, self.ROWS_AT_ONCE)):
            yield from zip(chunk, self.of(list(map(entities_of, chunk))), strict=True)

    def of(self, rows: Sequence[Sequence[str]]) -> list[list[str | None]]:
        """Return the id of each entity of each row, None for one that the table does not have."""
        if self._table is None:
            return [[None] * len(entities) for entities in rows]
        known = _values_of_names(self._table, {entity for entities in rows for entity in entities}, "identifier")
        return [[known.get(entity) for entity in entities] for entities in rows]
