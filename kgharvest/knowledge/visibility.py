"""Visibility of knowledge tuples. A tuple belongs to the projects that harvested it.

Pages, API, exports, and counts select tuples with `VisibleTuples`. A project can publish its tuples to researchers of
other projects (`Project.published_knowledge`), without the harvests behind them.
"""

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet
from django.db.models.lookups import Lookup

from kgharvest.access import owns_installation
from kgharvest.bulk.pagination import SearchFilter
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple, Relation
from kgharvest.registries import hook


class VisibleTuples:
    """Tuples that a user can see.

    Usually all or none of the tuples of a relation are visible, so lists are filtered by relation. Lists check the
    harvests of each tuple only if some harvests of a relation are visible and others are not.
    """

    def __init__(self, user) -> None:
        self._user, self._sees_all = user, owns_installation(user)
        self.harvests = HarvestJob.objects.filter(n_tuples__gt=0).known_to(user).order_by()

    @cached_property
    def _shares(self) -> dict[int, float]:
        """Share of visible harvests by relation id, for relations with harvests."""
        harvests = HarvestJob.objects.filter(n_tuples__gt=0).order_by().values_list("relation")
        n_visible = Count("pk", filter=Q(pk__in=self.harvests.values("pk")))
        return {relation: n / n_all for relation, n, n_all in harvests.annotate(n=n_visible, n_all=Count("pk"))}

    def relations(self) -> QuerySet[Relation]:
        """Return the relations with visible tuples."""
        return Relation.objects.filter(Exists(self.harvests.filter(relation=OuterRef("pk"))))

    def filters(self, relation: Relation | None = None) -> list[SearchFilter]:
        """Return the filters that select the visible tuples, or the visible tuples of `relation`. [] if all are."""
        if self._sees_all:
            return []
        shares = {relation.pk: self._shares.get(relation.pk, 0)} if relation else self._shares
        if all(share == 1 for share in shares.values()):
            return []
        if any(0 < share < 1 for share in shares.values()):
            return [was_found_by(self.harvests.filter(relation=relation) if relation else self.harvests)]
        relations = [pk for pk, share in shares.items() if share]
        tuples = KnowledgeTuple.objects.harvested().filter(relation__in=relations)
        # "+ 0" prevents the use of the index on relation, which would sort all tuples of these relations.
        return [SearchFilter(tuples.order_by().values("pk"), IsOneOf(F("relation") + 0, relations))]

    def occurrences(self, rows: QuerySet) -> QuerySet:
        """Return the rows of EntityOccurrence whose tuple is visible."""
        if self._sees_all or all(share == 1 for share in self._shares.values()):
            return rows
        is_visible = Q(relation__in=[pk for pk, share in self._shares.items() if share == 1])
        if partly := [pk for pk, share in self._shares.items() if 0 < share < 1]:
            is_visible |= Q(relation__in=partly) & is_found_by(self.harvests, "knowledge_tuple")
        return rows.filter(is_visible)

    def look_up(self, tuples: QuerySet) -> QuerySet:
        """Return the visible rows of `tuples`, including tuples that are only judged in the user's rounds.

        For single tuples. In lists, `filters` is faster.
        """
        if self._sees_all:
            return tuples
        of_tuple = {"knowledge_tuple": OuterRef("pk")}
        is_harvested = Exists(HarvestedTuple.objects.filter(job__in=self.harvests.values("pk"), **of_tuple))
        return tuples.filter(is_harvested | Exists(hook("tuple_verdicts")(self._user).tasks.filter(**of_tuple)))

    def count_harvests(self, tuples: Iterable[KnowledgeTuple]) -> None:
        """Set `n_harvests` and `best_score` of loaded tuples to their values in the visible harvests."""
        rows = {} if self._sees_all else {row.pk: row for row in tuples if self._shares.get(row.relation_id) != 1}
        if not rows:
            return
        harvested = HarvestedTuple.objects.filter(knowledge_tuple__in=rows, job__in=self.harvests.values("pk"))
        numbers = harvested.order_by().values_list("knowledge_tuple").annotate(Count("pk"), Max("score"))
        found = {pk: (n, best) for pk, n, best in numbers}
        for pk, row in rows.items():
            row.n_harvests, row.best_score = found.get(pk, (0, None))


class IsOneOf(Lookup):
    """Membership of an integer in a list.

    The list is a single parameter, because PostgreSQL allows only 65,535 parameters.
    """

    lookup_name = "is_one_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        number, parameters = self.process_lhs(compiler, connection)
        if connection.vendor == "postgresql":
            return f"{number} = ANY(%s::bigint[])", [*parameters, list(self.rhs)]
        values = "SELECT value FROM json_each(%s)"
        return f"{number} IN ({values})", [*parameters, json.dumps(list(self.rhs))]


def is_found_by(jobs: QuerySet, path: str) -> Exists:
    """Return the condition that one of these jobs harvested the tuple. path: lookup from a row to its tuple."""
    job_ids = list(jobs.order_by().values_list("pk", flat=True))
    # "+ 0" prevents the use of the index on job. The database then scans the few rows of each tuple instead of one
    # index range per job.
    return Exists(HarvestedTuple.objects.filter(IsOneOf(F("job") + 0, job_ids), knowledge_tuple=OuterRef(path)))


def was_found_by(jobs: QuerySet) -> SearchFilter:
    """Match tuples harvested by one of these jobs."""
    ids = HarvestedTuple.objects.filter(job__in=jobs).order_by().values("knowledge_tuple")
    return SearchFilter(ids, is_found_by(jobs, "pk"))
