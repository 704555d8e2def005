"""The quality of annotators: a profile of each, what stands out, and limits that pause them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import transaction
from django.db.models import Case, Count, F, Value, When
from django.utils import timezone

from annotation.judging.assignment import lock
from annotation.models import Annotator, Judgment, Label, Limits, Round, StatementReport, Training
from annotation.quality.events import record_event
from annotation.quality.profiles import Profile, Said, chance_of_run, expected_longest_run, profile
from annotation.rounds.progress import Counted, counted, label_totals
from annotation.rounds.statistics import share
from kgharvest.errors import DomainError

ROWS_AT_ONCE = 5000
UNLIKELY = 0.001  # a run that chance gives to one annotator in a thousand
WATCHED = 500  # limits look at so many of an annotator's last judgments, which bounds what a look costs
LOOK_EVERY = 10
FEWEST = 20  # judgments before a median of seconds or a run means anything
USUAL = Limits(gold_accuracy=0.7, n_gold=10, median_seconds=1.0)  # what stands out where a round sets no limits


class CannotPause(DomainError):
    """Pausing or resuming an annotator who is not active or not paused."""


# -- profiles ----------------------------------------------------------------------------------------------------------


def annotator_statistics(round: Round, now: datetime) -> Counted:
    """Return one dict per annotator of a round, by code; of a large round perhaps as it was, but for the status."""
    found = counted(round, "annotators", count_annotators, now)
    if found.counted_at is None:
        return found
    status = dict(round.annotators.values_list("pk", "status"))
    return replace(found, content=[each | {"status": status[each["pk"]]} for each in found.content])


def count_annotators(round: Round) -> list[dict[str, Any]]:
    """Return statistics of all annotators in a fixed number of queries; memory stays flat."""
    profiles = {pk: profile(said) for pk, said in _said_by_each(round)}
    usual = _usual_shares(profiles.values())
    limits = Limits.objects.filter(round=round).first() or Limits()
    extras = _extras(annotator__round=round)
    return [
        _statistics(annotator, profiles.get(annotator.pk) or profile([]), usual, limits) | extras(annotator.pk)
        for annotator in round.annotators.select_related("user", "invite").order_by("code")
    ]


def statistics_of(annotator: Annotator, now: datetime) -> dict[str, Any]:
    """Return the statistics of one annotator, as they are now; runs are compared with the labels of the whole round."""
    judgments = Judgment.objects.current().filter(annotator=annotator).order_by("judged_at")
    theirs = profile([Said(*row) for row in said_columns(judgments)])
    limits = Limits.objects.filter(round=annotator.round).first() or Limits()
    usual = _shares(label_totals(annotator.round, now))
    return _statistics(annotator, theirs, usual, limits) | _extras(annotator=annotator)(annotator.pk)


def _said_by_each(round: Round) -> Iterator[tuple[int, list[Said]]]:
    judgments = Judgment.objects.current().filter(annotator__round=round).order_by("annotator", "judged_at")
    rows = said_columns(judgments, "annotator").iterator(chunk_size=ROWS_AT_ONCE)
    for annotator, theirs in groupby(rows, key=itemgetter(0)):
        yield annotator, [Said(*row[1:]) for row in theirs]


def said_columns(judgments, *before: str):
    """Return rows of the columns `before` and those of Said."""
    n_same = Case(*(When(label=label, then=F(f"task__n_{label}")) for label in Label.values)) - Case(
        When(is_counted=True, then=Value(1)), default=Value(0)
    )
    n_others = F("task__n_judgments") - Case(When(is_counted=True, then=Value(1)), default=Value(0))
    return judgments.values_list(*before, "label", "seconds", "task__gold_label", n_same, n_others)


def _usual_shares(profiles: Iterable[Profile]) -> dict[str, float]:
    """Return the shares of the labels in the whole round: runs are expected to be what these give by chance."""
    totals: Counter[str] = Counter()
    for each in profiles:
        totals.update({label: of * each.n for label, of in each.shares.items()})
    return _shares(totals)


def _shares(totals: Mapping[str, float]) -> dict[str, float]:
    n = sum(totals.values())
    return {label: total / n if n else 0.0 for label, total in totals.items()}


def _statistics(annotator: Annotator, theirs: Profile, usual: dict[str, float], limits: Limits) -> dict[str, Any]:
    return {
        "pk": annotator.pk,
        "code": annotator.code,
        "who": annotator.who,
        "status": annotator.status,
        "n": theirs.n,
        "n_gold": theirs.n_gold,
        "n_gold_right": theirs.n_gold_right,
        "gold": share(theirs.n_gold_right, theirs.n_gold),
        "agreement": theirs.agreement,
        "n_pairs": theirs.n_pairs,
        "median_seconds": theirs.median_seconds,
        "too_fast": theirs.too_fast,
        "shares": theirs.shares,
        "longest_run": theirs.longest_run,
        "expected_run": expected_longest_run(theirs.n, usual),
        "flags": stands_out(theirs, usual, limits),
    }


def stands_out(theirs: Profile, usual: dict[str, float], limits: Limits) -> list[str]:
    """Return why somebody should look at this annotator: limits crossed, and a run that chance would hardly give."""
    reasons = crossed(theirs, limits) + crossed(theirs, _others(limits))
    is_long = theirs.n >= FEWEST and chance_of_run(theirs.longest_run, theirs.n, usual) < UNLIKELY
    if is_long and not limits.longest_run:
        reasons.append(f"{theirs.longest_run} equal labels in a row")
    return reasons


def _others(limits: Limits) -> Limits:
    """Return the usual limits of what `limits` leaves without."""
    names = ("gold_accuracy", "median_seconds")
    unset = {name: getattr(USUAL, name) for name in names if getattr(limits, name) is None}
    return Limits(n_gold=USUAL.n_gold, **unset)


def _extras(**whose: Any) -> Callable[[int], dict[str, Any]]:
    """Return a function of an annotator's id that gives what is counted elsewhere: comments, reports, training."""
    comments = _count(Judgment.objects.current().filter(**whose).exclude(comment=""))
    reports = _count(StatementReport.objects.filter(**whose))
    uncounted = _count(Judgment.objects.current().filter(**whose, is_counted=False, task__is_gold=False))
    finished = Training.objects.filter(**whose, finished_at__isnull=False).order_by("pk")
    trainings = {training.annotator_id: training for training in finished}

    def extras(pk: int) -> dict[str, Any]:
        training = trainings.get(pk)
        return {
            "n_comments": comments.get(pk, 0),
            "n_reports": reports.get(pk, 0),
            "n_uncounted": uncounted.get(pk, 0),
            "training": [training.n_right, training.n_answered] if training else None,
        }

    return extras


