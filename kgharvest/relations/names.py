"""Relations and sets by the names that people write: `relation`, `set/relation`, `set`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from django.db.models import QuerySet

from kgharvest.models import Relation, RelationSet
from kgharvest.names import UnresolvedName, alternatives, resolve_name

logger = logging.getLogger(__name__)

DEMO_SET = "demo"  # what the embedded LM, the default model, was trained on

Scope = Callable[[Relation], bool]
OWN_FIRST: tuple[Scope, ...] = (
    lambda relation: not relation.relation_set.is_shipped,
    lambda relation: relation.relation_set.name == DEMO_SET,
    lambda relation: True,
)


def resolve_relation(
    name: str,
    set_name: str | None = None,
    scopes: Sequence[Scope] = OWN_FIRST,
    among: QuerySet[Relation] | None = None,
) -> Relation:
    """Return the relation that "set/name", or `name` in the set `set_name`, or `name` alone means.

    scopes: of a name alone, the first in which any relation bears it counts; by default the user's own sets, then the
    demo's, then the others that are shipped. among: those that may be meant; all unless given. Logs which was taken if
    others have the name too; a command's log is on standard error. Raises UnresolvedName.
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
        raise _no_such_relation(bare_name, in_set, among)
    in_scope = next(filter(None, ([path for path in by_path if scope(by_path[path])] for scope in scopes)), [])
    path = resolve_name(name, in_scope, "relation")
    if scopes is OWN_FIRST and (others := [other for other in by_path if other not in in_scope]):
        logger.warning("%r is taken to mean %s, not %s; name the set for another.", name, path, ", ".join(others))
    return by_path[path]


def _no_such_relation(name: str, set_name: str, among: QuerySet[Relation]) -> UnresolvedName:
    known = among.filter(relation_set__name=set_name) if set_name else among
    if names := sorted(set(known.values_list("name", flat=True))):
        advice = alternatives(name, names)
    else:
        advice = "import some with import_relations first"
    where = f" in the set {set_name!r}" if set_name else ""
    return UnresolvedName(f"There is no relation {name!r}{where}; {advice}.")


def relations_of_set(name: str) -> list[Relation]:
    """Return the relations of a set. Raises UnresolvedName if there is no such set or it is empty."""
    relations = list(Relation.objects.filter(relation_set__name=name).select_related("relation_set"))
    if not relations:
        raise _no_such_set(name)
    return relations


def resolve_set(name: str) -> RelationSet:
    """Return the set `name`. Raises UnresolvedName."""
    relation_set: RelationSet | None = RelationSet.objects.filter(name=name).first()
    if relation_set is None:
        raise _no_such_set(name)
    return relation_set


def _no_such_set(name: str) -> UnresolvedName:
    names = ", ".join(RelationSet.objects.values_list("name", flat=True)) or "none yet"
    return UnresolvedName(f"There is no set of relations {name!r}; the sets are: {names}.")
