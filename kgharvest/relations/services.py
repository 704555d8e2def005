"""Import, write, change and delete relations and their sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, ProtectedError, QuerySet

from kgharvest.access import Action, NotAllowed, check_may, may_anywhere
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.errors import BadEntry, DomainError, Faults
from kgharvest.models import HarvestJob, KnowledgeTuple, Project, Relation, RelationSet
from kgharvest.relations.checks import (
    LONGEST_EXPLANATION,
    FieldError,
    RelationEntry,
    authoring_errors,
    relation_errors,
    sentence_error,
    set_name_error,
)
from kgharvest.relations.files import RelationFile, read_relation_file

SHIPPED = Path(__file__).resolve().parent.parent / "relation_sets"
COLUMNS = ["statement", "explanation", "arity", "initial_prompts", "prompts", "seed_tuples"]
WHAT_STAYS = "Its name, set and number of slots stay, because harvests or tuples refer to them."
WHAT_MAY_CHANGE = (
    "The rest may change: each harvest keeps the prompts and seed tuples it was asked with, each round the statements "
    "people judged."
)


class BadRelation(DomainError):
    """A relation that cannot be stored as it was written; all reasons are in `errors`."""

    def __init__(self, errors: Sequence[FieldError]):
        self.errors = list(errors)
        super().__init__("; ".join(error.reason for error in self.errors))


def in_use(relations: QuerySet) -> QuerySet:
    """Return those of `relations` that were harvested or have tuples."""
    jobs = HarvestJob.objects.filter(relation=OuterRef("pk"))
    tuples = KnowledgeTuple.objects.filter(relation=OuterRef("pk"))
    return relations.filter(Exists(jobs) | Exists(tuples))


def is_in_use(relation: Relation) -> bool:
    return in_use(Relation.objects.filter(pk=relation.pk)).exists()


# -- import ------------------------------------------------------------------------------------------------------------


def import_relations(path: Path, set_name: str | None = None, project: Project | None = None) -> RelationSet:
    """Import the relations of the file at `path` as the operator; see `import_relation_file`."""
    file = read_relation_file(path.name, read_bytes(path))
    return import_relation_file(file, set_name, is_shipped=path.resolve().parent == SHIPPED, project=project)


def load_shipped_sets(by=None) -> list[RelationSet]:
    """Import the sets that come with the project, or bring them up to date; return them. Raises NotAllowed."""
    if by is not None and not may_anywhere(by, Action.WORK):
        raise NotAllowed("Only those who work in a project load the relation sets that come with kgharvest.")
    with transaction.atomic():
        return [import_relations(path) for path in sorted(SHIPPED.glob("*.json"))]


def import_relation_file(
    file: RelationFile,
    set_name: str | None = None,
    is_shipped: bool = False,
    by=None,
    project: Project | None = None,
) -> RelationSet:
    """Import relations into the set `set_name`, by default the file's own; update those that exist.

    Relations of the set that the file does not name stay. project: of a set that is new. Raises ImportRefused with all
    that is wrong, SetIsShipped, NotAllowed or ProjectNotNamed; then nothing is stored.
    """
    set_name = set_name or file.name
    _refuse(file, _bad_entries(file, set_name))
    with transaction.atomic():
        if is_shipped:
            relation_set, _ = RelationSet.objects.get_or_create(name=set_name, defaults={"is_shipped": True})
        else:
            relation_set = own_set(set_name, by, project)
        RelationSet.objects.select_for_update().get(pk=relation_set.pk)  # two imports of one file come one by one
        relation_set.description = file.description or relation_set.description
        relation_set.save()
        arities = dict(in_use(relation_set.relations).values_list("name", "arity"))
        reason = "has {} slots, but its harvests have another number; give it a new name"
        changed = [entry for entry in file.entries if arities.get(entry.name, entry.arity) != entry.arity]
        _refuse(file, [BadEntry(entry.where, reason.format(entry.arity)) for entry in changed])
        _store_entries(relation_set, file.entries)
    return relation_set


def _refuse(file: RelationFile, bad_entries: Iterator[BadEntry]) -> None:
    faults = Faults()
    for entry in bad_entries:
        faults.add(entry)
    faults.refuse(file.source)


def _bad_entries(file: RelationFile, set_name: str) -> Iterator[BadEntry]:
    names = set()
    for entry in file.entries:
        for error in relation_errors(entry):
            where = f"{entry.where}, seed tuple {error.seed_number}" if error.seed_number else entry.where
            yield BadEntry(where, error.reason)
    for entry in file.entries:
        if isinstance(entry.name, str):
            if entry.name in names:
                yield BadEntry(entry.where, "occurs twice; give each relation its own name")
            names.add(entry.name)
    if reason := set_name_error(set_name):
        yield BadEntry("set", f"{reason}, or give another")
    if reason := sentence_error(file.description, LONGEST_EXPLANATION):
        yield BadEntry("description", reason)
    if not file.entries:
        yield BadEntry("file", "has no relation")


def _store_entries(relation_set: RelationSet, entries: Sequence[RelationEntry]) -> None:
    """Create and update the relations of `entries` in a few queries."""
    known = {relation.name: relation for relation in relation_set.relations.all()}
    new, changed = [], []
    for entry in entries:
        relation = known.get(entry.name) or Relation(relation_set=relation_set, name=entry.name)
        _set_columns(relation, entry)
        (changed if relation.pk else new).append(relation)
    Relation.objects.bulk_create(new)
    Relation.objects.bulk_update(changed, COLUMNS, batch_size=100)


def _set_columns(relation: Relation, entry: RelationEntry) -> None:
    for column, value in entry.columns().items():
        setattr(relation, column, value)


# -- one relation ------------------------------------------------------------------------------------------------------


def validate_relation(entry: RelationEntry, set_name: str, relation: Relation | None = None) -> list[FieldError]:
    """Return all that speaks against storing `entry` in the set, as `relation` if that is given."""
    errors = list(relation_errors(entry))
    if not any(error.field == "seed_tuples" for error in errors):
        errors += authoring_errors(entry)
    if reason := set_name_error(set_name):
        errors.append(FieldError("set_name", reason))
    elif RelationSet.objects.filter(name=set_name, is_shipped=True).exists():
        errors.append(FieldError("set_name", f"the set {set_name!r} comes with the project; choose or name another"))
    same_name = Relation.objects.filter(relation_set__name=set_name, name=entry.name)
    if same_name.exclude(pk=relation and relation.pk).exists():
        reason = f"the set {set_name!r} has a relation {entry.name!r} already; choose another name"
        errors.append(FieldError("name", reason))
    if relation and not errors and is_in_use(relation):
        stays = {
            "name": entry.name == relation.name,
            "set_name": set_name == relation.relation_set.name,
            "statement": entry.arity == relation.arity,
        }
        errors += [FieldError(column, WHAT_STAYS.rstrip(".")) for column, same in stays.items() if not same]
    return errors


@transaction.atomic
def save_relation(
    entry: RelationEntry, set_name: str, relation: Relation | None = None, by=None, project: Project | None = None
) -> Relation:
    """Store what a person wrote, in a set that is made if need be, in `project`.

    Raises BadRelation, SetIsShipped, NotAllowed or ProjectNotNamed.
    """
    if relation:
        check_is_own(relation.relation_set, by)
        Relation.objects.select_for_update().get(pk=relation.pk)  # no job or tuple of it comes while this looks for one
    if errors := validate_relation(entry, set_name, relation):
        raise BadRelation(errors)
    relation = relation or Relation()
    relation.name, relation.relation_set = entry.name, own_set(set_name, by, project)
    _set_columns(relation, entry)
    try:
        with transaction.atomic():
            relation.save()
    except IntegrityError as error:  # somebody took the name since the check
        raise BadRelation([FieldError("name", "somebody has just given this name to another relation")]) from error
    return relation


@transaction.atomic
def delete_relation(relation: Relation, by=None) -> None:
    """Delete a relation of which nothing was harvested or judged. Raises SetIsShipped, NotAllowed or RelationInUse."""
    check_is_own(relation.relation_set, by)
    if is_in_use(relation):
        raise DomainError(
            "RelationInUse", f"{relation.path} has harvests or tuples, which keep it; only unused ones are deleted."
        )
    _delete(relation, relation.path)


def _delete(unused: Relation | RelationSet, name: str) -> None:
    """Delete what nothing was harvested of, unless people decided on its known answers."""
    try:
        unused.delete()
    except ProtectedError:
        raise DomainError("RelationInUse", f"People decided on known answers of {name}, which keep it.") from None


# -- sets --------------------------------------------------------------------------------------------------------------


def check_is_own(relation_set: RelationSet, by=None) -> None:
    """Raise SetIsShipped for a set that nobody may change, NotAllowed for one of a project in which `by` may not."""
    if relation_set.is_shipped:
        raise DomainError(
            "SetIsShipped", f"The set {relation_set.name} comes with the project and stays as it is; duplicate it."
        )
    check_may(by, Action.WORK, relation_set.project)


def own_set(name: str, by=None, project: Project | None = None) -> RelationSet:
    """Return the set `name` to add relations to; one that is new is of `project`.

    Raises SetIsShipped, NotAllowed or ProjectNotNamed.
    """
    relation_set = RelationSet.objects.filter(name=name).first()
    if relation_set is None:
        defaults = {"project": project_for(by, project), "created_by": by}
        relation_set, _ = RelationSet.objects.get_or_create(name=name, defaults=defaults)
    try:
        check_is_own(relation_set, by)
    except NotAllowed:
        if RelationSet.objects.visible_to(by).filter(pk=relation_set.pk).exists():
            raise
        raise NotAllowed(f"The set {name!r} is one of another project; choose another name.") from None
    return relation_set


@transaction.atomic
def duplicate_set(relation_set: RelationSet, name: str, by=None, project: Project | None = None) -> RelationSet:
    """Return a new set `name` of `project` with the same relations. Raises BadSetName, NotAllowed, ProjectNotNamed."""
    _check_set_name(name)
    copy = RelationSet.objects.create(
        project=project_for(by, project), name=name, description=relation_set.description, created_by=by
    )
    relations = relation_set.relations.values("name", *COLUMNS)
    Relation.objects.bulk_create([Relation(relation_set=copy, **columns) for columns in relations])
    return copy


def _check_set_name(name: str, relation_set: RelationSet | None = None) -> None:
    if reason := set_name_error(name):
        raise DomainError("BadSetName", f"{reason}.")
    if RelationSet.objects.filter(name=name).exclude(pk=relation_set and relation_set.pk).exists():
        raise DomainError("BadSetName", f"There is a set {name!r} already; choose another name.")


@transaction.atomic
def change_set(relation_set: RelationSet, name: str, description: str, by=None) -> None:
    """Give a set another name and description. Raises SetIsShipped, NotAllowed, BadSetName or RelationInUse."""
    check_is_own(relation_set, by)
    _check_set_name(name, relation_set)
    if name != relation_set.name and in_use(relation_set.relations).exists():
        raise DomainError(
            "RelationInUse", f"Relations of {relation_set.name} have harvests or tuples, so the set keeps its name."
        )
    relation_set.name, relation_set.description = name, description
    relation_set.save()


@transaction.atomic
def delete_set(relation_set: RelationSet, by=None) -> None:
    """Delete a set with its relations, none of which may be in use. Raises SetIsShipped, NotAllowed, RelationInUse."""
    check_is_own(relation_set, by)
    if names := list(in_use(relation_set.relations).values_list("name", flat=True)[:3]):
        raise DomainError(
            "RelationInUse", f"{', '.join(names)} of {relation_set.name} have harvests or tuples, which keep the set."
        )
    _delete(relation_set, relation_set.name)
