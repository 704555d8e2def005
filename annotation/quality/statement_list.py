"""The statements of a round as lists: disagreements first, all, gold, reported, commented on or adjudicated.

A page of a list costs hardly more in a round of a million statements than in one of a hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2s
from typing import NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from django.http import QueryDict
from django.utils import timezone

from annotation.models import Adjudication, Judgment, JudgmentTask, Round, StatementReport
from annotation.monitoring.progress import OUTCOMES, cached_count, count_statements
from annotation.rounds.models import side_key
from kgharvest.bulk.pagination import Filtered, KeysetPage, keyset_page, number_in

STATEMENTS_PER_PAGE = 25
COUNTERS = ("n_true", "n_false", "n_unjudgeable")
FEW = 10_000  # statements that are looked up by their ids; of more, a stretch of the round holds a page full

Counts = tuple[int, ...]  # n_true, n_false, n_unjudgeable of a task


class StatementGroup(NamedTuple):
    """n statements of a relation that have the same counts and outcome."""

    relation: int
    counts: Counts
    outcome: str
    n: int

    @property
    def has_disagreement(self) -> bool:
        return sum(map(bool, self.counts)) > 1


class Side(NamedTuple):
    """An LM, by its id, and a setting; None and empty where imported judgments name none."""

    model: int | None
    setting: str


def round_sides(round: Round) -> list[tuple[str, str]]:
    """Return the LMs and settings of a round's cells, each as addresses have it and by name."""
    strata = round.strata.order_by("language_model__name", "setting").select_related("language_model")
    sides = strata.values_list("language_model", "language_model__name", "setting").distinct()
    return [
        (side_key(model, setting), " × ".join(part for part in (name, setting) if part) or "not named")
        for model, name, setting in sides
    ]


class StatementFilters(NamedTuple):
    """None: whichever. relation: its id; counts: by label; outcome: one of OUTCOMES; side: they were drawn for."""

    relation: int | None
    counts: Counts | None
    outcome: str | None
    side: Side | None = None

    @classmethod
    def from_address(cls, address: Mapping[str, str]) -> StatementFilters:
        """Read `relation`, `pattern` (2-1-0), `verdict` and `side` (3.multi).

        What cannot be meant is left out, as in every list.
        """
        relation = number_in(address["relation"])
        counts = address["pattern"].split("-")
        is_pattern = len(counts) == len(COUNTERS) and all(count.isdecimal() and len(count) < 5 for count in counts)
        outcome = address["verdict"]
        model, dot, setting = address["side"].partition(".")
        return cls(
            relation,
            tuple(map(int, counts)) if is_pattern else None,
            outcome if outcome in OUTCOMES else None,
            Side(number_in(model), setting) if dot else None,
        )

    def filter(self, tasks: QuerySet[JudgmentTask]) -> QuerySet[JudgmentTask]:
        if self.relation is not None:
            tasks = tasks.filter(knowledge_tuple__relation=self.relation)
        if self.counts is not None:
            tasks = tasks.filter(**dict(zip(COUNTERS, self.counts, strict=True)))
        if self.outcome is not None:
            tasks = tasks.filter(verdict="" if self.outcome == "incomplete" else self.outcome)
        if self.side is not None:
            tasks = tasks.drawn_for(*self.side)
        return tasks

    def match(self, group: StatementGroup) -> bool:
        pairs = zip(self[:3], (group.relation, group.counts, group.outcome), strict=True)
        return all(condition in (None, value) for condition, value in pairs)


def statement_groups(round: Round, side: Side | None = None) -> tuple[list[StatementGroup], datetime | None]:
    """Return how a round's statements stand, those drawn for a side or all, and when they were counted if not now.

    Gold is left out. See annotation.monitoring.progress.
    """
    subject, tasks = "statements", round.tasks.without_gold()
    if side is not None:
        subject = f"statements {blake2s(side_key(*side).encode(), digest_size=8).hexdigest()}"
        tasks = tasks.drawn_for(*side)
    snapshot = cached_count(round, subject, lambda _: count_statements(tasks), timezone.now())
    groups = [StatementGroup(relation, tuple(counts), outcome, n) for relation, *counts, outcome, n in snapshot.content]
    return groups, snapshot.counted_at


def disagreement_patterns(groups: Sequence[StatementGroup]) -> list[str]:
    """Return the ways in which judgments differ, such as 2-1-0: True, False, Unjudgeable."""
    return [
        "-".join(map(str, counts)) for counts in sorted({group.counts for group in groups if group.has_disagreement})
    ]


