"""Services to import, create, change, and delete relations and relation sets."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, ProtectedError, QuerySet

from kgharvest.access import Action, NotAllowed, check_may, may_anywhere
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import AuditedTable
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.errors import BadEntry, DomainError, Faults
from kgharvest.events.recording import record
from kgharvest.models import HarvestJob, KnowledgeTuple, Project, Relation, RelationSet
from kgharvest.relations.checks import (
    LONGEST_EXPLANATION,
    SEED_COLUMNS,
    FieldError,
    RelationEntry,
    authoring_errors,
    relation_errors,
    sentence_error,
    set_name_error,
)
from kgharvest.relations.files import RelationFile, read_relation_file

SHIPPED = Path(__file__).resolve().parent.parent / "relation_sets"
COLUMNS = ["statement", "explanation", "arity", "initial_prompts", "prompts", "seed_tuples", "negative_seed_tuples"]
RELATIONS = AuditedTable(Relation, "relation_set_id", "name", *COLUMNS, is_mutable=True)
FIXED_FIELDS = "The relation has harvests or tuples, so its name, set, and number of slots cannot change."
EDITABLE_FIELDS = (
    "You can change the other fields. Existing harvests keep their prompts and seed tuples, and existing rounds keep "
    "their statements."
)


class BadRelation(DomainError):
    """Raised for an invalid relation. errors: all validation errors."""

    def __init__(self, errors: Sequence[FieldError]):
        self.errors = list(errors)
        super().__init__("; ".join(map(str, self.errors)))


def in_use(relations: QuerySet) -> QuerySet:
    """Return the relations that have harvest jobs or tuples."""
    jobs = HarvestJob.objects.filter(relation=OuterRef("pk"))
    tuples = KnowledgeTuple.objects.filter(relation=OuterRef("pk"))
    return relations.filter(Exists(jobs) | Exists(tuples))


def is_in_use(relation: Relation) -> bool:
    return in_use(Relation.objects.filter(pk=relation.pk)).exists()


def import_relations(path: Path, set_name: str | None = None, project: Project | None = None) -> RelationSet:
    """Import the relation file at `path` without permission checks. See `import_relation_file`."""
    file = read_relation_file(path.name, read_bytes(path))
    return import_relation_file(file, set_name, is_shipped=path.resolve().parent == SHIPPED, project=project)


def load_shipped_sets(by=None) -> list[RelationSet]:
    """Import or update the built-in relation sets and return them. Raises NotAllowed."""
    if by is not None and not may_anywhere(by, Action.WORK):
        raise NotAllowed("Only owners and researchers of a project can load the built-in relation sets.")
    with transaction.atomic():
        return [import_relations(path) for path in sorted(SHIPPED.glob("*.json"))]


def import_relation_file(
    file: RelationFile, set_name: str | None = None, is_shipped: bool = False, by=None, project: Project | None = None
) -> RelationSet:
    """Import relations into the set `set_name`, by default the set named in the file. Existing relations are updated.

    Relations that are missing from the file stay unchanged. project: project of a new set. Raises ImportRefused with
    all errors, SetIsShipped, NotAllowed, or ProjectNotNamed. Nothing is stored in these cases.
    """
    set_name = set_name or file.name
    _refuse_entries(file, _bad_entries(file, set_name))
    with transaction.atomic():
        if is_shipped:
            relation_set, _ = RelationSet.objects.get_or_create(name=set_name, defaults={"is_shipped": True})
        else:
            relation_set = editable_set(set_name, by, project)
        # Lock the set, so that concurrent imports into it run one after another.
        RelationSet.objects.select_for_update().get(pk=relation_set.pk)
        relation_set.description = file.description or relation_set.description
        relation_set.save()
        arities = dict(in_use(relation_set.relations).values_list("name", "arity"))
        reason = "has {} slots, but the existing relation has harvests or tuples with {} slots; use a new name"
        bad_entries = (
            BadEntry(entry.where, reason.format(entry.arity, arities[entry.name]))
            for entry in file.entries
            if arities.get(entry.name, entry.arity) != entry.arity
        )
        _refuse_entries(file, bad_entries)
        existing_relations = {relation.name: relation for relation in relation_set.relations.all()}
        new, changed = [], []
        for entry in file.entries:
            relation = existing_relations.get(entry.name) or Relation(relation_set=relation_set, name=entry.name)
            _set_columns(relation, entry)
            (changed if relation.pk else new).append(relation)
        Relation.objects.bulk_create(new)
        Relation.objects.bulk_update(changed, COLUMNS, batch_size=100)
        record_relations(relation_set, [*new, *changed], by)
    return relation_set


def record_relations(relation_set: RelationSet, relations: Sequence[Relation], by) -> None:
    """Record that relations were created or changed. Call it after each such change."""
    facts = {"set": relation_set.name, "n_relations": len(relations)}
    record("relations.saved", relation_set, by, relation_set.project_id, relations, **facts)


def _refuse_entries(file: RelationFile, bad_entries: Iterator[BadEntry]) -> None:
    faults = Faults()
    for entry in bad_entries:
        faults.add(entry)
    faults.refuse(file.source)


def _bad_entries(file: RelationFile, set_name: str) -> Iterator[BadEntry]:
    names = set()
    for entry in file.entries:
        for error in relation_errors(entry):
            noun = SEED_COLUMNS.get(error.field)
            where = f"{entry.where}, {noun} {error.seed_number}" if error.seed_number else entry.where
            yield BadEntry(where, error.reason)
    for entry in file.entries:
        if isinstance(entry.name, str):
            if entry.name in names:
                yield BadEntry(entry.where, "has a duplicate name; names must be unique")
            names.add(entry.name)
    if reason := set_name_error(set_name):
        yield BadEntry("set", reason)
    if reason := sentence_error(file.description, LONGEST_EXPLANATION):
        yield BadEntry("description", reason)
    if not file.entries:
        yield BadEntry("file", "contains no relations")


def _set_columns(relation: Relation, entry: RelationEntry) -> None:
    for column, value in entry.columns().items():
        setattr(relation, column, value)


def validate_relation(entry: RelationEntry, set_name: str, relation: Relation | None = None) -> list[FieldError]:
    """Return the validation errors for saving `entry` in the set, as a new relation or as a change to `relation`."""
    errors = list(relation_errors(entry))
    if not any(error.field in SEED_COLUMNS for error in errors):
        errors += authoring_errors(entry)
    if reason := set_name_error(set_name):
        errors.append(FieldError("set_name", reason))
    elif RelationSet.objects.filter(name=set_name, is_shipped=True).exists():
        errors.append(FieldError("set_name", f"the set {set_name!r} is built-in and read-only; choose another set"))
    same_name = Relation.objects.filter(relation_set__name=set_name, name=entry.name)
    if same_name.exclude(pk=relation and relation.pk).exists():
        reason = f"the set {set_name!r} already contains a relation {entry.name!r}; choose another name"
        errors.append(FieldError("name", reason))
    if relation and not errors and is_in_use(relation):
        is_changed = {
            "name": entry.name != relation.name,
            "set_name": set_name != relation.relation_set.name,
            "statement": entry.arity != relation.arity,
        }
        errors += [FieldError(column, FIXED_FIELDS.rstrip(".")) for column, changed in is_changed.items() if changed]
    return errors


@transaction.atomic
def save_relation(
    entry: RelationEntry, set_name: str, relation: Relation | None = None, by=None, project: Project | None = None
) -> Relation:
    """Create a relation or change `relation`. A missing set is created in `project`.

    Raises BadRelation, SetIsShipped, NotAllowed, or ProjectNotNamed.
    """
    if relation:
        check_can_edit(relation.relation_set, by)
        # The lock prevents new jobs and tuples during the checks.
        Relation.objects.select_for_update().get(pk=relation.pk)
    if errors := validate_relation(entry, set_name, relation):
        raise BadRelation(errors)
    relation = relation or Relation()
    relation.name, relation.relation_set = entry.name, editable_set(set_name, by, project)
    _set_columns(relation, entry)
    try:
        with transaction.atomic():
            relation.save()
    except IntegrityError as error:  # another request has taken the name since the check
        raise BadRelation([FieldError("name", "another relation has just been given this name")]) from error
    record_relations(relation.relation_set, [relation], by)
    return relation


@transaction.atomic
def delete_relation(relation: Relation, by=None) -> None:
    """Delete an unused relation. Raises SetIsShipped, NotAllowed, or RelationInUse."""
    check_can_edit(relation.relation_set, by)
    if is_in_use(relation):
        raise DomainError("RelationInUse", f"Cannot delete {relation.path}: it has harvests or tuples.")
    _delete(relation, relation.path, relation.relation_set, [relation], by)


def _delete(unused: Relation | RelationSet, name: str, of: RelationSet, relations: Sequence[Relation], by) -> None:
    """Delete a relation or a set, with `relations`. Raises RelationInUse if there are reviewed gold statements."""
    facts = {"set": of.name, "n_relations": len(relations)}
    try:
        with transaction.atomic():
            record("relations.deleted", of, by, of.project_id, deleted=relations, **facts)
            unused.delete()
    except ProtectedError:
        raise DomainError("RelationInUse", f"Cannot delete {name}: it has reviewed gold statements.") from None


def check_can_edit(relation_set: RelationSet, by=None) -> None:
    """Raise SetIsShipped for a built-in set, and NotAllowed if `by` may not work in the set's project."""
    if relation_set.is_shipped:
        raise DomainError(
            "SetIsShipped", f"The set {relation_set.name} is built-in and read-only. Duplicate it and edit the copy."
        )
    check_may(by, Action.WORK, relation_set.project)


