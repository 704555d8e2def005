"""Judgments in the audit log.

Judgments are sealed in batches, so that storing an answer does not wait for the lock on the chain of log entries.

A batch adds one entry per round. Sealing holds the lock on the head of the chain. Judgments that have no entry yet are
sealed in any order. Rows that a concurrent answer has locked are sealed in a later batch.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from annotation.models import Annotator, Exclusion, Judgment, JudgmentTask, Round, Withdrawal
from annotation.questionnaire.questions import OnWithdrawal
from kgharvest.audit.tables import AuditedTable, canonical_json, sha256, table_lines
from kgharvest.events.chain import append, lock_head
from kgharvest.events.models import Event

SEALED = "judgments.sealed"
JUDGMENTS_AT_ONCE = 1000
SEAL_EVERY_S = 60
BATCHES_AT_ONCE = 10  # maximum per run of the periodic task, because a run delays other tasks of the worker
ADDED_COLUMNS = ("wrong_part", "opened_reference")  # of later versions
EXCLUDING_TAKES_S = 600  # maximum time from the decision until all judgments are excluded


class Marks(NamedTuple):
    """Counting state of a judgment. The state changes if the annotator is excluded or reinstated."""

    annotator: int
    sealed_in: int | None
    is_current: bool
    is_counted: bool
    is_excluded: bool

    @property
    def has_counted(self) -> bool:
        return self.is_counted or self.is_excluded


class Exclusions(NamedTuple):
    """Sets of annotator ids.

    ever: excluded at least once. in_force: excluded now and for at least EXCLUDING_TAKES_S, so that none of their
    judgments may still count. reinstated: reinstated at least once.
    """

    ever: set[int]
    in_force: set[int]
    reinstated: set[int]


class JudgmentTable(AuditedTable):
    """Judgments, each with its statement, the judgment that it supersedes, and a flag for whether the judgment counts.

    The flag is also set for judgments that counted before an exclusion, so an exclusion does not change hashes.
    Judgments that a reinstatement does not restore, or whose comments a withdrawal erases, are sealed again. After
    that, these judgments can no longer be compared with the entries that sealed them before.
    """

    is_sealed_later = True

    def __init__(self) -> None:
        task = ("round_id", "pk", "statement", "entities", "is_gold", "gold_label")
        answer = ("annotator__code", "label", "is_late", "seconds", "comment", "judged_at", "superseded__pk")
        answer += ADDED_COLUMNS
        super().__init__(Judgment, *(f"task__{name}" for name in task), *answer)

    def row_hashes(self, ids: Collection[Any]) -> dict[str, str]:
        return {str(pk): _row_hash(row, marks.has_counted) for pk, row, marks in self._rows(ids)}

    def are_as_recorded(self, recorded: dict[str, str], number: int) -> dict[str, bool]:
        exclusions = _exclusions()
        withdrawals = Withdrawal.objects.filter(on_withdrawal=OnWithdrawal.DELETE)  # comments were erased
        withdrawn = set(withdrawals.values_list("annotator_id", flat=True))
        are_as_recorded = {}
        for pk, row, marks in self._rows(list(recorded)):
            hashes = {_row_hash(row, marks.has_counted)}
            is_resealed = marks.sealed_in != number
            if is_resealed and marks.annotator in exclusions.reinstated:
                hashes.add(_row_hash(row, True))  # the judgment may have counted when it was sealed
            is_hash_valid = recorded[str(pk)] in hashes or (is_resealed and marks.annotator in withdrawn)
            # The counting state must agree with the exclusions of the annotator.
            if marks.is_excluded:
                is_state_valid = marks.annotator in exclusions.ever
            else:
                is_counted = marks.is_counted and marks.is_current
                is_state_valid = not (is_counted and marks.annotator in exclusions.in_force)
            are_as_recorded[str(pk)] = is_hash_valid and is_state_valid
        return are_as_recorded

    def n_sealed(self, number: int) -> int:
        """Return the number of judgments sealed in entries up to `number`, or in later entries that are missing."""
        has_entry = Exists(Event.objects.filter(number=OuterRef("sealed_in")))
        return Judgment.objects.filter(Q(sealed_in__lte=number) | Q(sealed_in__gt=number) & ~has_entry).count()

    def ids_sealed(self) -> Iterable[str]:
        sealed = Judgment.objects.filter(sealed_in__isnull=False).order_by()
        return map(str, sealed.values_list("pk", flat=True).iterator())

    def _rows(self, ids: Collection[Any]) -> Iterable[tuple[UUID, Sequence[Any], Marks]]:
        names = ("annotator_id", "sealed_in", "superseded_by_id", "is_counted", "is_excluded")
        rows = Judgment.objects.filter(pk__in=ids).order_by().values_list(*names, "pk", *self.columns)
        for annotator, sealed_in, superseded_by, is_counted, is_excluded, *row in rows:
            yield row[0], row, Marks(annotator, sealed_in, superseded_by is None, is_counted, is_excluded)


JUDGMENTS = JudgmentTable()


def _row_hash(row: Sequence[Any], has_counted: bool) -> str:
    """Return the hash of a row. Empty values of ADDED_COLUMNS are omitted, so hashes of earlier versions stay valid."""
    answer, added = row[: -len(ADDED_COLUMNS)], row[-len(ADDED_COLUMNS) :]
    return sha256(canonical_json([*answer, has_counted, *(() if set(added) <= {"", None} else added)]))


def _exclusions() -> Exclusions:
    rows = list(Exclusion.objects.order_by().values_list("annotator_id", "excluded_at", "reinstated_at"))
    taken_out = timezone.now() - timedelta(seconds=EXCLUDING_TAKES_S)
    still = Annotator.objects.filter(exclusions__isnull=False, status=Annotator.Status.EXCLUDED)
    excluded = set(still.values_list("pk", flat=True))
    return Exclusions(
        ever={annotator for annotator, *_ in rows},
        in_force={pk for pk, since, until in rows if until is None and since < taken_out and pk in excluded},
        reinstated={annotator for annotator, _, until in rows if until is not None},
    )


def seal_due_judgments(now: datetime) -> None:
    """Seal new judgments once a minute, or earlier if they fill a batch. Periodic task of every worker."""
    unsealed = Judgment.objects.unsealed()
    if not unsealed.exists():
        return
    last = Event.objects.filter(action=SEALED).order_by("-pk").values_list("at", flat=True).first()
    is_due = last is None or last <= now - timedelta(seconds=SEAL_EVERY_S)
    if is_due or unsealed.order_by()[JUDGMENTS_AT_ONCE - 1 : JUDGMENTS_AT_ONCE].exists():
        seal_judgments(most=BATCHES_AT_ONCE * JUDGMENTS_AT_ONCE)


def seal_judgments(round: Round | None = None, most: int | None = None) -> int:
    """Seal the judgments without an entry and return their number. Safe to run concurrently.

    round: None for all rounds. most: approximate maximum; None for all. Judgments that are committed concurrently may
    remain unsealed.
    """
    if not Judgment.objects.unsealed().exists():
        return 0  # keeps the audit log of an unused installation empty
    n_sealed = 0
    while most is None or n_sealed < most:
        n = _seal_batch(round)
        n_sealed += n
        if n < JUDGMENTS_AT_ONCE:
            break
    return n_sealed


@transaction.atomic
def _seal_batch(round: Round | None) -> int:
    lock_head()  # before reading, so that no other process seals these judgments
    unsealed = Judgment.objects.unsealed()
    if round is not None:
        unsealed = unsealed.filter(task__in=round.tasks.order_by().values("pk"))
    # Skip locked rows to avoid a deadlock: their writer may be waiting for the head lock held here.
    locked = unsealed.select_for_update(no_key=True, skip_locked=True).order_by("task_id")
    rows = list(locked.values_list("pk", "task_id")[:JUDGMENTS_AT_ONCE])
    rounds = dict(JudgmentTask.objects.filter(pk__in={task for _, task in rows}).values_list("pk", "round_id"))
    ids_by_round = defaultdict(list)
    for pk, task in rows:
        ids_by_round[rounds[task]].append(pk)
    for of_round in Round.objects.filter(pk__in=ids_by_round).order_by("pk"):
        ids = ids_by_round[of_round.pk]
        facts = {"round": of_round.name, "n_judgments": len(ids)}
        lines = table_lines("judgment", JUDGMENTS.row_hashes(ids))
        entry = append(SEALED, ("round", of_round.pk), of_round.project_id, lines, facts)
        Judgment.objects.filter(pk__in=ids).update(sealed_in=entry.number)
    return len(rows)