def disagreement_page(
    round: Round, filters: StatementFilters, groups: Sequence[StatementGroup], number: str | None
) -> Page:
    """Return a page of the tasks whose judgments are not all alike, by the share of their pairs that differ."""
    n_by_counts: Counter[Counts] = Counter()
    for group in groups:
        if group.has_disagreement and filters.match(group):
            n_by_counts[group.counts] += group.n
    tasks = filters.filter(round.tasks.without_gold().with_disagreement())
    return Paginator(_TasksByDisagreement(with_evidence(tasks), n_by_counts), STATEMENTS_PER_PAGE).get_page(number)


class _TasksByDisagreement:
    """Tasks as a list that pages are cut from: found from how many tasks have which counts, without sorting them."""

    def __init__(self, tasks: QuerySet[JudgmentTask], n_by_counts: Mapping[Counts, int]):
        self.tasks = tasks.order_by("position")
        self.n_by_counts = sorted(n_by_counts.items(), key=lambda item: (-disagreement(item[0]), item[0]))

    def count(self) -> int:
        return sum(n for _, n in self.n_by_counts)

    def __getitem__(self, page: slice) -> list[JudgmentTask]:
        tasks, first = [], page.start
        for counts, n in self.n_by_counts:
            n_missing = page.stop - page.start - len(tasks)
            if first < n and n_missing:
                with_counts = self.tasks.filter(**dict(zip(COUNTERS, counts, strict=True)))
                tasks += with_counts[first : first + n_missing]
            first = max(0, first - n)
        return tasks


def disagreement(counts: Sequence[int]) -> float:
    """Return the share of pairs of judgments that differ, 0 where there is no pair."""
    n = sum(counts)
    return 1 - sum(count * (count - 1) for count in counts) / (n * (n - 1)) if n > 1 else 0.0


class StatementPage(NamedTuple):
    """n: how many statements the whole list has, None where nobody counted."""

    page: KeysetPage
    n: int | None


def page_of_all(
    round: Round, filters: StatementFilters, groups: Sequence[StatementGroup], address: QueryDict
) -> StatementPage:
    tasks = round.tasks.without_gold()
    scanned = None if filters == StatementFilters(None, None, None) else tasks
    n = sum(group.n for group in groups if filters.match(group))
    return StatementPage(_keyset_page(filters.filter(tasks), scanned, address), n)


def page_of_gold(round: Round, filters: StatementFilters, address: QueryDict) -> StatementPage:
    tasks = filters.filter(round.tasks.gold())
    return StatementPage(_keyset_page(tasks, None, address), tasks.count())


# What was done to tasks of a round: by the name of the mark, the rows that name them by `task`.
MARKS: dict[str, Callable[[Round], QuerySet]] = {
    "reported": lambda round: StatementReport.objects.filter(annotator__round=round),
    "commented": lambda round: Judgment.objects.current().filter(annotator__round=round).exclude(comment=""),
    "adjudicated": lambda round: Adjudication.objects.filter(task__round=round),
}


def page_of_marked(round: Round, filters: StatementFilters, mark: str, address: QueryDict) -> StatementPage:
    """Return the page of the tasks that have a mark of MARKS."""
    marks = MARKS[mark](round)
    tasks = round.tasks.without_gold()
    marked = list(marks.order_by().values_list("task", flat=True).distinct()[: FEW + 1])
    if len(marked) <= FEW:
        matching = filters.filter(tasks.filter(pk__in=marked))
        return StatementPage(_keyset_page(matching, None, address), matching.count())
    matching = filters.filter(tasks.filter(Exists(marks.filter(task=OuterRef("pk")))))
    return StatementPage(_keyset_page(matching, tasks, address), None)


def _keyset_page(tasks: QuerySet, scanned: QuerySet | None, address: QueryDict) -> KeysetPage:
    return keyset_page(Filtered(with_evidence(tasks), scanned), "position", address, STATEMENTS_PER_PAGE)


def with_evidence(tasks: QuerySet[JudgmentTask]) -> QuerySet[JudgmentTask]:
    """Fetch with the tasks, in a query each, their current judgments, reports and adjudications."""
    judgments = Judgment.objects.current().select_related("annotator")
    reports = StatementReport.objects.select_related("annotator")
    adjudications = Adjudication.objects.current().select_related("by")
    return tasks.select_related("knowledge_tuple__relation__relation_set").prefetch_related(
        Prefetch("judgments", judgments, to_attr="current_judgments"),
        Prefetch("reports", reports, to_attr="reported"),
        Prefetch("adjudications", adjudications, to_attr="current_adjudications"),
    )
