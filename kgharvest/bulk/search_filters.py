"""Search filters on knowledge tuples, at a cost that depends neither on how many there are nor on what is searched.

A filter that rests on other tables is applied in one of two ways. If few rows there fit, their tuples are looked up
and sorted. If many do, the tuples are scanned in the order of the list, but only so many for one page: where tuples
that fit are rare in that order, a page may be short and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.models import Exists, Expression, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat
from django.db.models.lookups import Contains

from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.models import EntityOccurrence, HarvestedTuple, KnowledgeTuple, Relation

MOST_LOOKED_UP = 20_000  # rows


class SearchFilter(NamedTuple):
    """ids: of the tuples that fit, perhaps repeated. condition: the same as a condition on one tuple."""

    ids: QuerySet
    condition: Expression | Q


class Filtered(NamedTuple):
    """rows: those that fit. scanned: the rows that must be scanned for them, None if they are looked up."""

    rows: QuerySet
    scanned: QuerySet | None = None


def apply_filters(tuples: QuerySet, filters: Iterable[SearchFilter]) -> Filtered:
    """Return those of `tuples` that pass all filters."""
    is_looked_up, conditions = False, []
    for search_filter in filters:
        if search_filter.ids[: MOST_LOOKED_UP + 1].count() <= MOST_LOOKED_UP:
            tuples = tuples.filter(pk__in=search_filter.ids)
            is_looked_up = True
        else:
            conditions.append(search_filter.condition)
    return Filtered(tuples.filter(*conditions), tuples if conditions and not is_looked_up else None)


def has_entity(entity: str, relation: Relation | None = None, slot: int | None = None) -> SearchFilter:
    """The tuple has `entity`, in `slot` if that is given."""
    folded = entity.casefold()
    condition = _key_contains(f"{KEY_SEPARATOR}{folded}{KEY_SEPARATOR}")
    if slot is not None:
        condition &= Q(**{f"entities__{slot}": folded})
    return SearchFilter(_ids_at(EntityOccurrence.objects.of(entity), relation, slot), condition)


def has_entity_starting_with(prefix: str, relation: Relation | None = None, slot: int | None = None) -> SearchFilter:
    """The tuple has an entity that starts with `prefix`, in `slot` if that is given."""
    folded = prefix.casefold()
    condition = _key_contains(f"{KEY_SEPARATOR}{folded}")
    if slot is not None:
        condition &= Q(**{f"entities__{slot}__startswith": folded})
    return SearchFilter(_ids_at(EntityOccurrence.objects.starting_with(prefix), relation, slot), condition)


def _ids_at(occurrences: QuerySet, relation: Relation | None, slot: int | None) -> QuerySet:
    if relation is not None:
        occurrences = occurrences.filter(relation=relation)
    if slot is not None:
        occurrences = occurrences.filter(slot=slot)
    return _tuple_ids(occurrences)


def _tuple_ids(rows: QuerySet) -> QuerySet:
    return rows.order_by().values("knowledge_tuple")


def _key_contains(text: str) -> Q:
    bounded = Concat(Value(KEY_SEPARATOR), F("key"), Value(KEY_SEPARATOR), output_field=TextField())
    return Q(Contains(bounded, text))


def is_marked(**columns: Any) -> SearchFilter:
    """The tuple has these values in columns with a partial index, which the order of a list would keep from use."""
    return SearchFilter(KnowledgeTuple.objects.filter(**columns).order_by().values("pk"), Q(**columns))


def was_found_by(jobs: QuerySet) -> SearchFilter:
    """The tuple was found by one of these harvests."""
    job_ids = list(jobs.order_by().values_list("pk", flat=True))
    # As a sum, the number of the job is in no index: the tuple's few rows are looked at, not one range for each job.
    findings = HarvestedTuple.objects.alias(job_number=F("job") + 0).filter(job_number__in=job_ids)
    return SearchFilter(
        _tuple_ids(HarvestedTuple.objects.filter(job__in=jobs)),
        Exists(findings.filter(knowledge_tuple=OuterRef("pk"))),
    )


def has_row_in(rows: QuerySet) -> SearchFilter:
    """The tuple is named by one of `rows`, of a model with a `knowledge_tuple`."""
    return SearchFilter(_tuple_ids(rows), Exists(rows.filter(knowledge_tuple=OuterRef("pk"))))
