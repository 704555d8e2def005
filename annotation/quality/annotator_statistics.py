"""Annotator statistics of a round: profiles, flags, and counts of comments, reports, and training answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import Case, Count, F, QuerySet, Subquery, Value, When
from django.db.models.functions import Length

from annotation.judging.third_judgments import ThirdJudgment, third_judgments
from annotation.models import (
    Annotator,
    Judgment,
    JudgmentTask,
    Label,
    Limits,
    Round,
    StatementReport,
    Training,
    WhoAnswers,
)
from annotation.monitoring.progress import CachedCount, cached_count, label_totals
from annotation.quality import profiles
from annotation.quality.profiles import JudgmentRow, JudgmentSigns, Profile, profile_of
from annotation.questionnaire.questions import who_questions
from kgharvest.statistics.rates import rate

ROWS_AT_ONCE = 5000


def annotator_statistics(round: Round, now: datetime) -> CachedCount:
    """Return one dict per annotator of a round, sorted by code.

    Counting takes about a minute in a large round, so the statistics are cached; only the status is always current. The
    first request, and the first request after an exclusion, return no rows.
    """
    snapshot = cached_count(round, "annotators", count_annotators, now, first=lambda _: [])
    if snapshot.counted_at is None:
        return snapshot
    status = dict(round.annotators.values_list("pk", "status"))
    return replace(snapshot, content=[row | {"status": status[row["pk"]]} for row in snapshot.content])


def count_annotators(round: Round) -> list[dict[str, Any]]:
    """Return the statistics of all annotators with a fixed number of queries and constant memory."""
    judgments = Judgment.objects.current().filter(annotator__round=round).order_by("annotator", "judged_at")
    rows = judgment_rows(judgments, "annotator", "task").iterator(chunk_size=ROWS_AT_ONCE)
    thirds = dict(third_judgments(round))
    by_annotator = {pk: _profile(annotator_rows, thirds) for pk, annotator_rows in groupby(rows, key=itemgetter(0))}
    totals: Counter[str] = Counter()
    for profile in by_annotator.values():
        totals.update({label: share * profile.n for label, share in profile.shares.items()})
    label_shares = _shares(totals)
    limits = Limits.objects.filter(round=round).first() or Limits()
    counts = _other_counts(annotator__round=round)
    attention = Attention(round, judgments, thirds)
    return [
        _statistics(annotator, by_annotator.get(annotator.pk) or profile_of([]), label_shares, limits, attention)
        | counts(annotator.pk)
        for annotator in round.annotators.select_related("user", "invite").order_by("code")
    ]


def statistics_of(annotator: Annotator, now: datetime) -> dict[str, Any]:
    """Return the current statistics of one annotator. The test of runs uses the label shares of the round."""
    judgments = Judgment.objects.current().filter(annotator=annotator).order_by("judged_at")
    tasks = JudgmentTask.objects.filter(pk__in=Subquery(judgments.order_by().values("task")))
    thirds = dict(third_judgments(annotator.round, tasks))
    profile = _profile(judgment_rows(judgments, "annotator", "task"), thirds)
    limits = Limits.objects.filter(round=annotator.round).first() or Limits()
    label_shares = _shares(label_totals(annotator.round, now))
    counts = _other_counts(annotator=annotator)
    attention = Attention(annotator.round, judgments, thirds)
    return _statistics(annotator, profile, label_shares, limits, attention) | counts(annotator.pk)


def judgment_rows(judgments: QuerySet[Judgment], *leading_columns: str) -> QuerySet:
    """Return a query for tuples with the `leading_columns`, followed by the columns of JudgmentRow."""
    is_counted = Case(When(is_counted=True, then=Value(1)), default=Value(0))
    n_same = Case(*(When(label=label, then=F(f"task__n_{label}")) for label in Label.values)) - is_counted
    n_others = F("task__n_judgments") - is_counted
    return judgments.values_list(*leading_columns, "label", "seconds", "task__gold_label", n_same, n_others)


def _profile(rows: Iterable[tuple], thirds: Mapping[int, ThirdJudgment]) -> Profile:
    """Return the profile of one annotator. rows: (annotator, task, *columns of JudgmentRow).

    As in reports, agreement compares only the first two judgments of a task, never a third.
    """
    judgments = []
    for annotator, task, *columns in rows:
        row, third = JudgmentRow(*columns), thirds.get(task)
        if third and third.annotator == annotator:
            row = row._replace(n_same=0, n_others=0)
        elif third:
            row = row._replace(n_same=row.n_same - (row.label == third.label), n_others=row.n_others - 1)
        judgments.append(row)
    return profile_of(judgments)


def _shares(totals: Mapping[str, float]) -> dict[str, float]:
    n = sum(totals.values())
    return {label: total / n if n else 0.0 for label, total in totals.items()}


def _statistics(
    annotator: Annotator, profile: Profile, label_shares: Mapping[str, float], limits: Limits, attention: Attention
) -> dict[str, Any]:
    gold = rate(profile.n_gold_right, profile.n_gold)
    return {
        "pk": annotator.pk,
        "code": annotator.code,
        "who": annotator.who,
        "status": annotator.status,
        **{name: value for name, value in profile._asdict().items() if name != "n_agreeing"},
        "gold": {"value": gold.value, "low": gold.low, "high": gold.high},
        "agreement": profile.agreement,
        "expected_run": profiles.expected_longest_run(profile.n, label_shares),
        "flags": profiles.flags_of(profile, limits, label_shares) + attention.flags(annotator.pk),
    }


class Attention:
    """Inattention flags that require more data than a profile contains. judgments: sorted by annotator and time."""

    COLUMNS = (
        "annotator", "task", "is_counted", "task__is_gold", "task__n_true", "task__n_false", "task__n_unjudgeable",
        "label", "seconds",
    )  # fmt: skip

    def __init__(self, round: Round, judgments: QuerySet[Judgment], thirds: Mapping[int, ThirdJudgment]):
        self._thirds = thirds
        n_tested = round.annotators.filter(n_judged__gte=profiles.MIN_JUDGMENTS).count()
        is_random = round.source != Round.Source.IMPORTED
        rows = judgments.annotate(length=Length("task__statement")).values_list(*self.COLUMNS, "length")
        self._flags = {
            pk: profiles.attention_flags([self._signs(*row) for row in group], n_tested, is_order_random=is_random)
            for pk, group in groupby(rows.iterator(chunk_size=ROWS_AT_ONCE), key=itemgetter(0))
        }
        self._pasted = profiles.pasted_texts(_texts(round))

    def flags(self, annotator: int) -> list[str]:
        n = self._pasted.get(annotator, 0)
        pasted = [f"{n} text{'s' if n > 1 else ''} identical to another annotator's"] if n else []
        return self._flags.get(annotator, []) + pasted

    def _signs(self, annotator: int, task: int, is_counted: bool, is_gold: bool, *rest: Any) -> JudgmentSigns:
        *counts, label, seconds, length = rest
        others = Counter(dict(zip(("true", "false", "unjudgeable"), counts, strict=True)))
        third = self._thirds.get(task)
        if is_gold or (third and third.annotator == annotator):  # not compared, as in profiles
            return JudgmentSigns(label, seconds, length, {})
        others.subtract([label] if is_counted else [])
        others.subtract([third.label] if third else [])
        return JudgmentSigns(label, seconds, length, +others)


def _texts(round: Round) -> Iterator[tuple[int, str]]:
    """Yield (annotator, text) of free-text responses: comments and answers to open questions."""
    commented = Judgment.objects.current().filter(annotator__round=round).exclude(comment="").order_by()
    yield from commented.values_list("annotator", "comment").iterator(chunk_size=ROWS_AT_ONCE)
    open_keys = {question.key for question in who_questions(round) if not question.choices}
    if open_keys:
        for annotator, answers in WhoAnswers.objects.filter(annotator__round=round).values_list("annotator", "answers"):
            yield from ((annotator, answer) for key, answer in answers.items() if key in open_keys)


def _other_counts(**annotators: Any) -> Callable[[int], dict[str, Any]]:
    """Return a function that maps an annotator id to counts.

    The counts are numbers of comments, reports, uncounted judgments, and training answers.
    """
    judgments = Judgment.objects.current().filter(**annotators)
    comments = _count(judgments.exclude(comment=""))
    reports = _count(StatementReport.objects.filter(**annotators))
    uncounted = _count(judgments.filter(is_counted=False, task__is_gold=False))
    finished = Training.objects.filter(**annotators, finished_at__isnull=False).order_by("pk")
    trainings = {training.annotator_id: training for training in finished}

    def counts(pk: int) -> dict[str, Any]:
        training = trainings.get(pk)
        return {
            "n_comments": comments.get(pk, 0),
            "n_reports": reports.get(pk, 0),
            "n_uncounted": uncounted.get(pk, 0),
            "training": [training.n_right, training.n_answered] if training else None,
        }

    return counts


def _count(rows: QuerySet) -> dict[int, int]:
    return dict(rows.order_by().values_list("annotator").annotate(n=Count("pk")))
