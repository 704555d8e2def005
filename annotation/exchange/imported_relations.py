"""Which relation a file of judgments means by a name."""

from __future__ import annotations

from django.db.models import Q

from annotation.models import Round
from kgharvest.models import Relation
from kgharvest.relations.services import AmbiguousRelation, resolve_relation


def meant_relation(name: str, round: Round, set_name: str | None) -> Relation:
    """Return the relation that a file names as "set/name", or by its name alone.

    That is the one of the set `set_name`, else the one that the round is about, else the only one there is. Raises
    NotFound, or AmbiguousRelation with all that could be meant.
    """
    named = Relation.objects.filter(name=name).select_related("relation_set").order_by("relation_set__name")
    for near in (Q(relation_set__name=set_name), Q(strata__round=round), Q()):
        found = list(named.filter(near).distinct())
        if len(found) > 1:
            paths = ", ".join(relation.path for relation in found)
            raise AmbiguousRelation(
                f"is about {name!r}, which several sets have; write one of {paths}, or import with --set"
            )
        if found:
            return found[0]
    return resolve_relation(name)