def editable_set(name: str, by=None, project: Project | None = None) -> RelationSet:
    """Return the set `name`. A missing set is created in `project`.

    Raises SetIsShipped, NotAllowed, or ProjectNotNamed.
    """
    relation_set = RelationSet.objects.filter(name=name).first()
    if relation_set is None:
        defaults = {"project": project_for(by, project), "created_by": by}
        relation_set, _ = RelationSet.objects.get_or_create(name=name, defaults=defaults)
    try:
        check_can_edit(relation_set, by)
    except NotAllowed:
        if RelationSet.objects.visible_to(by).filter(pk=relation_set.pk).exists():
            raise
        raise NotAllowed(f"The set name {name!r} is used by another project. Choose another name.") from None
    return relation_set


@transaction.atomic
def duplicate_set(relation_set: RelationSet, name: str, by=None, project: Project | None = None) -> RelationSet:
    """Copy a set with its relations into `project`. Raises BadSetName, NotAllowed, or ProjectNotNamed."""
    _check_set_name(name)
    copy = RelationSet.objects.create(
        project=project_for(by, project), name=name, description=relation_set.description, created_by=by
    )
    relations = relation_set.relations.values("name", *COLUMNS)
    copied = Relation.objects.bulk_create([Relation(relation_set=copy, **columns) for columns in relations])
    record_relations(copy, copied, by)
    return copy


