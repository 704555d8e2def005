"""Mapping of a file's relations to existing relations, or to new relations created from templates."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet

from kgharvest.bulk.file_reading import read_json
from kgharvest.contrib.knowledge_graphs.imports.statements import Statement, last_part
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.models import Relation
from kgharvest.names import UnresolvedName
from kgharvest.relations.checks import RelationEntry, authoring_errors, relation_errors
from kgharvest.relations.names import resolve_relation

SLOT = re.compile(r"\[([^\[\]]+)\]")
HEAD, TAIL = "HEAD", "TAIL"
TEXTS = ("relation", "name", "template")
NOT_IN_NAMES = re.compile(r"[\s/]+")


class BadMapping(DomainError):
    """Invalid mapping of a relation."""


class Target(NamedTuple):
    """Target to which a file's relation is mapped: an existing `relation` or a new `entry`.

    slots: value names by slot.
    """

    name: str
    statement: str
    slots: Sequence[str]
    relation: Relation | None = None
    entry: RelationEntry | None = None

    def entities_of(self, statement: Statement) -> list[str | None]:
        """Return the entities by slot. The entity is None if the statement has no value for the slot."""
        values = {**statement.others, HEAD: statement.head, TAIL: statement.tail}
        return [values.get(slot) for slot in self.slots]


def existing_target(name: str, relations: QuerySet[Relation], others: Sequence[str] = ()) -> Target:
    """Return the existing relation `name`. others: value names for the slots after the second. Raises BadMapping."""
    try:
        relation = resolve_relation(name, among=relations)
    except UnresolvedName as error:
        raise BadMapping(str(error)) from error
    n_others = relation.arity - 2
    others = others or [f"ENT{slot}" for slot in range(2, relation.arity)]
    if len(others) != n_others:
        raise BadMapping(f"{relation.path} requires the names of {n_others} values in addition to head and tail.")
    return Target(relation.path, relation.statement, (HEAD, TAIL, *others), relation=relation)


def new_target(name: str, template: str) -> Target:
    """Return a new relation from a template such as "[HEAD] was born in [TAIL]." Raises BadMapping."""
    slots = list(dict.fromkeys(SLOT.findall(template)))
    numbers = {slot: f"<ENT{number}>" for number, slot in enumerate(slots)}
    if HEAD not in slots or TAIL not in slots:
        raise BadMapping(f"The template {template!r:.80} must contain both [HEAD] and [TAIL].")
    sentence = SLOT.sub(lambda slot: numbers[slot[1]], template.strip())
    entry = RelationEntry(f"relation {name!r}", name, [sentence], [], statement=sentence, needs_seeds=False)
    if errors := list(relation_errors(entry)) or list(authoring_errors(entry)):
        raise BadMapping(f"Cannot create the relation {name!r:.80}: {errors[0].reason}.")
    return Target(name, sentence, slots, entry=entry)


def default_name(file_relation: str) -> str:
    """Return the default name of a new relation, derived from its name in the file."""
    return NOT_IN_NAMES.sub("_", last_part(file_relation))[:100]


def targets_by_name(file_relations: Iterable[str], relations: QuerySet[Relation]) -> dict[str, Target]:
    """Return a target for each relation of the file whose name belongs to exactly one existing relation."""
    existing_names = set(relations.values_list("name", flat=True))
    targets: dict[str, Target] = {}
    for name in file_relations:
        for candidate in (name, default_name(name)):
            if candidate.rpartition("/")[2] in existing_names and name not in targets:
                try:
                    targets[name] = existing_target(candidate, relations)
                except BadMapping:
                    continue  # no target, because several relations have this name
    return targets


def read_mapping(text: str, source: str, relations: QuerySet[Relation]) -> dict[str, Target]:
    """Parse a mapping file (format: docs/knowledge-graphs.md). Raises ImportRefused."""
    document = read_json(text, source)
    entries = document.get("relations") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise ImportRefused(source, [BadEntry("file", 'the object "relations" is missing or empty')])
    targets: dict[str, Target] = {}
    faults = Faults()
    for name, entry in entries.items():
        try:
            targets[name] = _target(name, entry, relations)
        except BadMapping as error:
            faults.add(BadEntry(f"relation {name!r:.80}", str(error).rstrip(".")))
    faults.refuse(source)
    return targets


def _target(name: str, entry: Any, relations: QuerySet[Relation]) -> Target:
    if isinstance(entry, str):
        entry = {"relation": entry}
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key, ""), str) for key in TEXTS):
        raise BadMapping("Expected a relation name, or an object with relation, or with name and template.")
    if unknown := set(entry) - {*TEXTS, "slots"}:
        raise BadMapping(f"Unknown keys: {', '.join(sorted(unknown))}. Valid keys: {', '.join(TEXTS)}, and slots.")
    slots = entry.get("slots", [])
    if not isinstance(slots, list) or not all(isinstance(slot, str) for slot in slots):
        raise BadMapping("slots must be a list of names.")
    if ("relation" in entry) == ("template" in entry):
        raise BadMapping("Use either relation, for an existing relation, or template, for a new relation.")
    if "relation" in entry:
        return existing_target(entry["relation"], relations, slots)
    return new_target(entry.get("name") or default_name(name), entry["template"])