def _count(rows) -> dict[int, int]:
    return dict(rows.order_by().values_list("annotator").annotate(n=Count("pk")))


# -- limits ------------------------------------------------------------------------------------------------------------


def crossed(theirs: Profile, limits: Limits) -> list[str]:
    """Return the limits that a profile crosses, each in words."""
    reasons = []
    right = theirs.gold_accuracy
    if limits.gold_accuracy is not None and theirs.n_gold >= limits.n_gold and right < limits.gold_accuracy:
        reasons.append(f"{theirs.n_gold_right} of {theirs.n_gold} gold statements right")
    too_fast = limits.median_seconds is not None and theirs.median_seconds is not None
    if too_fast and theirs.n >= FEWEST and theirs.median_seconds < limits.median_seconds:
        reasons.append(f"median of {theirs.median_seconds:.1f} seconds")
    if limits.longest_run and theirs.longest_run > limits.longest_run:
        reasons.append(f"{theirs.longest_run} equal labels in a row")
    return reasons


def look_at(annotator: Annotator) -> None:
    """Pause the annotator if their last judgments cross a limit of the round; look at every tenth judgment only.

    Within the caller's transaction, which holds the annotator's lock. Costs one query where the round has no limits.
    """
    if annotator.n_judged % LOOK_EVERY or annotator.status != Annotator.Status.ACTIVE:
        return
    limits = Limits.objects.filter(round=annotator.round_id).first()
    if limits and (reasons := crossed(profile(_last_said(annotator)), limits)):
        set_status(annotator, Annotator.Status.PAUSED)
        record_event(annotator.round, "limit_crossed", annotator=annotator, why="; ".join(reasons))


def _last_said(annotator: Annotator) -> Sequence[Said]:
    """Return their last judgments, oldest first; what they said before they were let go on is forgiven."""
    judgments = Judgment.objects.current().filter(annotator=annotator)
    if annotator.status_since:
        judgments = judgments.filter(judged_at__gt=annotator.status_since)
    return [Said(*row) for row in said_columns(judgments.order_by("-judged_at"))[:WATCHED]][::-1]


def set_limits(round: Round, by=None, **values: Any) -> Limits:
    """Set the limits of a round; None takes one away. They hold from everybody's next look on."""
    with transaction.atomic():
        limits, _ = Limits.objects.update_or_create(round=round, defaults=values)
        record_event(round, "limits_set", by=by, limits=limits_in_words(limits))
    return limits


def limits_in_force(round: Round) -> dict[str, Any]:
    """Return a round's limits as its description has them, {} for none."""
    limits = Limits.objects.filter(round=round).first() or Limits()
    values = {name: getattr(limits, name) for name in ("gold_accuracy", "median_seconds", "longest_run")}
    found = {name: value for name, value in values.items() if value is not None}
    return found and found | {"n_gold": limits.n_gold}


def limits_in_words(limits: Limits) -> str:
    parts = [
        (limits.gold_accuracy, f"gold accuracy below {limits.gold_accuracy} after {limits.n_gold} gold statements"),
        (limits.median_seconds, f"median below {limits.median_seconds} seconds"),
        (limits.longest_run, f"more than {limits.longest_run} equal labels in a row"),
    ]
    return "; ".join(words for value, words in parts if value is not None) or "none"


# -- pausing by hand ---------------------------------------------------------------------------------------------------


def pause_annotator(annotator: Annotator, by=None) -> None:
    """Hand out nothing more to the annotator; what is in their hands is still taken. Raises CannotPause."""
    _move(annotator, Annotator.Status.ACTIVE, Annotator.Status.PAUSED, "annotator_paused", by)


def resume_annotator(annotator: Annotator, by=None) -> None:
    """Let a paused annotator go on, whatever paused them. Raises CannotPause."""
    _move(annotator, Annotator.Status.PAUSED, Annotator.Status.ACTIVE, "annotator_resumed", by)


@transaction.atomic
def _move(annotator: Annotator, source: str, target: str, kind: str, by) -> None:
    annotator = lock(annotator)
    if annotator.status != source:
        raise CannotPause(f"{annotator.code} is {annotator.status}, not {source}.")
    set_status(annotator, target)
    record_event(annotator.round, kind, by=by, annotator=annotator)


def set_status(annotator: Annotator, status: str) -> None:
    annotator.status, annotator.status_since = status, timezone.now()
    annotator.save(update_fields=["status", "status_since"])
