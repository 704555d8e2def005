"""Round lifecycle: create drafts, open them with samples of harvests, and pause, reopen, and close rounds."""

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
from django.db.models import Exists, OuterRef, Q, QuerySet
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
from annotation.rounds.serializers import round_from_spec, with_who_can_join
from kgharvest.access import Action, check_may
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import AuditedTable
from kgharvest.bulk.insert import insert_rows
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import Project, Relation
from kgharvest.names import resolve_name
from kgharvest.optional_apps import uninstalled_rows_kept

logger = logging.getLogger(__name__)

TASK_FIELDS = (
    "round", "knowledge_tuple", "statement", "entities", "spans", "is_gold", "gold_label", "position", "n_wanted",
    "additions",
)  # fmt: skip
values_of = attrgetter(*(JudgmentTask._meta.get_field(name).attname for name in TASK_FIELDS[1:]))
ROUNDS = AuditedTable(
    Round,
    *("project_id", "source", "seed", "judgments_per_task", "third_only_if_split", "gold_share", "training_size"),
    *("include_sensitive", "judge", "cluster_size", "on_withdrawal"),
    condition=~Q(status=Round.Status.DRAFT) & Q(n_tasks__gt=0),
    is_mutable=True,
)
STRATA = AuditedTable(
    Stratum,
    *("round_id", "relation_id", "language_model_id", "setting", "job_id", "cut", "rank_from", "rank_to"),
    *("judge_label", "ranks", "population", "sample_size"),
    children=("draws", "task_id", "harvested_tuple_id", "inclusion_probability", "cluster"),
    is_mutable=True,
)
STATEMENTS = AuditedTable(
    JudgmentTask,
    *("round_id", "knowledge_tuple_id", "statement", "entities", "is_gold", "gold_label", "position"),
)
DRAW_FIELDS = ("stratum", "task", "harvested_tuple", "inclusion_probability", "cluster")


class WrongStatus(DomainError):
    """Raised if the status of a round does not allow an operation."""


def open_round(document: dict[str, Any], by=None, project: Project | None = None) -> Round:
    """Create a round from `document` (docs/rounds.md), draw its samples, freeze its statements, and open it.

    Deterministic for the same document, harvests, and gold. A tuple drawn for several cells becomes one task with
    several draws. project: defaults to the project in the document or, if it names none, to the only project of `by`.
    by: None for the operator. Raises BadRoundSpec, BadCut, NotFound, NameTaken, NotAllowed, ProjectNotNamed,
    NothingToSample, NotEnoughGold, or NoiseNotConfirmed. If an error is raised, nothing is stored.
    """
    with transaction.atomic():
        return open_draft(create_draft(document, by, project), by)


def create_draft(document: dict[str, Any], by=None, project: Project | None = None) -> Round:
    """Create a draft from its description without drawing a sample. Raises the same errors as open_round."""
    round = round_from_spec(document)
    with transaction.atomic():
        round.project, round.created_by = project_for(by, project or document.get("project") or None), by
        _save(round)
        return round


def edit_draft(round: Round, document: dict[str, Any], by=None) -> Round:
    """Replace the description of a draft. Raises WrongStatus or the same errors as open_round.

    A confirmation of noise applies to the confirmed cells only, so new cells remove it.
    """
    edited = round_from_spec(document)
    with transaction.atomic():
        draft = lock_draft(round)
        if edited.spec["cells"] != draft.spec["cells"]:
            edited.spec.pop("confirm_noise", None)
        before = _wording(draft)
        check_may(by, Action.WORK, draft.project)
        draft.project = project_for(by, document.get("project") or draft.project)
        for name in (*OPTIONS, "spec"):
            setattr(draft, name, getattr(edited, name))
        _save(draft)
        draft.judge_runs.update(project=draft.project)  # same access rules as for the round
        if _wording(draft) != before:
            record("round.instructions_edited", draft, by, round=draft)
        return draft


