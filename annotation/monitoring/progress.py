"""Progress of a round: outcomes, agreement, pace, history, and assigned statements. Large counts are cached."""

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import ceil
from operator import itemgetter
from statistics import median
from threading import Thread
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Count, Exists, JSONField, Max, Min, OuterRef, Q, Value
from django.utils import timezone
from django.utils.safestring import SafeString

from annotation.judging.assignment import LEASE, release_leases
from annotation.judging.third_judgments import LabelCounts, first_two_counts, third_judgments, without_label
from annotation.judging.verdicts import Verdict
from annotation.models import Annotator, Assignment, Judgment, Label, Round, Snapshot
from annotation.rounds.models import JudgmentTaskQuerySet
from kgharvest.access import Action, check_may
from kgharvest.errors import NotFound
from kgharvest.events.recording import record
from kgharvest.pages.number_format import share, with_rounded_numbers
from kgharvest.registries import hook
from kgharvest.statistics.agreement import agreement_of_rows
from kgharvest.statistics.rates import rate

PACE_OVER = timedelta(hours=1)
OUTCOMES = (*(verdict.value for verdict in Verdict), "incomplete")
COUNTERS = ("n_true", "n_false", "n_unjudgeable", "n_wanted", "n_leased", "verdict")


def progress(round: Round, now: datetime) -> dict[str, Any]:
    """Return the counts of tasks, judgments, and verdicts, the agreement, and the pace for the round page.

    counted_at: time of a cached count; None for a live count.
    """
    snapshot = cached_count(round, "progress", count_progress, now)
    counts = snapshot.content
    n_left, per_hour = counts["n_wanted"] - counts["n_judgments"], counts["judgments_per_hour"]
    return {
        **counts,
        # Snapshots of earlier versions lack "first_two".
        **with_rounded_numbers(agreement_of_rows(counts.get("first_two", counts["patterns"]))),
        "assigned": counts["incomplete"] - counts["open"],
        "n_left": n_left,
        "hours_left": n_left / per_hour if per_hour and n_left else None,
        "counted_at": snapshot.counted_at,
    }


def capacity_warning(round: Round, n_left: int) -> str | None:
    """Return a warning if the limit per annotator prevents the completion of the round, otherwise None.

    n_left: judgments that are still required.
    """
    quota = round.quota
    if quota is None or not round.is_open:
        return None
    active = round.annotators.filter(status=Annotator.Status.ACTIVE, erased_at=None)
    judged = list(active.values_list("n_judged", flat=True))
    n_possible = sum(max(0, quota - n) for n in judged)
    if n_left <= n_possible:
        return None
    n_missing = ceil((n_left - n_possible) / quota)
    people = f"{'more ' if judged else ''}{'people' if n_missing > 1 else 'person'}"
    capacity = f", but the current annotators can only add {n_possible}" if judged else ""
    return (
        f"{n_left} more judgments are required{capacity}: each annotator can judge at most {quota} statements. "
        f"Invite at least {n_missing} {people}."
    )


def count_progress(round: Round) -> dict[str, Any]:
    """Count tasks and judgments. The number of queries is independent of the round's size.

    patterns: rows of n_true, n_false, n_unjudgeable, and number of tasks. first_two: the same rows without third
    judgments, for agreement. judgments_per_hour: rate over the last hour, or since the round opened if that is less
    than an hour ago; None if there are no judgments.
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
        **{
            name: [[*labels, n] for labels, n in sorted(counts.items())]
            for name, counts in (("patterns", patterns), ("first_two", first_two))
        },
        "n_commented": commented.aggregate(n=Count("task", distinct=True))["n"],
        "judgments_per_hour": n_recent / hours if n_recent and hours > 0 else None,
    }


def count_statements(tasks: JudgmentTaskQuerySet) -> list[list[Any]]:
    """Count statements. Return rows of relation id, n_true, n_false, n_unjudgeable, outcome, and count."""
    columns = ("knowledge_tuple__relation", "n_true", "n_false", "n_unjudgeable", "verdict")
    rows = tasks.order_by().values_list(*columns).annotate(n=Count("pk"))
    return [[*pattern, verdict or "incomplete", n] for *pattern, verdict, n in rows]


def label_totals(round: Round, now: datetime) -> dict[str, int]:
    patterns = cached_count(round, "progress", count_progress, now).content["patterns"]
    return {label: sum(row[column] * row[3] for row in patterns) for column, label in enumerate(Label.values)}


LOOK_EVERY = timedelta(minutes=1)
HALF_WIDTH = "half_width"  # snapshot subject


def look_at_half_width(round: Round, now: datetime) -> float | None:
    """Return the largest half-width of the fixed-width intervals. Each LM and setting of the round has one interval.

    The half-width is recomputed at most once a minute. It is None while one of the intervals is undefined.
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


