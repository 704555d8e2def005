"""A round's life: draft it, open it on samples of harvests, pause, reopen and close it."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from annotation.gold.selection import store_gold_tuple
from annotation.judging.assignment import release_leases, wait_for_answers
from annotation.models import Assignment, Draw, JudgmentTask, Round, Stratum, Study, StudyMember, TrainingStatement
from annotation.quality.limits import limits_spec, set_limits
from annotation.rounds.builder import freeze_round
from annotation.rounds.models import OPTIONS
from annotation.rounds.serializers import DEFAULT_STUDY, BadRoundSpec, round_from_spec
from kgharvest.errors import DomainError, NotFound

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 2000


class NameTaken(DomainError):
    """A round of this name exists."""


class NotInStudy(DomainError):
    """Opening a round in a study of other people."""


class WrongStatus(DomainError):
    """Changing a round that is no draft any more, or pausing, reopening or closing one that cannot be."""


def open_round(document: dict[str, Any], by=None) -> Round:
    """Create a round from `document` (docs/rounds.md), draw its samples, freeze its statements and open it.

    Same document, harvests and gold, same sample and order. A tuple drawn for several cells becomes one task with
    several draws. `by` becomes the owner of a study that is new; None is the operator of this installation. Raises
    BadRoundSpec, BadCut, NotFound, NameTaken, NotInStudy, NothingToSample, NotEnoughGold; then nothing is stored.
    """
    with transaction.atomic():
        return open_draft(create_draft(document, by), by)


# -- drafts ------------------------------------------------------------------------------------------------------------


def create_draft(document: dict[str, Any], by=None) -> Round:
    """Return a new round that only holds its description; nothing is drawn. Raises as open_round does."""
    round = round_from_spec(document)
    with transaction.atomic():
        round.study, round.created_by = find_study(round.spec.get("study", DEFAULT_STUDY), by), by
        _save(round)
        return round


def edit_draft(round: Round, document: dict[str, Any], by=None) -> Round:
    """Give a draft another description. Raises as open_round does, and WrongStatus."""
    edited = round_from_spec(document)
    with transaction.atomic():
        draft = lock_draft(round)
        draft.study = find_study(edited.spec.get("study", DEFAULT_STUDY), by)
        for name in (*OPTIONS, "spec"):
            setattr(draft, name, getattr(edited, name))
        _save(draft)
        return draft


def delete_draft(round: Round) -> None:
    with transaction.atomic():
        lock_draft(round).delete()


def clone_round(round: Round, by=None) -> Round:
    """Return a draft with the round's description, a name of its own and the next seed: other tuples, other orders.

    The limits are those in force now.
    """
    if not round.spec:
        raise BadRoundSpec(f"The round {round.name} was made by an import; there is no description to clone.")
    changed = {"name": _free_name(round.name), "seed": round.seed + 1}
    if round.status != Round.Status.DRAFT:
        changed["limits"] = limits_spec(round)
    return create_draft(round.spec | changed, by)


def open_draft(round: Round, by=None) -> Round:
    """Draw the samples of a draft, freeze its statements and open it. Raises as open_round does, and WrongStatus."""
    with transaction.atomic():
        round = lock_draft(round)
        if round.closes_at and round.closes_at <= timezone.now():
            raise BadRoundSpec(f"The round would close at {round.closes_at:%Y-%m-%d %H:%M}, which is over.")
        frozen = freeze_round(round)
        Stratum.objects.bulk_create([sample.stratum for sample in frozen.samples])
        for task in frozen.tasks:
            if task.is_gold:
                task.knowledge_tuple = store_gold_tuple(task.knowledge_tuple)
        # In the order of their positions: made cell by cell, ids would tell cell, rank and gold.
        JudgmentTask.objects.bulk_create(frozen.tasks, batch_size=ROWS_AT_ONCE)
        Draw.objects.bulk_create(frozen.draws(), batch_size=ROWS_AT_ONCE)
        TrainingStatement.objects.bulk_create(frozen.training)
        round.n_tasks, round.n_gold = len(frozen.tasks), sum(task.is_gold for task in frozen.tasks)
        round.relation_instructions = frozen.relation_instructions
        round.status, round.opened_at = Round.Status.OPEN, timezone.now()
        round.save()
        round.events.record("opened", by=by, n_tasks=round.n_tasks)
        if limits := round.spec.get("limits"):
            set_limits(round, by, **limits)
        return round


def _save(round: Round) -> None:
    try:
        with transaction.atomic():
            round.save()
    except IntegrityError:
        if not Round.objects.filter(name=round.name).exclude(pk=round.pk).exists():
            raise
        raise NameTaken(f"There is already a round named {round.name!r}; choose another name.") from None


def lock_draft(round: Round) -> Round:
    """Return the draft as it is now, until the end of the transaction. Raises WrongStatus."""
    draft = Round.objects.select_for_update(of=("self",)).filter(pk=round.pk, status=Round.Status.DRAFT).first()
    if draft is None:
        raise WrongStatus(f"The round {round.name} is no draft any more; what was drawn stays as it is.")
    return draft


def _free_name(name: str) -> str:
    """Return the first of name-2, name-3, ... that no round has."""
    stem = re.sub(r"-\d+$", "", name)[:90]
    taken = set(Round.objects.filter(name__startswith=stem).values_list("name", flat=True))
    return next(name for number in range(2, len(taken) + 3) if (name := f"{stem}-{number}") not in taken)


# -- finding -----------------------------------------------------------------------------------------------------------


def find_study(name: str, by) -> Study:
    """Return the study of this name, made if there is none; raise NotInStudy if `by` may not open rounds in it."""
    study, is_new = Study.objects.get_or_create(name=name)
    if by is None or by.is_superuser:
        return study
    if is_new:
        study.members.create(user=by, role=StudyMember.Role.OWNER)
    elif not study.members.filter(user=by, role__in=StudyMember.MANAGING).exists():
        raise NotInStudy(f"You may not open rounds in the study {name!r}; ask its owner, or name another study.")
    return study


def find_round(name: str) -> Round:
    """Return the round of this name. Raises NotFound with the names there are."""
    round = Round.objects.filter(name=name).first()
    if round is None:
        names = ", ".join(Round.objects.values_list("name", flat=True)[:10]) or "none; open one first"
        raise NotFound(f"There is no round named {name!r}; the newest are: {names}.")
    return round


# -- a round's life ----------------------------------------------------------------------------------------------------


@transaction.atomic
def pause_round(round: Round, by=None) -> None:
    """Stop handing out and taking judgments until the round is reopened."""
    _move(round, [Round.Status.OPEN], Round.Status.PAUSED)
    round.events.record("paused", by=by)


@transaction.atomic
def reopen_round(round: Round, by=None) -> None:
    """Let judging go on. A closing rule that has been met would close the round at once: closing is left to people."""
    rule = {"closes_when": Round.ClosesWhen.MANUAL, "closes_at": None} if round.closed_at else {}
    _move(round, [Round.Status.PAUSED, Round.Status.CLOSED], Round.Status.OPEN, closed_at=None, **rule)
    round.events.record("reopened", by=by)


@transaction.atomic
def close_round(round: Round, by=None) -> int:
    """End judging and return how many statements were in people's hands. Tasks that are still open stay incomplete."""
    _move(round, [Round.Status.OPEN, Round.Status.PAUSED], Round.Status.CLOSED, closed_at=timezone.now())
    n_released = release_leases(Assignment.objects.filter(annotator__round=round))
    round.events.record("closed", by=by, n_incomplete=round.tasks.without_gold().filter(verdict="").count())
    if n_released:
        round.events.record("given_back", by=by, n=n_released)
    return n_released


def _move(round: Round, sources: Sequence[str], target: str, **fields: Any) -> None:
    if not Round.objects.filter(pk=round.pk, status__in=sources).update(status=target, **fields):
        round.refresh_from_db(fields=["status"])
        raise WrongStatus(f"The round {round.name} is {round.status}; it cannot become {target}.")
    if target != Round.Status.OPEN:
        wait_for_answers(round)
    round.refresh_from_db(fields=["status", "closed_at", *fields])


def close_due_rounds(now: datetime) -> None:
    """Close the open rounds whose date has come, or whose statements all have their judgments."""
    incomplete = JudgmentTask.objects.without_gold().filter(round=OuterRef("pk"), verdict="")
    is_over = Q(closes_when=Round.ClosesWhen.DATE, closes_at__lte=now)
    is_complete = Q(closes_when=Round.ClosesWhen.COMPLETE) & ~Exists(incomplete)
    for round in Round.objects.filter(is_over | is_complete, status=Round.Status.OPEN):
        try:
            close_round(round)
        except WrongStatus:
            logger.info("The round %s was closed by somebody else.", round.name)
