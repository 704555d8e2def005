"""Narrow the knowledge base down at a cost that depends neither on its size nor on what is asked.

A condition that rests on other tables is met in one of two ways. If few rows there fit, their tuples are looked up and
sorted. If many do, the tuples are taken in the order of the list and each is asked, but only so many for one page:
where tuples that fit are rare in that order, a page may be short and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import Exists, Expression, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat
from django.db.models.lookups import Contains

from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.models import EntityOccurrence, HarvestedTuple, KnowledgeTuple

FEW = 20_000  # rows


class Condition(NamedTuple):
    """ids: of the tuples that fit, perhaps repeated. each: the same as a question to one tuple."""

    ids: QuerySet
    each: Expression | Q


class Narrowed(NamedTuple):
    """tuples: those that fit. sought_in: where they must be looked for one by one, None if they are at hand."""

    tuples: QuerySet
    sought_in: QuerySet | None


def narrow(tuples: QuerySet, conditions: Iterable[Condition]) -> Narrowed:
    """Return those of `tuples` that meet all conditions."""
    is_at_hand, questions = False, []
    for condition in conditions:
        if condition.ids[: FEW + 1].count() <= FEW:
            tuples = tuples.filter(pk__in=condition.ids)
            is_at_hand = True
        else:
            questions.append(condition.each)
    return Narrowed(tuples.filter(*questions), tuples if questions and not is_at_hand else None)


def has_entity(entity: str, relation=None, slot: int | None = None) -> Condition:
    """The tuple has `entity`, in `slot` if that is given."""
    folded = entity.casefold()
    place = Q() if slot is None else Q(**{f"entities__{slot}": folded})
    rows = _in_place(EntityOccurrence.objects.of(entity), relation, slot)
    return Condition(_ids(rows), place & Q(_key_contains(f"{KEY_SEPARATOR}{folded}{KEY_SEPARATOR}")))


def has_entity_with(prefix: str, relation=None, slot: int | None = None) -> Condition:
    """The tuple has an entity that starts with `prefix`, in `slot` if that is given."""
    folded = prefix.casefold()
    place = Q() if slot is None else Q(**{f"entities__{slot}__startswith": folded})
    rows = _in_place(EntityOccurrence.objects.starting_with(prefix), relation, slot)
    return Condition(_ids(rows), place & Q(_key_contains(f"{KEY_SEPARATOR}{folded}")))


def _ids(rows: QuerySet) -> QuerySet:
    return rows.order_by().values("knowledge_tuple")


def is_marked(**columns) -> Condition:
    """The tuple has these values in columns with a partial index, which the order of a list would keep from use."""
    return Condition(KnowledgeTuple.objects.filter(**columns).order_by().values("pk"), Q(**columns))


def _in_place(occurrences: QuerySet, relation, slot: int | None) -> QuerySet:
    place = {"relation": relation, "slot": slot}
    return occurrences.filter(**{column: value for column, value in place.items() if value is not None})


def _key_contains(text: str) -> Expression:
    bounded = Concat(Value(KEY_SEPARATOR), F("key"), Value(KEY_SEPARATOR), output_field=TextField())
    return Contains(bounded, text)


def was_found_by(jobs: QuerySet) -> Condition:
    """The tuple was found by one of these harvests."""
    found = HarvestedTuple.objects.filter(job__in=jobs)
    # As a sum, the number of the job is in no index: the tuple's few rows are looked at, not one place for each job.
    asked = HarvestedTuple.objects.alias(job_number=F("job") + 0).filter(job_number__in=list(_numbers(jobs)))
    return Condition(_ids(found), Exists(asked.filter(knowledge_tuple=OuterRef("pk"))))


def _numbers(jobs: QuerySet) -> QuerySet:
    return jobs.order_by().values_list("pk", flat=True)


def has_row_in(rows: QuerySet) -> Condition:
    """The tuple is named by one of `rows`, of a model with a `knowledge_tuple`."""
    return Condition(_ids(rows), Exists(rows.filter(knowledge_tuple=OuterRef("pk"))))