LIVE_JUDGMENTS = 30_000  # rounds that require at most this number of judgments are counted on every request
LIVE_HISTORY = 5_000  # same as LIVE_JUDGMENTS, for the history and the statistics of annotators
ROWS_AT_ONCE = 10_000
STALE_AFTER = 20  # cached counts expire after this multiple of the time that counting took
ABANDONED_AFTER = timedelta(minutes=5)  # a count that takes longer is considered aborted

CountRound = Callable[[Round], Any]


@dataclass(frozen=True)
class CachedCount:
    """Result of a count. counted_at: None for a live count."""

    content: Any
    counted_at: datetime | None


def cached_count(
    round: Round,
    subject: str,
    count: CountRound,
    now: datetime,
    *,
    most: int | None = None,
    first: CountRound | None = None,
) -> CachedCount:
    """Return the result of `count`, computed now if the round requires at most `most` judgments, otherwise cached.

    most: defaults to LIVE_JUDGMENTS. first: quick replacement for a slow `count` on the first request; `count` then
    runs in the background.
    """
    if round.n_tasks * round.judgments_per_task <= (LIVE_JUDGMENTS if most is None else most):
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
        Snapshot.objects.filter(pk=last.pk).update(**_count(last.round, count))  # no effect on a deleted snapshot
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


# History: judgments and agreement per hour, day, or week


class Unit(NamedTuple):
    """Time unit of histories that span at most `longest`.

    step: step in which periods are searched; less than half a unit, even when daylight saving time changes. begin_of:
    returns the start of the period that contains a time, in the installation's time zone.
    """

    name: str
    longest: timedelta
    step: timedelta
    begin_of: Callable[[datetime], datetime]


def _hour(at: datetime) -> datetime:
    return timezone.localtime(at).replace(minute=0, second=0, microsecond=0)


def _day(at: datetime) -> datetime:
    return _hour(at).replace(hour=0)


def _week(at: datetime) -> datetime:
    return _day(_day(at) - timedelta(days=_day(at).weekday()) + timedelta(hours=12))


UNITS = (
    Unit("hour", timedelta(days=2), timedelta(minutes=25), _hour),
    Unit("day", timedelta(days=90), timedelta(hours=10), _day),
    Unit("week", timedelta.max, timedelta(days=3), _week),
)


def count_history(round: Round) -> dict[str, Any]:
    """Return the time unit and all periods from the first to the last judgment, including empty periods.

    periods: begin, n (judgments, including gold and late judgments), n_completed (statements), and the agreement on
    these statements.
    """
    current = Judgment.objects.current().filter(annotator__round=round).order_by()
    first, last = current.aggregate(first=Min("judged_at"), last=Max("judged_at")).values()
    if first is None:
        return {"unit": "", "periods": []}
    unit = next(unit for unit in UNITS if last - first <= unit.longest)
    n_by_period: Counter[datetime] = Counter()
    completed: dict[int, datetime] = {}
    for task, judged_at, is_counted in current.values_list("task", "judged_at", "is_counted").iterator(ROWS_AT_ONCE):
        n_by_period[unit.begin_of(judged_at)] += 1
        if is_counted:
            completed[task] = max(judged_at, completed.get(task, judged_at))
    # Exclude third judgments, because agreement uses only the first two.
    columns = ("pk", "n_true", "n_false", "n_unjudgeable")
    complete = round.tasks.without_gold().exclude(verdict="").order_by().values_list(*columns)
    labels_by_task: dict[int, LabelCounts] = {pk: tuple(counts) for pk, *counts in complete}
    if round.third_only_if_split:
        for task, third in third_judgments(round):
            if task in labels_by_task:
                labels_by_task[task] = without_label(labels_by_task[task], third.label)
    patterns: defaultdict[datetime, Counter[LabelCounts]] = defaultdict(Counter)
    for task, labels in labels_by_task.items():
        if task in completed:
            patterns[unit.begin_of(completed[task])][labels] += 1
    return {
        "unit": unit.name,
        "periods": [
            {
                "begin": begin.isoformat(),
                "n": n_by_period[begin],
                "n_completed": patterns[begin].total(),
                **with_rounded_numbers(
                    agreement_of_rows([*labels, n] for labels, n in sorted(patterns[begin].items()))
                ),
            }
            for begin in _periods(first, last, unit)
        ],
    }


