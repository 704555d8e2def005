"""Progress of a round: outcomes, agreement, and pace, cached as snapshots for large rounds, and assigned statements."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Count, Exists, JSONField, Max, OuterRef, Q, Value
from django.utils import timezone

from annotation.judging.assignment import LEASE, release_leases
from annotation.judging.third_judgments import LabelCounts, first_two_counts
from annotation.judging.verdicts import Verdict
from annotation.models import Annotator, Assignment, Judgment, Label, Round, Snapshot
from annotation.rounds.models import JudgmentTaskQuerySet
from kgharvest.access import Action, check_may
from kgharvest.errors import NotFound
from kgharvest.events.recording import record
from kgharvest.registries import hook
from kgharvest.statistics.agreement import agreement_of_rows

PACE_OVER = timedelta(hours=1)
OUTCOMES = (*(verdict.value for verdict in Verdict), "incomplete")
COUNTERS = ("n_true", "n_false", "n_unjudgeable", "n_wanted", "n_leased", "verdict")


def progress(round: Round, now: datetime) -> dict[str, Any]:
    """Return tasks, judgments, verdicts, agreement, and pace for the round page.

    counted_at: time of a cached count, None for a live count.
    """
    snapshot = cached_count(round, "progress", count_progress, now)
    counts = snapshot.content
    n_left, per_hour = counts["n_wanted"] - counts["n_judgments"], counts["judgments_per_hour"]
    return {
        **counts,
        # Snapshots of earlier versions lack "first_two".
        **agreement_of_rows(counts.get("first_two", counts["patterns"])),
        "assigned": counts["incomplete"] - counts["open"],
        "n_left": n_left,
        "hours_left": n_left / per_hour if per_hour and n_left else None,
        "counted_at": snapshot.counted_at,
    }


def count_progress(round: Round) -> dict[str, Any]:
    """Count tasks and judgments. The number of queries is independent of the round's size.

    patterns: label counts with their number of tasks. first_two: the same without third judgments, for agreement.
    judgments_per_hour: over the last hour, or since opening if that is shorter; None without judgments.
    """
    patterns: Counter[tuple[int, int, int]] = Counter()
    totals = Counter(dict.fromkeys((*OUTCOMES, "n_tasks", "open", "n_judgments", "n_wanted", "n_leased"), 0))
    groups = round.tasks.without_gold().order_by().values(*COUNTERS).annotate(n=Count("pk"))
    for group in groups:
        n, labels = group["n"], (group["n_true"], group["n_false"], group["n_unjudgeable"])
        patterns[labels] += n
        totals["n_tasks"] += n
        totals[group["verdict"] or "incomplete"] += n
        if not group["verdict"] and not group["n_leased"]:
            totals["open"] += n
        totals["n_judgments"] += n * sum(labels)
        totals["n_wanted"] += n * group["n_wanted"]
        totals["n_leased"] += n * group["n_leased"]
    first_two = first_two_counts(round, round.tasks.without_gold()) if round.third_only_if_split else patterns
    commented = Judgment.objects.current().filter(annotator__round=round).exclude(comment="")
    now = timezone.now()
    since = max(now - PACE_OVER, round.opened_at or round.created_at)
    n_recent = Judgment.objects.counted().filter(annotator__round=round, judged_at__gt=since).count()
    hours = (now - since) / timedelta(hours=1)
    return dict(totals) | {
        "complete": totals["n_tasks"] - totals["incomplete"],
        "patterns": rows_of(patterns),
        "first_two": rows_of(first_two),
        "n_commented": commented.aggregate(n=Count("task", distinct=True))["n"],
        "judgments_per_hour": n_recent / hours if n_recent and hours > 0 else None,
    }


def rows_of(patterns: Mapping[LabelCounts, int]) -> list[list[int]]:
    """Return rows of n_true, n_false, n_unjudgeable, and number of tasks, as `agreement_of_rows` takes them."""
    return [[*counts, n] for counts, n in sorted(patterns.items())]


def count_statements(tasks: JudgmentTaskQuerySet) -> list[list[Any]]:
    """Count statements; rows are relation id, n_true, n_false, n_unjudgeable, outcome, and count."""
    columns = ("knowledge_tuple__relation", "n_true", "n_false", "n_unjudgeable", "verdict")
    rows = tasks.order_by().values_list(*columns).annotate(n=Count("pk"))
    return [[*pattern, verdict or "incomplete", n] for *pattern, verdict, n in rows]


def label_totals(round: Round, now: datetime) -> dict[str, int]:
    patterns = cached_count(round, "progress", count_progress, now).content["patterns"]
    return {label: sum(row[column] * row[3] for row in patterns) for column, label in enumerate(Label.values)}


LOOK_EVERY = timedelta(minutes=1)
HALF_WIDTH = "half_width"  # snapshot subject


def look_at_half_width(round: Round, now: datetime) -> float | None:
    """Return the largest half-width of the anytime-valid intervals of the round's LMs and settings.

    Recomputed at most once a minute. None while one of them is undefined.
    """
    last = last_look(round)
    if last is None or now - last.counted_at > max(LOOK_EVERY, timedelta(seconds=STALE_AFTER * last.took_s)):
        counted = _count(round, hook("half_width"))
        content = Value(counted["content"], JSONField())  # plain None would be NULL instead of JSON null
        round.snapshots.update_or_create(subject=HALF_WIDTH, defaults=counted | {"content": content})
        last = Snapshot(**counted)
    half_width: float | None = last.content
    return half_width


def last_look(round: Round) -> Snapshot | None:
    return round.snapshots.filter(subject=HALF_WIDTH).first()


LIVE_JUDGMENTS = 30_000  # rounds up to this size are counted on every request
STALE_AFTER = 20  # multiple of the counting time
ABANDONED_AFTER = timedelta(minutes=5)  # then the counting process is considered dead

CountRound = Callable[[Round], Any]


@dataclass(frozen=True)
class CachedCount:
    """counted_at: None for a live count."""

    content: Any
    counted_at: datetime | None


def is_counted_live(round: Round, most: int | None = None) -> bool:
    return bool(round.n_tasks * round.judgments_per_task <= (LIVE_JUDGMENTS if most is None else most))


def cached_count(
    round: Round, subject: str, count: CountRound, now: datetime, *, first: CountRound | None = None
) -> CachedCount:
    """Return the result of `count` for the round, possibly cached.

    first: quick replacement on the first request if `count` is slow even for small rounds; `count` then runs in the
    background.
    """
    if first is None and is_counted_live(round):
        return CachedCount(count(round), None)
    last = round.snapshots.filter(subject=subject).first()
    if last is not None:
        is_due = now - last.counted_at > timedelta(seconds=STALE_AFTER * last.took_s)
    else:
        is_due = first is not None
        last, _ = round.snapshots.update_or_create(subject=subject, defaults=_count(round, first or count))
    free = Q(counting_since=None) | Q(counting_since__lt=now - ABANDONED_AFTER)
    if is_due and Snapshot.objects.filter(free, pk=last.pk).update(counting_since=now):  # no other process is counting
        Thread(target=_count_aside, args=(last, count), daemon=True).start()
    return CachedCount(last.content, last.counted_at)


def delete_snapshots(round: Round) -> None:
    """Invalidate cached counts and counts in progress. Call it in the transaction that makes large changes."""
    round.snapshots.all().delete()


def _count_aside(last: Snapshot, count: CountRound) -> None:
    try:
        Snapshot.objects.filter(pk=last.pk).update(**_count(last.round, count))  # no row if invalidated
    finally:
        connection.close()


def _count(round: Round, count: CountRound) -> dict[str, Any]:
    begin, counted_at = time.monotonic(), timezone.now()
    content = count(round)
    return {
        "content": content,
        "counted_at": counted_at,
        "took_s": time.monotonic() - begin,
        "counting_since": None,
    }


# Assigned statements


class Holder(NamedTuple):
    """An annotator with `n` assigned statements, including gold.

    last_active_at: last time they loaded statements or answered. expires_at: when the statements can be reassigned.
    """

    annotator: Annotator
    n: int
    last_active_at: datetime
    expires_at: datetime


def holders(round: Round) -> list[Holder]:
    annotators = round.annotators.filter(assignments__status=Assignment.Status.LEASED).select_related("user", "invite")
    # All leases of an annotator are extended together when they load statements or answer.
    annotators = annotators.annotate(n_assigned=Count("assignments"), expires_at=Max("assignments__expires_at"))
    return [
        Holder(annotator, annotator.n_assigned, annotator.expires_at - LEASE, annotator.expires_at)
        for annotator in annotators.order_by("expires_at", "code")
    ]


@transaction.atomic
def release_assigned(round: Round, codes: Collection[str] | None = None, by=None) -> int:
    """Release the statements assigned to the annotators with these codes, or to all; return the number of statements.

    They can be reassigned immediately. A later answer is treated as one with an expired lease (submit_judgment): it
    counts if the statement needs another judgment. Raises NotAllowed or NotFound.
    """
    check_may(by, Action.WORK, round.project)
    annotators = round.annotators.all()
    if codes is not None:
        if unknown := set(codes) - set(annotators.values_list("code", flat=True)):
            raise NotFound(f"Round {round.name} has no annotator {min(unknown)!r:.40}. Its page lists assignments.")
        annotators = annotators.filter(code__in=codes)
    leased = Assignment.objects.filter(annotator=OuterRef("pk"), status=Assignment.Status.LEASED)
    locked = annotators.filter(Exists(leased)).order_by("pk").select_for_update(no_key=True)
    n_of = {annotator: release_leases(Assignment.objects.filter(annotator=annotator)) for annotator in locked}
    # The rest answered while this call waited for locks.
    released = {annotator: n for annotator, n in n_of.items() if n}
    for annotator, n in released.items():
        record("annotator.released", annotator, by, round=round, annotator=annotator, n=n)
    return sum(released.values())