def _wording(draft: Round) -> tuple[Any, ...]:
    asked = [getattr(draft, option) for option in (*Round.OPTIONS["Questionnaire"], "check_questions", "on_withdrawal")]
    return draft.instructions, draft.consent, draft.spec.get("relation_instructions", {}), asked


def delete_draft(round: Round, by=None, n_judge_answers: int = 0) -> None:
    """Delete a draft and its judge runs. n_judge_answers: number of judge answers whose deletion was confirmed.

    Raises NotAllowed, WrongStatus, AnswersWouldBeLost, or AppNotInstalled.
    """
    with uninstalled_rows_kept(), transaction.atomic():
        draft = lock_draft(round)
        check_may(by, Action.WORK, draft.project)
        delete_runs(draft, n_judge_answers, by)
        for path in settings.DRAFT_DELETED:
            import_string(path)(draft, by)
        draft.delete()


def clone_round(round: Round, by=None) -> Round:
    """Create a draft with the round's description, an unused name, the next seed, and the current limits."""
    if not round.spec:
        raise DomainError("BadRoundSpec", f"Cannot clone round {round.name}: imported rounds have no description.")
    stem = re.sub(r"-\d+$", "", round.name)
    changed = {"name": free_name(round.project, stem, first=2), "seed": round.seed + 1, "confirm_noise": False}
    if round.status != Round.Status.DRAFT:
        changed["limits"] = limits_spec(round)
    return create_draft(round.spec | changed, by, round.project)


def open_draft(round: Round, by=None, confirm_noise: bool = False) -> Round:
    """Draw the samples of a draft, freeze its statements, and open it. Raises WrongStatus or errors of open_round.

    confirm_noise: accept harvests that are probably noise, like the key of the description.
    """
    with transaction.atomic():
        round = lock_draft(round)
        check_may(by, Action.WORK, round.project)
        if round.closes_at and round.closes_at <= timezone.now():
            raise DomainError(
                "BadRoundSpec", f"The closing time {round.closes_at:%Y-%m-%d %H:%M} is in the past. Change closes_at."
            )
        frozen = freeze_round(round, by)
        if warnings := frozen.noise_warnings():
            if not (confirm_noise or round.spec.get("confirm_noise")):
                first = "; ".join(f"{warning['harvest']}: {warning['text']}" for warning in warnings[:3])
                advice = "Select other harvests, or confirm that you use these (confirm_noise, --confirm-noise)."
                on_page = "Select other harvests, or select “Use harvests that are probably noise”."
                raise DomainError(
                    "NoiseNotConfirmed",
                    f"Harvests are probably noise. {first} {advice}",
                    on_page=f"Harvests are probably noise. {first} {on_page}",
                )
            round.spec |= {"confirm_noise": True}
        Stratum.objects.bulk_create([sample.stratum for sample in frozen.samples])
        for task in frozen.tasks:
            if task.gold:
                task.knowledge_tuple_id = store_gold_tuple(task.gold).pk
        # Insert by position: ids in cell order would reveal the cell, the rank, and which statements are gold.
        insert_rows(JudgmentTask, TASK_FIELDS, ((round.pk, *values_of(task)) for task in frozen.tasks))
        task_ids = dict(round.tasks.without_gold().order_by().values_list("knowledge_tuple_id", "pk").iterator())
        insert_rows(Draw, DRAW_FIELDS, frozen.draws(task_ids))
        TrainingStatement.objects.bulk_create(frozen.training)
        round.n_tasks, round.n_gold = len(frozen.tasks), sum(task.is_gold for task in frozen.tasks)
        round.relation_instructions = frozen.relation_instructions
        round.status, round.opened_at = Round.Status.OPEN, timezone.now()
        round.save()
        rows = [*(sample.stratum for sample in frozen.samples), *round.tasks.only("pk")]
        record("round.opened", round, by, rows=rows, round=round, n_tasks=round.n_tasks)
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
            "NameTaken", f"A round named {round.name!r} already exists in {round.project}. Choose another name."
        ) from None


