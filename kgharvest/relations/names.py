"""Lookup of relations and relation sets by name: `relation`, `set/relation`, or `set`."""

import logging
from collections.abc import Callable, Sequence

from django.db.models import QuerySet

from kgharvest.models import Relation, RelationSet
from kgharvest.names import UnresolvedName, alternatives, resolve_name

logger = logging.getLogger(__name__)

DEMO_SET = "demo"  # searched first, because the embedded LM, which is the default, was trained on this set

Scope = Callable[[Relation], bool]
PROJECT_SETS_FIRST: tuple[Scope, ...] = (
    lambda relation: not relation.relation_set.is_shipped,
    lambda relation: relation.relation_set.name == DEMO_SET,
    lambda relation: True,
)


def resolve_relation(
    name: str,
    set_name: str | None = None,
    scopes: Sequence[Scope] = PROJECT_SETS_FIRST,
    among: QuerySet[Relation] | None = None,
) -> Relation:
    """Return the relation that `name` identifies: "set/name", a name in the set `set_name`, or a name alone.

    scopes: groups of sets. A name alone is looked up in the first scope that contains a match. By default, the scopes
    are project sets, the demo set, and the other built-in sets, and a warning is logged if a later scope also contains
    a match. among: relations to search; by default all relations. Raises UnresolvedName.
    """
    if set_name is not None and "/" not in name:
        name = f"{set_name}/{name}"
    in_set, _, bare_name = name.rpartition("/")
    among = Relation.objects.all() if among is None else among
    relations = among.filter(name=bare_name).select_related("relation_set").order_by("relation_set__name")
    if in_set:
        relations = relations.filter(relation_set__name=in_set)
    by_path: dict[str, Relation] = {relation.path: relation for relation in relations}
    if not by_path:
        other_names = among.filter(relation_set__name=in_set) if in_set else among
        names = sorted(set(other_names.values_list("name", flat=True)))
        advice = alternatives(bare_name, names) if names else "import relations first"
        where = f" in the set {in_set!r}" if in_set else ""
        raise UnresolvedName(f"There is no relation {bare_name!r}{where}; {advice}.")
    in_scope = next(filter(None, ([path for path in by_path if scope(by_path[path])] for scope in scopes)), [])
    path = resolve_name(name, in_scope, "relation")
    if scopes is PROJECT_SETS_FIRST and (others := [other for other in by_path if other not in in_scope]):
        logger.warning("Using %s for %r. To use %s, include the set name.", path, name, " or ".join(others))
    return by_path[path]


def relations_of_set(name: str) -> list[Relation]:
    """Return the relations of a set. Raises UnresolvedName if the set is missing or empty."""
    relations = list(Relation.objects.filter(relation_set__name=name).select_related("relation_set"))
    if not relations:
        raise _unknown_set(name)
    return relations


def resolve_set(name: str) -> RelationSet:
    """Return the set `name`. Raises UnresolvedName."""
    relation_set: RelationSet | None = RelationSet.objects.filter(name=name).first()
    if relation_set is None:
        raise _unknown_set(name)
    return relation_set


def _unknown_set(name: str) -> UnresolvedName:
    names = ", ".join(RelationSet.objects.values_list("name", flat=True))
    return UnresolvedName(f"There is no relation set {name!r}. Existing sets: {names or 'none; import one first'}.")