def _periods(first: datetime, last: datetime, unit: Unit) -> list[datetime]:
    """Return the start of each period from `first` to `last`."""
    begins, end = [unit.begin_of(first)], unit.begin_of(last)
    at = begins[0]
    while begins[-1] < end:
        at += unit.step
        if unit.begin_of(at) != begins[-1]:
            begins.append(unit.begin_of(at))
    return begins


WIDTH, HEIGHT = 720, 96
FEWEST_UNITS = 5  # minimum number of statements for a point of the agreement line
# Events that may change how people judge. The instructions cannot change, because they are frozen when the round opens.
MARKED = ("paused", "reopened", "imported", "limits_set", "limit_crossed", "excluded", "reinstated")
MOST_MARKS = 20
FORMATS = {"hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d", "week": "%Y-%m-%d"}


def history_picture(round: Round, now: datetime) -> dict[str, Any]:
    """Return the history chart and the rows of its table. There are no rows if there are no judgments.

    bars, points, marks: each with its text and its coordinates within WIDTH x HEIGHT. line: SVG points. counted_at:
    time of a cached count. is_counting: True during the first count in the background.
    """
    count = cached_count(round, "history", count_history, now, most=LIVE_HISTORY, first=lambda _: [])
    if not count.content or not count.content["periods"]:
        return {"is_counting": not count.content, "rows": []}
    unit = count.content["unit"]
    periods = [period | {"begin": datetime.fromisoformat(period["begin"])} for period in count.content["periods"]]
    begins = [period["begin"] for period in periods]
    step, most = WIDTH / len(periods), max(period["n"] for period in periods)
    bars, points = [], []
    for number, row in enumerate(periods):
        row["when"] = timezone.localtime(row["begin"]).strftime(FORMATS[unit])
        height = HEIGHT * row["n"] / most
        bars.append(
            {
                "x": f"{(number + 0.1) * step:.1f}",
                "y": f"{HEIGHT - height:.1f}",
                "width": f"{0.8 * step:.1f}",
                "height": f"{height:.1f}",
                "title": f"{row['when']}: {row['n']:,} judgments, {row['n_completed']:,} statements completed",
            }
        )
        if row["alpha"] is not None and row["n_units"] >= FEWEST_UNITS:
            x, y = (number + 0.5) * step, HEIGHT * (1 - max(0.0, row["alpha"]))
            title = f"{row['when']}: alpha {share(row['alpha'])} for {row['n_units']:,} statements"
            points.append({"x": f"{x:.1f}", "y": f"{y:.1f}", "title": title})
    events = round.events.filter(kind__in=MARKED, at__gte=begins[0])[:MOST_MARKS]
    return {
        "unit": unit,
        "rows": periods,
        "bars": bars,
        "points": points,
        "marks": [
            {"x": f"{(bisect_right(begins, event.at) - 0.5) * step:.1f}", "event": event} for event in reversed(events)
        ],
        "most": most,
        "line": " ".join(f"{point['x']},{point['y']}" for point in points),
        "width": WIDTH,
        "height": HEIGHT,
        "counted_at": count.counted_at,
    }


# Annotators


def interval_picture(value: float | None, low: float | None, high: float | None) -> SafeString:
    """Return an SVG image of a share in [0, 1] and its interval, or "" without an interval.

    The page also shows the numbers.
    """
    if value is None or low is None or high is None:
        return SafeString("")
    x_value, x_low, x_high = (f"{3 + number * 58:.1f}" for number in (value, low, high))
    return SafeString(  # contains only numbers
        f'<svg class="interval-picture" viewBox="0 0 64 10" aria-hidden="true">'
        f'<path d="M{x_low} 5H{x_high}"/><circle cx="{x_value}" cy="5" r="2.5"/></svg>'
    )


