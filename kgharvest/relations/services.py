"""Import, write, change and delete relations and their sets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, QuerySet

from kgharvest.bulk.file_reading import read_bytes
from kgharvest.errors import BadEntry, DomainError, ImportRefused
from kgharvest.models import HarvestJob, KnowledgeTuple, Relation, RelationSet
from kgharvest.relations.checks import Fault, RelationEntry, faults_of, faults_of_writing, text_error
from kgharvest.relations.files import RelationFile, read_relation_file

SHIPPED = Path(__file__).resolve().parent.parent / "relation_sets"
SET_NAME = re.compile(r"[-\w]{1,100}", re.ASCII)
COLUMNS = ["statement", "explanation", "arity", "initial_prompts", "prompts", "seed_tuples"]
WHAT_STAYS = "Its name, set and number of slots stay, because harvests or tuples refer to them."
WHAT_MAY_CHANGE = (
    "The rest may change: each harvest keeps the prompts and seed tuples it was asked with, each round the statements "
    "people judged."
)


class SetIsShipped(DomainError):
    """Changing a set that comes with the project."""


class RelationInUse(DomainError):
    """Deleting a relation, or a set of one, that was harvested or has tuples."""


class BadRelation(DomainError):
    """A relation that cannot be stored as it was written; all reasons are in `faults`."""

    def __init__(self, faults: Sequence[Fault]):
        self.faults = list(faults)
        super().__init__("; ".join(fault.reason for fault in self.faults))


class BadSetName(DomainError):
    """A name that no set can have, or that another one has."""


# -- import ------------------------------------------------------------------------------------------------------------


def import_relations(path: Path, set_name: str | None = None) -> RelationSet:
    """Import the relations of the file at `path`; see `import_relation_file`."""
    file = read_relation_file(path.name, read_bytes(path))
    return import_relation_file(file, set_name, is_shipped=path.resolve().parent == SHIPPED)


def import_relation_file(file: RelationFile, set_name: str | None = None, is_shipped: bool = False) -> RelationSet:
    """Import relations into the set `set_name`, by default the file's own; update those that exist.

    Relations of the set that the file does not name stay. Raises ImportRefused with all that is wrong, or
    SetIsShipped; then nothing is stored.
    """
    faults = [_placed(entry, fault) for entry in file.entries for fault in faults_of(entry)]
    faults += repeated_names(file.entries)
    name = set_name or file.name
    if not SET_NAME.fullmatch(name):
        faults.append(BadEntry("set", f"{name!r} is no set name; use letters, digits, - and _, or give another"))
    if fault := text_error(file.description):
        faults.append(BadEntry("description", fault))
    if not file.entries:
        faults.append(BadEntry("file", "has no relation"))
    if faults:
        raise ImportRefused(file.source, faults)
    return _store(file, name, is_shipped)


def _placed(entry: RelationEntry, fault: Fault) -> BadEntry:
    return BadEntry(f"{entry.where}, seed tuple {fault.number}" if fault.number else entry.where, fault.reason)


def repeated_names(entries: Sequence[RelationEntry]) -> Iterator[BadEntry]:
    seen = set()
    for entry in entries:
        if isinstance(entry.name, str) and entry.name in seen:
            yield BadEntry(entry.where, "occurs twice; give each relation its own name")
        seen.add(entry.name if isinstance(entry.name, str) else None)


@transaction.atomic
def _store(file: RelationFile, name: str, is_shipped: bool) -> RelationSet:
    relation_set = _shipped_set(name) if is_shipped else own_set(name)
    RelationSet.objects.select_for_update().get(pk=relation_set.pk)  # two imports of one file come one after the other
    relation_set.description = file.description or relation_set.description
    relation_set.save()
    if clashes := list(_clashes(relation_set, file.entries)):
        raise ImportRefused(file.source, clashes)
    _write(relation_set, file.entries)
    return relation_set


def _shipped_set(name: str) -> RelationSet:
    return RelationSet.objects.get_or_create(name=name, defaults={"is_shipped": True})[0]


def _clashes(relation_set: RelationSet, entries: Sequence[RelationEntry]) -> Iterator[BadEntry]:
    arities = dict(in_use(relation_set.relations).values_list("name", "arity"))
    for entry in entries:
        arity = entry.fields()["arity"]
        if arities.get(entry.name, arity) != arity:
            reason = f"has {arity} slots, but its harvests have another number; give it a new name"
            yield BadEntry(entry.where, reason)


def _write(relation_set: RelationSet, entries: Sequence[RelationEntry]) -> None:
    """Create and update the relations of `entries` in a few queries."""
    known = {relation.name: relation for relation in relation_set.relations.all()}
    new, changed = [], []
    for entry in entries:
        relation = known.get(entry.name) or Relation(relation_set=relation_set, name=entry.name)
        for column, value in entry.fields().items():
            setattr(relation, column, value)
        (changed if relation.pk else new).append(relation)
    Relation.objects.bulk_create(new)
    Relation.objects.bulk_update(changed, COLUMNS, batch_size=100)


# -- writing -----------------------------------------------------------------------------------------------------------


def in_use(relations: QuerySet) -> QuerySet:
    """Return those of `relations` that were harvested or have tuples."""
    jobs = HarvestJob.objects.filter(relation=OuterRef("pk"))
    tuples = KnowledgeTuple.objects.filter(relation=OuterRef("pk"))
    return relations.filter(Exists(jobs) | Exists(tuples))


def is_in_use(relation: Relation) -> bool:
    return in_use(Relation.objects.filter(pk=relation.pk)).exists()


def faults_of_relation(entry: RelationEntry, set_name: str, relation: Relation | None = None) -> list[Fault]:
    """Return all that speaks against storing `entry` in the set, as `relation` if that is given."""
    faults = [*faults_of(entry)]
    if not any(fault.field == "seed_tuples" for fault in faults):
        faults += faults_of_writing(entry)
    if not SET_NAME.fullmatch(set_name):
        faults.append(Fault("set_name", f"{set_name!r} is no set name; use letters, digits, - and _"))
    elif RelationSet.objects.filter(name=set_name, is_shipped=True).exists():
        faults.append(Fault("set_name", f"the set {set_name!r} comes with the project; choose or name another"))
    others = Relation.objects.filter(relation_set__name=set_name, name=entry.name)
    if others.exclude(pk=relation and relation.pk).exists():
        faults.append(Fault("name", f"the set {set_name!r} has a relation {entry.name!r} already; choose another name"))
    if relation and not faults and is_in_use(relation):
        faults += _faults_of_use(entry, set_name, relation)
    return faults


def _faults_of_use(entry: RelationEntry, set_name: str, relation: Relation) -> list[Fault]:
    stays = {
        "name": entry.name == relation.name,
        "set_name": set_name == relation.relation_set.name,
        "statement": entry.fields()["arity"] == relation.arity,
    }
    return [Fault(column, WHAT_STAYS.rstrip(".")) for column, same in stays.items() if not same]


@transaction.atomic
def save_relation(entry: RelationEntry, set_name: str, relation: Relation | None = None) -> Relation:
    """Store what a person wrote, in a set that is made if need be. Raises BadRelation or SetIsShipped."""
    if relation and relation.relation_set.is_shipped:
        raise SetIsShipped(f"{relation.path} comes with the project; duplicate it and edit the copy.")
    if relation:
        Relation.objects.select_for_update().get(
            pk=relation.pk
        )  # no job or tuple of it comes while its use is looked at
    if faults := faults_of_relation(entry, set_name, relation):
        raise BadRelation(faults)
    relation = relation or Relation()
    relation.name, relation.relation_set = entry.name, own_set(set_name)
    for column, value in entry.fields().items():
        setattr(relation, column, value)
    try:
        with transaction.atomic():
            relation.save()
    except IntegrityError as error:  # somebody took the name since the check
        raise BadRelation([Fault("name", "somebody has just given this name to another relation")]) from error
    return relation


@transaction.atomic
def delete_relation(relation: Relation) -> None:
    """Delete a relation of which nothing was harvested or judged. Raises SetIsShipped or RelationInUse."""
    if relation.relation_set.is_shipped:
        raise SetIsShipped(f"{relation.path} comes with the project and stays.")
    if is_in_use(relation):
        raise RelationInUse(f"{relation.path} has harvests or tuples, which keep it; only unused ones are deleted.")
    relation.delete()


# -- sets --------------------------------------------------------------------------------------------------------------


def own_set(name: str) -> RelationSet:
    """Return the set `name`, made if need be, to add relations to. Raises SetIsShipped."""
    relation_set, _ = RelationSet.objects.get_or_create(name=name)
    if relation_set.is_shipped:
        raise SetIsShipped(f"The set {name!r} comes with the project and stays as it is; choose another name.")
    return relation_set


@transaction.atomic
def duplicate_set(relation_set: RelationSet, name: str) -> RelationSet:
    """Return a new set `name` with the same relations. Raises BadSetName."""
    _check_set_name(name)
    copy = RelationSet.objects.create(name=name, description=relation_set.description)
    copies = [Relation(relation_set=copy, name=one.name, **_columns(one)) for one in relation_set.relations.all()]
    Relation.objects.bulk_create(copies)
    return copy


def _columns(relation: Relation) -> dict[str, object]:
    return {column: getattr(relation, column) for column in COLUMNS}


def _check_set_name(name: str, relation_set: RelationSet | None = None) -> None:
    if not SET_NAME.fullmatch(name):
        raise BadSetName(f"{name!r} is no set name; use letters, digits, - and _.")
    if RelationSet.objects.filter(name=name).exclude(pk=relation_set and relation_set.pk).exists():
        raise BadSetName(f"There is a set {name!r} already; choose another name.")


@transaction.atomic
def change_set(relation_set: RelationSet, name: str, description: str) -> None:
    """Give a set another name and description. Raises SetIsShipped, BadSetName or RelationInUse."""
    _check_is_own(relation_set)
    _check_set_name(name, relation_set)
    if name != relation_set.name and in_use(relation_set.relations).exists():
        raise RelationInUse(f"Relations of {relation_set.name} have harvests or tuples, so the set keeps its name.")
    relation_set.name, relation_set.description = name, description
    relation_set.save()


@transaction.atomic
def delete_set(relation_set: RelationSet) -> None:
    """Delete a set with its relations, none of which may be in use. Raises SetIsShipped or RelationInUse."""
    _check_is_own(relation_set)
    if names := list(in_use(relation_set.relations).values_list("name", flat=True)[:3]):
        raise RelationInUse(f"{', '.join(names)} of {relation_set.name} have harvests or tuples, which keep the set.")
    relation_set.delete()


def _check_is_own(relation_set: RelationSet) -> None:
    if relation_set.is_shipped:
        raise SetIsShipped(f"The set {relation_set.name} comes with the project and stays as it is; duplicate it.")
