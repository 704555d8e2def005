"""Limits that pause annotators automatically, and manual pausing."""

from typing import Any

from django.db import transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from annotation.models import Annotator, Judgment, Limits, Round
from annotation.quality.annotator_statistics import judgment_rows
from annotation.quality.profiles import JudgmentRow, exceeded_limits, profile_of
from kgharvest.access import Action, check_may
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

LAST_JUDGMENTS = 500  # number of last judgments checked for time and runs, which limits the cost of a check
CHECK_LIMITS_EVERY = 10  # number of judgments of an annotator between two checks


def enforce_limits(annotator: Annotator) -> None:
    """Pause the annotator if their last judgments, or all their gold answers, exceed a limit of the round.

    Called after every CHECK_LIMITS_EVERY judgments, in the caller's transaction, which holds the annotator's lock.
    Judgments from before the annotator was last resumed are ignored. If the round has no limits, the check costs one
    query. Gold accuracy uses all answers, because repeated tests on a moving window would exceed the stated false-alarm
    rate.
    """
    if annotator.status != Annotator.Status.ACTIVE:
        return
    limits = Limits.objects.filter(round=annotator.round_id).first()
    if limits is None:
        return
    judgments = Judgment.objects.current().filter(annotator=annotator)
    if annotator.status_since:
        judgments = judgments.filter(judged_at__gt=annotator.status_since)
    last_first = [JudgmentRow(*row) for row in judgment_rows(judgments.order_by("-judged_at"))[:LAST_JUDGMENTS]]
    profile = profile_of(last_first[::-1])
    if limits.gold_accuracy is not None:
        is_right = Q(label=F("task__gold_label"))
        gold = judgments.filter(task__in=annotator.round.tasks.gold()).order_by()
        profile = profile._replace(**gold.aggregate(n_gold=Count("pk"), n_gold_right=Count("pk", filter=is_right)))
    if exceeded := exceeded_limits(profile, limits):
        set_status(annotator, Annotator.Status.PAUSED)
        round = Round.objects.select_related("project").get(pk=annotator.round_id)
        record("annotator.limit_crossed", annotator, None, round=round, annotator=annotator, why="; ".join(exceeded))


def set_limits(round: Round, by=None, **values: Any) -> Limits:
    """Set the limits of a round. They apply from each annotator's next check. Raises NotAllowed.

    values: limits by name; None means no limit.
    """
    check_may(by, Action.WORK, round.project)
    with transaction.atomic():
        limits, _ = Limits.objects.update_or_create(round=round, defaults=values)
        record("round.limits_set", round, by, round=round, limits=limits.sentence)
    return limits


def limits_spec(round: Round) -> dict[str, Any]:
    """Return the limits in the format of a round spec, or {} if there are none."""
    limits = Limits.objects.filter(round=round).first() or Limits()
    values = {name: getattr(limits, name) for name in ("gold_accuracy", "median_seconds", "longest_run")}
    in_force = {name: value for name, value in values.items() if value is not None}
    return in_force and in_force | {"n_gold": limits.n_gold}


def pause_annotator(annotator: Annotator, by=None) -> None:
    """Stop assigning statements to the annotator. Answers to assigned statements are still accepted.

    Raises NotAllowed, or DomainError CannotPause.
    """
    _change_status(annotator, Annotator.Status.ACTIVE, Annotator.Status.PAUSED, "annotator.paused", by, why="by hand")


def resume_annotator(annotator: Annotator, by=None) -> None:
    """Resume a paused annotator, regardless of why they were paused. Raises NotAllowed, or DomainError CannotPause."""
    _change_status(annotator, Annotator.Status.PAUSED, Annotator.Status.ACTIVE, "annotator.resumed", by)


@transaction.atomic
def _change_status(annotator: Annotator, source: str, target: str, event: str, by, **facts: str) -> None:
    # `annotator.round` may have deferred fields: judging loads only some of them.
    round = Round.objects.select_related("project").get(pk=annotator.round_id)
    check_may(by, Action.WORK, round.project)
    annotator = Annotator.objects.lock(annotator.pk)
    if annotator.status != source:
        raise DomainError("CannotPause", f"{annotator.code} is {annotator.status}, not {source}.")
    set_status(annotator, target)
    record(event, annotator, by, round=round, annotator=annotator, **facts)


def set_status(annotator: Annotator, status: str) -> None:
    annotator.status, annotator.status_since = status, timezone.now()
    annotator.save(update_fields=["status", "status_since"])