def strips(round: Round, now: datetime, n_most: int) -> list[dict[str, Any]]:
    """Return the `n_most` annotators with the most judgments, with charts of judgments, gold accuracy, and speed.

    Bar lengths are relative to the maximum over all annotators. The list is empty during the first background count.
    """
    rows = cached_count(round, "strips", count_strips, now, most=LIVE_HISTORY, first=lambda _: []).content
    status = dict(round.annotators.values_list("pk", "status"))
    most = max((row["n"] for row in rows), default=0) or 1
    slowest = max((row["median_seconds"] or 0 for row in rows), default=0) or 1
    return [
        {
            **row,
            "status": status[row["pk"]],
            "judged_width": f"{100 * row['n'] / most:.1f}",
            "seconds_width": f"{100 * (row['median_seconds'] or 0) / slowest:.1f}",
            "gold_picture": interval_picture(*(row["gold"][key] for key in ("value", "low", "high"))),
        }
        for row in sorted(sorted(rows, key=itemgetter("code")), key=itemgetter("n"), reverse=True)[:n_most]
    ]


def count_strips(round: Round) -> list[dict[str, Any]]:
    """Return judgments, gold accuracy, and median active seconds (None if not measured) of each annotator."""
    judgments = Judgment.objects.current().filter(annotator__round=round).order_by("annotator")
    columns = judgments.values_list("annotator", "label", "seconds", "task__gold_label").iterator(ROWS_AT_ONCE)
    counts: dict[int, tuple[int, list[bool], float | None]] = {}
    for pk, rows in groupby(columns, key=itemgetter(0)):  # one by one, because there may be millions of rows
        answers = list(rows)
        seconds = [seconds for _, _, seconds, _ in answers if seconds is not None]
        is_right = [label == gold_label for _, label, _, gold_label in answers if gold_label]
        counts[pk] = len(answers), is_right, median(seconds) if seconds else None
    strips = []
    for annotator in round.annotators.select_related("user", "invite"):
        n, is_right, median_seconds = counts.get(annotator.pk, (0, [], None))
        gold = rate(sum(is_right), len(is_right))
        strips.append(
            {
                "pk": annotator.pk,
                "code": annotator.code,
                "who": annotator.who,
                "n": n,
                "n_gold": len(is_right),
                "n_gold_right": sum(is_right),
                "gold": {"value": gold.value, "low": gold.low, "high": gold.high},
                "median_seconds": median_seconds,
            }
        )
    return strips


# Assigned statements


def holders(round: Round) -> list[dict[str, Any]]:
    """Return the annotators with assigned statements.

    The annotator who has been inactive for the longest time comes first. n: number of statements, including gold.
    last_active_at: last time the annotator loaded or answered statements. expires_at: time at which the statements can
    be reassigned.
    """
    annotators = round.annotators.filter(assignments__status=Assignment.Status.LEASED).select_related("user", "invite")
    # All leases of an annotator are extended together when the annotator loads or answers statements.
    annotators = annotators.annotate(n=Count("assignments"), expires_at=Max("assignments__expires_at"))
    return [
        {
            "annotator": holder,
            "n": holder.n,
            "last_active_at": holder.expires_at - LEASE,
            "expires_at": holder.expires_at,
        }
        for holder in annotators.order_by("expires_at", "code")
    ]


@transaction.atomic
def release_assigned(round: Round, codes: Collection[str] | None = None, by=None) -> int:
    """Release the statements assigned to the annotators with these codes, or to all annotators. Return their number.

    The statements can be reassigned immediately. A later answer is treated like an answer with an expired lease
    (submit_judgment): it counts if the statement needs another judgment. Raises NotAllowed or NotFound.
    """
    check_may(by, Action.WORK, round.project)
    annotators = round.annotators.all()
    if codes is not None:
        if unknown := set(codes) - set(annotators.values_list("code", flat=True)):
            raise NotFound(f"Round {round.name} has no annotator {min(unknown)!r:.40}. Use a code from the round page.")
        annotators = annotators.filter(code__in=codes)
    leased = Assignment.objects.filter(annotator=OuterRef("pk"), status=Assignment.Status.LEASED)
    locked = annotators.filter(Exists(leased)).order_by("pk").select_for_update(no_key=True)
    n_of = {annotator: release_leases(Assignment.objects.filter(annotator=annotator)) for annotator in locked}
    # Annotators with no released statement answered their statements while this call waited for locks.
    released = {annotator: n for annotator, n in n_of.items() if n}
    for annotator, n in released.items():
        record("annotator.released", annotator, by, round=round, annotator=annotator, n=n)
    return sum(released.values())