def _check_set_name(name: str, relation_set: RelationSet | None = None) -> None:
    if reason := set_name_error(name):
        raise DomainError("BadSetName", f"{reason[:1].upper()}{reason[1:]}.")
    if RelationSet.objects.filter(name=name).exclude(pk=relation_set and relation_set.pk).exists():
        raise DomainError("BadSetName", f"A set {name!r} already exists. Choose another name.")


@transaction.atomic
def change_set(relation_set: RelationSet, name: str, description: str, by=None) -> None:
    """Change the name and description of a set. Raises SetIsShipped, NotAllowed, BadSetName, or RelationInUse."""
    check_can_edit(relation_set, by)
    _check_set_name(name, relation_set)
    if name != relation_set.name and in_use(relation_set.relations).exists():
        raise DomainError("RelationInUse", f"Cannot rename {relation_set.name}: its relations have harvests or tuples.")
    relation_set.name, relation_set.description = name, description
    relation_set.save()


@transaction.atomic
def delete_set(relation_set: RelationSet, by=None) -> None:
    """Delete a set and its relations. Raises SetIsShipped, NotAllowed, or RelationInUse."""
    check_can_edit(relation_set, by)
    if names := ", ".join(in_use(relation_set.relations).values_list("name", flat=True)[:3]):
        raise DomainError("RelationInUse", f"Cannot delete {relation_set.name}: {names} have harvests or tuples.")
    _delete(relation_set, relation_set.name, relation_set, list(relation_set.relations.all()), by)