def lock_draft(round: Round) -> Round:
    """Return the draft, reloaded and locked until the end of the transaction. Raises WrongStatus."""
    drafts = Round.objects.select_for_update(of=("self",)).select_related("project")
    draft = drafts.filter(pk=round.pk, status=Round.Status.DRAFT).first()
    if draft is None:
        raise WrongStatus(f"Round {round.name} is not a draft. A drawn sample cannot be changed.")
    return draft


def check_is_draft(round: Round, done: str) -> None:
    """Raise WrongStatus unless the round is a draft. done: the operation as a participle, such as "planned"."""
    if round.status != Round.Status.DRAFT:
        raise WrongStatus(f"Round {round.name} is {round.status}. Only drafts can be {done}.")


def free_name(project: Project, stem: str, first: int = 1) -> str:
    """Return the first unused name among stem-1, stem-2, ... in the project. first: number to start from."""
    stem = stem[:90]
    existing_names = set(project.rounds.filter(name__startswith=stem).values_list("name", flat=True))
    return next(name for number in count(first) if (name := f"{stem}-{number}") not in existing_names)


def default_instructions(draft: Round, pk: int, by) -> tuple[Relation, str]:
    """Return relation `pk` of the draft and its default instructions.

    Raises Http404 if the draft does not sample the relation, or the same errors as freeze_round.
    """
    without_edits = copy(draft)
    without_edits.spec = draft.spec | {"relation_instructions": {}}
    frozen = freeze_round(without_edits, by)
    for relation in frozen.relations:
        if relation.pk == pk:
            return relation, frozen.relation_instructions[str(pk)]
    raise Http404("The draft does not sample this relation.")


def save_instructions(draft: Round, relation: Relation, text: str, by) -> None:
    """Save the instructions of a relation, keeping concurrent edits to other relations. "" restores the default.

    Raises WrongStatus if the round has been opened, or NotFound if a relation was deleted.
    """
    with transaction.atomic():
        draft = lock_draft(draft)
        texts = instructions_by_relation(draft) | {relation.pk: text}
        relations = Relation.objects.select_related("relation_set").in_bulk(texts)
        by_path = {relations[pk].path: text for pk, text in texts.items() if text}
        edit_draft(draft, draft.spec | {"relation_instructions": by_path}, by)


def find_round(name: str, user=None) -> Round:
    """Return the round with this name or project/name among those visible to `user`. Raises UnresolvedName."""
    rounds = Round.objects.visible_to(user).select_related("project")
    paths = {round.path: round for round in rounds.only("name", "project").order_by("-pk")}
    return rounds.get(pk=paths[resolve_name(name, paths, "round")].pk)


@transaction.atomic
def pause_round(round: Round, by=None) -> None:
    """Stop assignment and judging until the round is reopened. Raises NotAllowed or WrongStatus."""
    check_may(by, Action.WORK, round.project)
    _move(round, [Round.Status.OPEN], Round.Status.PAUSED)
    record("round.paused", round, by, round=round)


@transaction.atomic
def reopen_round(round: Round, by=None) -> None:
    """Reopen a paused or closed round. A closed round loses its closing rule, which would close it again immediately.

    An archived round is also restored. Raises NotAllowed or WrongStatus.
    """
    check_may(by, Action.WORK, round.project)
    no_rule = {"closes_when": Round.ClosesWhen.MANUAL, "closes_at": None, "closes_at_half_width": None}
    rule = no_rule if round.closed_at else {}
    changes = rule | {"closed_at": None, "archived_at": None}
    _move(round, [Round.Status.PAUSED, Round.Status.CLOSED], Round.Status.OPEN, **changes)
    record("round.reopened", round, by, round=round)


