"""Which statements of a round a list shows, and a page of them at a cost that hardly grows with the round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from django.http import QueryDict
from django.utils import timezone

from annotation.models import Adjudication, Judgment, JudgmentTask, Round, StatementReport
from annotation.rounds.progress import OUTCOMES, count_statements, counted
from kgharvest.bulk.pagination import KeysetPage, keyset_page
from kgharvest.bulk.search_filters import Narrowed

STATEMENTS_PER_PAGE = 25
COUNTERS = ("n_true", "n_false", "n_unjudgeable")
FEW = 10_000  # statements that are looked up by their ids; of more, a stretch of the round holds a page full


class Filters(NamedTuple):
    """None: whichever. relation: its id; counts: by label; outcome: one of OUTCOMES."""

    relation: int | None
    counts: tuple[int, ...] | None
    outcome: str | None

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Filters:
        """Read an address; what cannot be meant is left out, as in every list."""
        relation = int(asked["relation"][:18]) if asked["relation"].isdecimal() else None
        counts = asked["pattern"].split("-")
        is_pattern = len(counts) == len(COUNTERS) and all(each.isdecimal() and len(each) < 5 for each in counts)
        verdict = asked["verdict"]
        return cls(relation, tuple(map(int, counts)) if is_pattern else None, verdict if verdict in OUTCOMES else None)

    def narrow(self, tasks: QuerySet) -> QuerySet:
        if self.relation is not None:
            tasks = tasks.filter(knowledge_tuple__relation=self.relation)
        if self.counts is not None:
            tasks = tasks.filter(**dict(zip(COUNTERS, self.counts, strict=True)))
        if self.outcome is not None:
            tasks = tasks.filter(verdict="" if self.outcome == "incomplete" else self.outcome)
        return tasks

    def fit(self, alike: Alike) -> bool:
        asked = zip(self, (alike.relation, alike.counts, alike.outcome), strict=True)
        return all(wanted in (None, value) for wanted, value in asked)


class Alike(NamedTuple):
    """n statements of a relation that have the same counts and outcome."""

    relation: int
    counts: tuple[int, ...]
    outcome: str
    n: int

    @property
    def is_contested(self) -> bool:
        return sum(map(bool, self.counts)) > 1


def statements_alike(round: Round) -> tuple[list[Alike], datetime | None]:
    """Return how many statements of a round look alike, gold left out, and when they were counted if not for this look.

    See annotation.rounds.progress.
    """
    found = counted(round, "statements", count_statements, timezone.now())
    alike = [Alike(relation, tuple(counts), outcome, n) for relation, *counts, outcome, n in found.content]
    return alike, found.counted_at


def patterns(statements: Sequence[Alike]) -> list[str]:
    """Return the ways in which judgments differ, such as 2-1-0: True, False, Unjudgeable."""
    return ["-".join(map(str, counts)) for counts in sorted({each.counts for each in statements if each.is_contested})]


# -- most disagreement first -------------------------------------------------------------------------------------------


def contested_page(round: Round, filters: Filters, statements: Sequence[Alike], number: str | None) -> Page:
    """Return a page of the tasks whose judgments are not all alike, by the share of their pairs that differ."""
    alike: Counter[tuple[int, ...]] = Counter()
    for each in statements:
        if each.is_contested and filters.fit(each):
            alike[each.counts] += each.n
    tasks = filters.narrow(round.tasks.without_gold().contested())
    return Paginator(_MostDisagreementFirst(with_all_about(tasks), alike), STATEMENTS_PER_PAGE).get_page(number)


class _MostDisagreementFirst:
    """Tasks as a list that pages are cut from: found from how many tasks show each pattern, without sorting all."""

    def __init__(self, tasks: QuerySet, n_alike: Mapping[tuple[int, ...], int]):
        self.tasks = tasks.order_by("position")
        self.patterns = sorted(n_alike.items(), key=lambda each: (-disagreement(each[0]), each[0]))

    def count(self) -> int:
        return sum(n for _, n in self.patterns)

    def __getitem__(self, page: slice) -> list[JudgmentTask]:
        found, first = [], page.start
        for counts, n in self.patterns:
            wanted = page.stop - page.start - len(found)
            if first < n and wanted:
                alike = self.tasks.filter(**dict(zip(COUNTERS, counts, strict=True)))
                found += alike[first : first + wanted]
            first = max(0, first - n)
        return found


def disagreement(counts: Sequence[int]) -> float:
    """Return the share of pairs of judgments that differ, 0 where there is no pair."""
    n = sum(counts)
    return 1 - sum(each * (each - 1) for each in counts) / (n * (n - 1)) if n > 1 else 0.0


# -- in the round's order ----------------------------------------------------------------------------------------------


class Ordered(NamedTuple):
    """n: how many statements the whole list has, None where nobody counted."""

    page: KeysetPage
    n: int | None


def all_page(round: Round, filters: Filters, statements: Sequence[Alike], address: QueryDict) -> Ordered:
    tasks = round.tasks.without_gold()
    sought_in = tasks if any(each is not None for each in filters) else None
    return Ordered(
        _page(filters.narrow(tasks), sought_in, address), sum(each.n for each in statements if filters.fit(each))
    )


def gold_page(round: Round, filters: Filters, address: QueryDict) -> Ordered:
    tasks = filters.narrow(round.tasks.gold())
    return Ordered(_page(tasks, None, address), tasks.count())


def marked_page(round: Round, filters: Filters, marks: QuerySet, address: QueryDict) -> Ordered:
    """Return the page of the tasks that `marks` of the round are about."""
    tasks = round.tasks.without_gold()
    marked = list(marks.order_by().values_list("task", flat=True).distinct()[: FEW + 1])
    if len(marked) <= FEW:
        fitting = filters.narrow(tasks.filter(pk__in=marked))
        return Ordered(_page(fitting, None, address), fitting.count())
    fitting = filters.narrow(tasks.filter(Exists(marks.filter(task=OuterRef("pk")))))
    return Ordered(_page(fitting, tasks, address), None)


def _page(tasks: QuerySet, sought_in: QuerySet | None, address: QueryDict) -> KeysetPage:
    return keyset_page(Narrowed(with_all_about(tasks), sought_in), "position", address, STATEMENTS_PER_PAGE)


def reports_of(round: Round) -> QuerySet:
    return StatementReport.objects.filter(annotator__round=round)


def comments_of(round: Round) -> QuerySet:
    return Judgment.objects.current().filter(annotator__round=round).exclude(comment="")


def adjudications_of(round: Round) -> QuerySet:
    return Adjudication.objects.filter(task__round=round)


MARKS = {"reported": reports_of, "commented": comments_of, "adjudicated": adjudications_of}


def with_all_about(tasks: QuerySet) -> QuerySet:
    """Fetch with the tasks, in a query each, what people said, reported and decided about them."""
    judgments = Judgment.objects.current().select_related("annotator")
    reports = StatementReport.objects.select_related("annotator")
    adjudications = Adjudication.objects.current().select_related("by")
    return tasks.select_related("knowledge_tuple__relation").prefetch_related(
        Prefetch("judgments", judgments, to_attr="said"),
        Prefetch("reports", reports, to_attr="reported"),
        Prefetch("adjudications", adjudications, to_attr="decided"),
    )
