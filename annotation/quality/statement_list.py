"""Statement lists of a round: disagreements, all, gold, reported, commented on, or adjudicated.

Loading a page takes about as long in a round of 1,000,000 statements as in a round of 100.
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
MAX_MARKED_IDS = 10_000  # up to this number of marked statements are selected by id; more require a scan of the round

Counts = tuple[int, ...]  # n_true, n_false, n_unjudgeable of a task


class StatementGroup(NamedTuple):
    """Number of statements of a relation with the same label counts and outcome."""

    relation: int
    counts: Counts
    outcome: str
    n: int

    @property
    def has_disagreement(self) -> bool:
        return sum(map(bool, self.counts)) > 1


# LM id and setting; None and "" if imported judgments do not name an LM and a setting
Side = tuple[int | None, str]


def round_sides(round: Round) -> list[tuple[str, str]]:
    """Return (query parameter, name) of each LM and setting in the round's cells."""
    strata = round.strata.order_by("language_model__name", "setting").select_related("language_model")
    sides = strata.values_list("language_model", "language_model__name", "setting").distinct()
    return [
        (side_key(model, setting), " × ".join(part for part in (name, setting) if part) or "not named")
        for model, name, setting in sides
    ]


class StatementFilters(NamedTuple):
    """Filters of a statement list.

    None matches all statements. relation: relation id. side: LM and setting of the draws.
    """

    relation: int | None
    counts: Counts | None
    outcome: str | None
    side: Side | None = None

    @classmethod
    def from_address(cls, address: Mapping[str, str]) -> StatementFilters:
        """Parse the query parameters `relation`, `pattern` (2-1-0), `verdict`, and `side` (3.multi).

        Ignores invalid values, as in every list.
        """
        counts = address["pattern"].split("-")
        is_pattern = len(counts) == len(COUNTERS) and all(count.isdecimal() and len(count) < 5 for count in counts)
        model, dot, setting = address["side"].partition(".")
        return cls(
            relation=number_in(address["relation"]),
            counts=tuple(map(int, counts)) if is_pattern else None,
            outcome=address["verdict"] if address["verdict"] in OUTCOMES else None,
            side=(number_in(model), setting) if dot else None,
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
    """Return the counts of the round's non-gold statements, and the time of the counts if they are cached.

    side: limits the counts to one LM and setting. See annotation.monitoring.progress about the cache.
    """
    subject, tasks = "statements", round.tasks.without_gold()
    if side is not None:
        subject = f"statements {blake2s(side_key(*side).encode(), digest_size=8).hexdigest()}"
        tasks = tasks.drawn_for(*side)
    snapshot = cached_count(round, subject, lambda _: count_statements(tasks), timezone.now())
    groups = [StatementGroup(relation, tuple(counts), outcome, n) for relation, *counts, outcome, n in snapshot.content]
    return groups, snapshot.counted_at


def disagreement_patterns(groups: Sequence[StatementGroup]) -> list[str]:
    """Return the label counts with disagreement. For example, 2-1-0 means 2 True, 1 False, and 0 Unjudgeable."""
    patterns = sorted({group.counts for group in groups if group.has_disagreement})
    return ["-".join(map(str, counts)) for counts in patterns]


def disagreement_page(
    round: Round, filters: StatementFilters, groups: Sequence[StatementGroup], number: str | None
) -> Page:
    """Return a page of tasks with disagreement, ordered by the share of pairs of labels that differ, highest first."""
    n_by_counts: Counter[Counts] = Counter()
    for group in groups:
        if group.has_disagreement and filters.match(group):
            n_by_counts[group.counts] += group.n
    tasks = filters.filter(round.tasks.without_gold().with_disagreement())
    return Paginator(_TasksByDisagreement(with_evidence(tasks), n_by_counts), STATEMENTS_PER_PAGE).get_page(number)


class _TasksByDisagreement:
    """List of tasks for a Paginator.

    A page is located by the numbers of tasks per label counts, so no sorting is needed.
    """

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
    """Return the share of pairs of judgments with different labels, or 0 if there are no pairs."""
    n = sum(counts)
    return 1 - sum(count * (count - 1) for count in counts) / (n * (n - 1)) if n > 1 else 0.0


# Rows that mark tasks of a round (foreign key `task`), by the name of the mark.
MARKS: dict[str, Callable[[Round], QuerySet]] = {
    "reported": lambda round: StatementReport.objects.filter(annotator__round=round),
    "commented": lambda round: Judgment.objects.current().filter(annotator__round=round).exclude(comment=""),
    "adjudicated": lambda round: Adjudication.objects.filter(task__round=round),
}


def statement_page(
    round: Round, filters: StatementFilters, shown: str, groups: Sequence[StatementGroup], address: QueryDict
) -> tuple[KeysetPage, int | None]:
    """Return a page of a statement list, and the length of the list (None if it was not counted).

    shown: "all", "gold", or a key of MARKS.
    """
    tasks, scanned = round.tasks.without_gold(), None
    if shown == "all":
        matching, n = filters.filter(tasks), sum(group.n for group in groups if filters.match(group))
        scanned = None if filters == StatementFilters(None, None, None) else tasks
    elif shown == "gold":
        matching = filters.filter(round.tasks.gold())
        n = matching.count()
    else:
        marks = MARKS[shown](round)
        marked_ids = list(marks.order_by().values_list("task", flat=True).distinct()[: MAX_MARKED_IDS + 1])
        if len(marked_ids) <= MAX_MARKED_IDS:
            matching = filters.filter(tasks.filter(pk__in=marked_ids))
            n = matching.count()
        else:
            matching, n = filters.filter(tasks.filter(Exists(marks.filter(task=OuterRef("pk"))))), None
            scanned = tasks
    return keyset_page(Filtered(with_evidence(matching), scanned), "position", address, STATEMENTS_PER_PAGE), n


def with_evidence(tasks: QuerySet[JudgmentTask]) -> QuerySet[JudgmentTask]:
    """Prefetch the current judgments, the reports, and the current adjudications of the tasks."""
    judgments = Judgment.objects.current().select_related("annotator")
    reports = StatementReport.objects.select_related("annotator")
    adjudications = Adjudication.objects.current().select_related("by")
    return tasks.select_related("knowledge_tuple__relation__relation_set").prefetch_related(
        Prefetch("judgments", judgments, to_attr="current_judgments"),
        Prefetch("reports", reports, to_attr="reported"),
        Prefetch("adjudications", adjudications, to_attr="current_adjudications"),
    )