@transaction.atomic
def close_round(round: Round, by=None, half_width: float | None = None) -> int:
    """Close a round and return the number of released leases. Open tasks remain incomplete.

    half_width: target half-width, if the round closes because it is reached.
    Raises NotAllowed or WrongStatus.
    """
    check_may(by, Action.WORK, round.project)
    _move(round, [Round.Status.OPEN, Round.Status.PAUSED], Round.Status.CLOSED, closed_at=timezone.now())
    n_released = release_leases(Assignment.objects.filter(annotator__round=round))
    n_incomplete = round.tasks.without_gold().filter(verdict="").count()
    rule = {} if half_width is None else {"half_width": half_width}
    record("round.closed", round, by, round=round, n_incomplete=n_incomplete, **rule)
    if n_released:
        record("round.released", round, by, round=round, n=n_released)
    return n_released


@transaction.atomic
def set_who_can_join(round: Round, who_can_join: str, by=None) -> None:
    """Change who can join an open or paused round. A clone has the same choice.

    Raises NotAllowed, NotForPeople, or WrongStatus.
    """
    check_may(by, Action.WORK, round.project)
    if round.source != Round.Source.PEOPLE:
        raise DomainError("NotForPeople", f"Cannot join {round.name}: its judgments are {round.source}.")
    joinable = Round.objects.filter(pk=round.pk, status__in=[Round.Status.OPEN, Round.Status.PAUSED])
    choice, spec = Round.WhoCanJoin(who_can_join), with_who_can_join(round.spec, who_can_join)
    if not joinable.update(who_can_join=choice, takes_guests=choice == Round.WhoCanJoin.LINK, spec=spec):
        raise WrongStatus(f"Round {round.name} is {round.status}. Only open and paused rounds can be joined.")
    record("round.who_can_join_set", round, by, round=round, who=choice.value)
    round.refresh_from_db(fields=["who_can_join", "spec"])


def _move(round: Round, sources: Sequence[str], target: str, **fields: Any) -> None:
    if not Round.objects.filter(pk=round.pk, status__in=sources).update(status=target, **fields):
        round.refresh_from_db(fields=["status"])
        raise WrongStatus(f"Round {round.name} is {round.status} and cannot become {target}.")
    if target != Round.Status.OPEN:
        wait_for_answers(round)
    round.refresh_from_db(fields=["status", "closed_at", *fields])


def note_complete_rounds(now: datetime) -> None:
    """Record an event for each round whose judgments have become complete."""
    tasks = JudgmentTask.objects.filter(round=OuterRef("pk"))
    # Check open slots first, because their index excludes most rounds.
    complete = Round.objects.filter(
        ~Exists(tasks.without_gold().with_open_slot()), ~Exists(tasks.without_gold().filter(verdict="")), n_tasks__gt=0
    )
    judged = complete.exclude(status=Round.Status.DRAFT).exclude(source=Round.Source.IMPORTED)
    for round in judged.filter(completed_at=None):
        with transaction.atomic():
            if Round.objects.filter(pk=round.pk, completed_at=None).update(completed_at=now):
                record("round.complete", round, None, round=round, n_statements=round.n_tasks - round.n_gold)


def close_due_rounds(now: datetime, rounds: QuerySet[Round] | None = None) -> None:
    """Close open rounds that are complete or have reached their closing date or target half-width.

    rounds: the rounds to check. Default: all.
    """
    incomplete = JudgmentTask.objects.without_gold().filter(round=OuterRef("pk"), verdict="")
    is_over = Q(closes_when=Round.ClosesWhen.DATE, closes_at__lte=now)
    is_complete = Q(closes_when=Round.ClosesWhen.COMPLETE) & ~Exists(incomplete)
    may_be_narrow = Q(closes_when=Round.ClosesWhen.NARROW)
    rounds = Round.objects.all() if rounds is None else rounds
    for round in rounds.filter(is_over | is_complete | may_be_narrow, status=Round.Status.OPEN):
        if round.closes_at_half_width is not None:
            half_width = look_at_half_width(round, now)
            if half_width is None or half_width > round.closes_at_half_width:
                continue
        try:
            close_round(round, half_width=round.closes_at_half_width)
        except WrongStatus:
            logger.info("Round %s was closed concurrently.", round.name)
