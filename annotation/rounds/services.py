"""A round's life: draft it, open it on samples of harvests, pause, reopen and close it."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from copy import copy
from datetime import datetime
from itertools import count
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.http import Http404
from django.utils import timezone
from django.utils.module_loading import import_string

from annotation.gold.selection import store_gold_tuple
from annotation.judges.runs import delete_runs
from annotation.judging.assignment import release_leases, wait_for_answers
from annotation.models import Assignment, Draw, JudgmentTask, Round, Stratum, TrainingStatement
from annotation.monitoring.progress import look_at_half_width
from annotation.quality.limits import limits_spec, set_limits
from annotation.rounds.builder import freeze_round, instructions_by_relation
from annotation.rounds.models import OPTIONS
from annotation.rounds.serializers import round_from_spec
from kgharvest.access import Action, check_may
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.insert import insert_rows
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import Project, Relation
from kgharvest.names import resolve_name
from kgharvest.optional_apps import uninstalled_rows_kept

logger = logging.getLogger(__name__)

TASK_FIELDS = (
    "round", "knowledge_tuple", "statement", "entities", "spans", "is_gold", "gold_label", "position", "n_wanted",
)  # fmt: skip
values_of = attrgetter(*(JudgmentTask._meta.get_field(name).attname for name in TASK_FIELDS[1:]))
DRAW_FIELDS = ("stratum", "task", "harvested_tuple", "inclusion_probability")


class WrongStatus(DomainError):
    """Changing a round that is no draft any more, or pausing, reopening or closing one that cannot be."""


def open_round(document: dict[str, Any], by=None, project: Project | None = None) -> Round:
    """Create a round from `document` (docs/rounds.md), draw its samples, freeze its statements and open it.

    Same document, harvests and gold, same sample and order. A tuple drawn for several cells becomes one task with
    several draws. project: the document's own if None, else the only one of `by`, who is None for the operator. Raises
    BadRoundSpec, BadCut, NotFound, NameTaken, NotAllowed, ProjectNotNamed, NothingToSample, NotEnoughGold; then nothing
    is stored.
    """
    with transaction.atomic():
        return open_draft(create_draft(document, by, project), by)


def create_draft(document: dict[str, Any], by=None, project: Project | None = None) -> Round:
    """Return a new round that only holds its description; nothing is drawn. Raises as open_round does."""
    round = round_from_spec(document)
    with transaction.atomic():
        round.project, round.created_by = project_for(by, project or document.get("project") or None), by
        _save(round)
        return round


def edit_draft(round: Round, document: dict[str, Any], by=None) -> Round:
    """Give a draft another description. Raises as open_round does, and WrongStatus."""
    edited = round_from_spec(document)
    with transaction.atomic():
        draft = lock_draft(round)
        before = _wording(draft)
        check_may(by, Action.WORK, draft.project)
        draft.project = project_for(by, document.get("project") or draft.project)
        for name in (*OPTIONS, "spec"):
            setattr(draft, name, getattr(edited, name))
        _save(draft)
        draft.judge_runs.update(project=draft.project)  # who may see the round sees them, and nobody else
        if _wording(draft) != before:
            record("round.instructions_edited", draft, by, round=draft)
        return draft


def _wording(draft: Round) -> tuple[Any, ...]:
    asked = [getattr(draft, option) for option in (*Round.OPTIONS["Who they are"], "check_questions", "on_withdrawal")]
    return draft.instructions, draft.consent, draft.spec.get("relation_instructions", {}), asked


def delete_draft(round: Round, by=None, n_judge_answers: int = 0) -> None:
    """Delete a draft with its judge runs. n_judge_answers: how many of their answers one knows to be lost.

    Raises NotAllowed, WrongStatus, AnswersWouldBeLost, AppNotInstalled.
    """
    with uninstalled_rows_kept(), transaction.atomic():
        draft = lock_draft(round)
        check_may(by, Action.WORK, draft.project)
        delete_runs(draft, n_judge_answers, by)
        for path in settings.DRAFT_DELETED:
            import_string(path)(draft, by)
        draft.delete()


def clone_round(round: Round, by=None) -> Round:
    """Return a draft with the round's description, a name of its own and the next seed: other tuples, other orders.

    The limits are those in force now.
    """
    if not round.spec:
        raise DomainError("BadRoundSpec", f"Round {round.name} is imported and has no description to clone.")
    stem = re.sub(r"-\d+$", "", round.name)
    changed = {"name": free_name(round.project, stem, first=2), "seed": round.seed + 1}
    if round.status != Round.Status.DRAFT:
        changed["limits"] = limits_spec(round)
    return create_draft(round.spec | changed, by, round.project)


def open_draft(round: Round, by=None) -> Round:
    """Draw the samples of a draft, freeze its statements and open it. Raises as open_round does, and WrongStatus."""
    with transaction.atomic():
        round = lock_draft(round)
        check_may(by, Action.WORK, round.project)
        if round.closes_at and round.closes_at <= timezone.now():
            raise DomainError(
                "BadRoundSpec", f"The round would close at {round.closes_at:%Y-%m-%d %H:%M}, in the past."
            )
        frozen = freeze_round(round, by)
        Stratum.objects.bulk_create([sample.stratum for sample in frozen.samples])
        for task in frozen.tasks:
            if task.gold:
                task.knowledge_tuple_id = store_gold_tuple(task.gold).pk
        # In the order of their positions: made cell by cell, ids would tell cell, rank and gold.
        insert_rows(JudgmentTask, TASK_FIELDS, ((round.pk, *values_of(task)) for task in frozen.tasks))
        task_ids = dict(round.tasks.without_gold().order_by().values_list("knowledge_tuple_id", "pk").iterator())
        insert_rows(Draw, DRAW_FIELDS, frozen.draws(task_ids))
        TrainingStatement.objects.bulk_create(frozen.training)
        round.n_tasks, round.n_gold = len(frozen.tasks), sum(task.is_gold for task in frozen.tasks)
        round.relation_instructions = frozen.relation_instructions
        round.status, round.opened_at = Round.Status.OPEN, timezone.now()
        round.save()
        record("round.opened", round, by, round=round, n_tasks=round.n_tasks)
        if limits := round.spec.get("limits"):
            set_limits(round, by, **limits)
        return round


def _save(round: Round) -> None:
    try:
        with transaction.atomic():
            round.save()
    except IntegrityError:
        if not round.project.rounds.filter(name=round.name).exclude(pk=round.pk).exists():
            raise
        raise DomainError(
            "NameTaken", f"{round.project} has a round named {round.name!r} already. Choose another name."
        ) from None


def lock_draft(round: Round) -> Round:
    """Return the draft as it is now, until the end of the transaction. Raises WrongStatus."""
    drafts = Round.objects.select_for_update(of=("self",)).select_related("project")
    draft = drafts.filter(pk=round.pk, status=Round.Status.DRAFT).first()
    if draft is None:
        raise WrongStatus(f"The round {round.name} is no draft any more; what was drawn stays as it is.")
    return draft


def check_is_draft(round: Round, done: str) -> None:
    """Raise WrongStatus unless the round is a draft. done: what is done with drafts alone, as "planned"."""
    if round.status != Round.Status.DRAFT:
        raise WrongStatus(f"The round {round.name} is {round.status}; only drafts are {done}.")


def free_name(project: Project, stem: str, first: int = 1) -> str:
    """Return the first of stem-1, stem-2, ... that no round of the project has; first: the least number."""
    stem = stem[:90]
    taken = set(project.rounds.filter(name__startswith=stem).values_list("name", flat=True))
    return next(name for number in count(first) if (name := f"{stem}-{number}") not in taken)


def usual_instructions(draft: Round, pk: int, by) -> tuple[Relation, str]:
    """Return a relation of the draft, and what the round says about it if nobody writes anything else.

    Raises Http404 for another relation, and as freeze_round does.
    """
    unwritten = copy(draft)
    unwritten.spec = draft.spec | {"relation_instructions": {}}
    frozen = freeze_round(unwritten, by)
    for relation in frozen.relations:
        if relation.pk == pk:
            return relation, frozen.relation_instructions[str(pk)]
    raise Http404("The draft samples no such relation.")


def save_instructions(draft: Round, relation: Relation, text: str, by) -> None:
    """Store words about a relation beside those about others, which somebody may be writing now; "" is the usual ones.

    Raises WrongStatus for a round that is open by now, NotFound if a relation is gone.
    """
    with transaction.atomic():
        draft = lock_draft(draft)
        written = instructions_by_relation(draft) | {relation.pk: text}
        relations = Relation.objects.select_related("relation_set").in_bulk(written)
        by_path = {relations[pk].path: text for pk, text in written.items() if text}
        edit_draft(draft, draft.spec | {"relation_instructions": by_path}, by)


def find_round(name: str, user=None) -> Round:
    """Return the round that `name`, or project/name, means among those that `user` sees. Raises UnresolvedName."""
    rounds = Round.objects.visible_to(user).select_related("project")
    paths = {round.path: round for round in rounds.only("name", "project").order_by("-pk")}
    return rounds.get(pk=paths[resolve_name(name, paths, "round")].pk)


@transaction.atomic
def pause_round(round: Round, by=None) -> None:
    """Stop handing out and taking judgments until the round is reopened. Raises NotAllowed, WrongStatus."""
    check_may(by, Action.WORK, round.project)
    _move(round, [Round.Status.OPEN], Round.Status.PAUSED)
    record("round.paused", round, by, round=round)


@transaction.atomic
def reopen_round(round: Round, by=None) -> None:
    """Let judging go on. A closing rule that has been met would close the round at once: closing is left to people.

    Raises NotAllowed, WrongStatus.
    """
    check_may(by, Action.WORK, round.project)
    no_rule = {"closes_when": Round.ClosesWhen.MANUAL, "closes_at": None, "closes_at_half_width": None}
    rule = no_rule if round.closed_at else {}
    _move(round, [Round.Status.PAUSED, Round.Status.CLOSED], Round.Status.OPEN, closed_at=None, **rule)
    record("round.reopened", round, by, round=round)


@transaction.atomic
def close_round(round: Round, by=None) -> int:
    """End judging and return how many statements were in people's hands. Tasks that are still open stay incomplete.

    Raises NotAllowed, WrongStatus.
    """
    check_may(by, Action.WORK, round.project)
    _move(round, [Round.Status.OPEN, Round.Status.PAUSED], Round.Status.CLOSED, closed_at=timezone.now())
    n_released = release_leases(Assignment.objects.filter(annotator__round=round))
    n_incomplete = round.tasks.without_gold().filter(verdict="").count()
    record("round.closed", round, by, round=round, n_incomplete=n_incomplete)
    if n_released:
        record("round.released", round, by, round=round, n=n_released)
    return n_released


def _move(round: Round, sources: Sequence[str], target: str, **fields: Any) -> None:
    if not Round.objects.filter(pk=round.pk, status__in=sources).update(status=target, **fields):
        round.refresh_from_db(fields=["status"])
        raise WrongStatus(f"The round {round.name} is {round.status}; it cannot become {target}.")
    if target != Round.Status.OPEN:
        wait_for_answers(round)
    round.refresh_from_db(fields=["status", "closed_at", *fields])


def note_complete_rounds(now: datetime) -> None:
    """Note, and tell webhooks, which rounds have all their judgments since the last time."""
    tasks = JudgmentTask.objects.filter(round=OuterRef("pk"))
    # Open slots first: their index tells at once that most rounds are not complete.
    complete = Round.objects.filter(
        ~Exists(tasks.with_open_slot()), ~Exists(tasks.without_gold().filter(verdict="")), n_tasks__gt=0
    )
    judged = complete.exclude(status=Round.Status.DRAFT).exclude(source=Round.Source.IMPORTED)
    for round in judged.filter(completed_at=None):
        with transaction.atomic():
            if Round.objects.filter(pk=round.pk, completed_at=None).update(completed_at=now):
                record("round.complete", round, None, round=round, n_statements=round.n_tasks - round.n_gold)


def close_due_rounds(now: datetime) -> None:
    """Close the open rounds whose date has come, whose statements all have their judgments, or that are narrow."""
    incomplete = JudgmentTask.objects.without_gold().filter(round=OuterRef("pk"), verdict="")
    is_over = Q(closes_when=Round.ClosesWhen.DATE, closes_at__lte=now)
    is_complete = Q(closes_when=Round.ClosesWhen.COMPLETE) & ~Exists(incomplete)
    may_be_narrow = Q(closes_when=Round.ClosesWhen.NARROW)
    for round in Round.objects.filter(is_over | is_complete | may_be_narrow, status=Round.Status.OPEN):
        if round.closes_at_half_width is not None:
            half_width = look_at_half_width(round, now)
            if half_width is None or half_width > round.closes_at_half_width:
                continue
        try:
            close_round(round)
        except WrongStatus:
            logger.info("The round %s was closed by somebody else.", round.name)
