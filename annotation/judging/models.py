"""Annotators, assignments (leases), judgments (append-only), and statement reports.

Judgments do not reference assignments because imported judgments have none.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2s

from django.conf import settings
from django.db import models
from django.db.models import Count, F, Q
from django.db.models.functions import Lower
from django.utils.functional import cached_property

from annotation.exchange.judgment_files import LONGEST_COMMENT  # noqa: F401  # that module does without Django
from annotation.questionnaire.questions import OnWithdrawal
from annotation.rounds.models import JudgmentTask, Layout, Round
from annotation.rounds.references import wrong_parts
from kgharvest.accounts.models import person_or_null
from kgharvest.bulk.file_reading import MOST_ENTITIES
from kgharvest.bulk.prepared import Parameter, PreparedSelect

# Columns of annotator and round used in judging. Loading all columns takes 50 % longer.
JUDGING_COLUMNS = (
    "round", "user", "code", "token_key", "status", "status_since", "next_position", "n_handed_out", "n_judged",
    "trained_at", "place_size", "has_questions_left",
    *(
        f"round__{name}"
        for name in (
            "name", "status", "source", "closes_at", "seed", "n_tasks", "n_gold", "batch_size", "gold_share",
            "gold_reuse", "training_size", "judgments_per_task", "third_only_if_split", "max_per_annotator",
            "dominance_cap", "has_reservations",
        )
    ),
)  # fmt: skip


# Annotators see tokens instead of task ids, because ids follow the order of the round and would reveal gold, which is
# assigned out of order. A token is the task id, mapped by a permutation of the 64-bit numbers that is specific to the
# annotator. The token is stable across reloads, undo, skips, and offline answers, and needs no column or index. The
# permutation is a four-round Feistel network. Without the key, the permutation cannot be distinguished from a random
# permutation (Luby & Rackoff 1988, How to construct pseudorandom permutations from pseudorandom functions).
N_ROUNDS = 4
HALF = 4  # bytes
LARGEST_ID = 2**63 - 1
SKIPPED_AT_FIRST = 20
JUDGED_PER_SKIP = 2
SIXTEEN_HEX_DIGITS = r"[0-9a-f]{16}"


def new_token_key() -> str:
    return secrets.token_hex(16)


def _feistel(left: bytes, right: bytes, key: str, order: Iterable[int]) -> tuple[bytes, bytes]:
    """Return the halves after the rounds in `order`. To invert this function, swap the halves and reverse the order."""
    for number in order:
        mask = blake2s(right, digest_size=HALF, key=key.encode(), salt=bytes([number])).digest()
        left, right = right, bytes(a ^ b for a, b in zip(left, mask, strict=True))
    return left, right


class AnnotatorManager(models.Manager):
    def of_account(self, user) -> models.QuerySet[Annotator]:
        """Return the annotators of an account.

        If the request uses a token that is bound to a project, return only annotators in that project.
        """
        annotators = self.filter(user=user)
        bound_to = getattr(user, "bound_to", None)
        return annotators if bound_to is None else annotators.filter(round__project=bound_to)

    def able(self) -> models.QuerySet[Annotator]:
        """Return annotators who have neither withdrawn nor been excluded or erased."""
        return self.filter(erased_at=None, withdrawal=None).exclude(status=Annotator.Status.EXCLUDED)

    def lock(self, pk: int) -> Annotator:
        """Return the annotator, reloaded and locked until the transaction ends.

        The lock serializes the annotator's actions.
        """
        [annotator] = _locked(id=pk)
        return annotator


@PreparedSelect
def _locked() -> models.QuerySet[Annotator]:
    locked = Annotator.objects.filter(pk=Parameter(Annotator, "id")).select_for_update(of=("self",), no_key=True)
    return locked.select_related("round").only(*JUDGING_COLUMNS)


class Annotator(models.Model):
    """A person who judges in a round under an anonymous code.

    user: None for guests. name: chosen by a guest, visible to researchers only. token_key: secret key of token_of.
    layout: preferred layout; empty for that of the round. consented_at, consent_sha256: time of the consent, and
    SHA-256 of the consent text. next_position: progress in the cyclic order of tasks. n_handed_out, n_judged: numbers
    of assigned and of judged statements, including gold. trained_at: time at which the training was first completed.
    place_size: number of statements that the person was recruited to judge, including gold; None for no limit.
    has_questions_left: True while questions are unanswered (annotation.questionnaire), and after a failed check.
    status: paused annotators get no new statements; judgments of excluded annotators do not count. status_since: None
    if the annotator was always active. erased_at: time at which account, name, and invite were erased
    (annotation.invites.erasure).
    """

    class Status(models.TextChoices):
        ACTIVE = "active"
        PAUSED = "paused"
        EXCLUDED = "excluded"

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="annotators")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="annotators"
    )
    code = models.CharField(max_length=30)
    name = models.CharField(max_length=100, blank=True)
    token_key = models.CharField(max_length=32, default=new_token_key, editable=False)
    layout = models.CharField(max_length=4, choices=Layout, blank=True)
    consented_at = models.DateTimeField(null=True, blank=True)
    consent_sha256 = models.CharField(max_length=64, blank=True)
    next_position = models.PositiveIntegerField(default=0)
    n_handed_out = models.PositiveIntegerField(default=0)
    n_judged = models.PositiveIntegerField(default=0)
    trained_at = models.DateTimeField(null=True, blank=True)
    place_size = models.PositiveIntegerField(null=True, blank=True)
    has_questions_left = models.BooleanField(default=False)
    joined_at = models.DateTimeField(auto_now_add=True)
    status = models.CharField(max_length=8, choices=Status, default=Status.ACTIVE)
    status_since = models.DateTimeField(null=True, blank=True)
    erased_at = models.DateTimeField(null=True, blank=True)

    objects = AnnotatorManager()

    class Meta:
        ordering = ["code"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["active", "paused", "excluded"]), name="annotator_status_known"
            ),
            models.UniqueConstraint(fields=["round", "code"], name="annotator_round_code_unique"),
            models.UniqueConstraint(fields=["round", "user"], name="annotator_round_user_unique"),
            models.UniqueConstraint("round", Lower("name"), condition=~Q(name=""), name="annotator_round_name_unique"),
            models.CheckConstraint(condition=Q(layout__in=["", "one", "page"]), name="annotator_layout_known"),
        ]

    def __str__(self) -> str:
        return self.code

    @property
    def who(self) -> str:
        """Name that researchers see: account, guest name, or start of the invite token; empty if there is none."""
        if self.user:
            return self.user.get_username()
        return self.name or (f"invite {self.invite.token[:6]}…" if hasattr(self, "invite") else "")

    def token_of(self, task_id: int) -> str:
        """Return the token of a task for this annotator (SIXTEEN_HEX_DIGITS)."""
        block = task_id.to_bytes(2 * HALF, "big")
        left, right = _feistel(block[:HALF], block[HALF:], self.token_key, range(N_ROUNDS))
        return (left + right).hex()

    def task_of(self, token: str) -> int:
        """Return the task id of a token, or 0 if it is not a valid id.

        The function does not check whether the annotator has the task.
        """
        block = bytes.fromhex(token)
        right, left = _feistel(block[HALF:], block[:HALF], self.token_key, reversed(range(N_ROUNDS)))
        task_id = int.from_bytes(left + right, "big")
        return task_id if task_id <= LARGEST_ID else 0

    @property
    def quota(self) -> int | None:
        """Maximum number of statements, including gold, that the round and the annotator allow; None for no limit."""
        limits = [limit for limit in (self.round.quota, self.place_size) if limit is not None]
        return min(limits, default=None)

    @property
    def most_to_judge(self) -> int:
        """Maximum number of statements that the annotator can judge, including gold."""
        return self.round.n_tasks if self.quota is None else min(self.round.n_tasks, self.quota)

    @property
    def most_skipped(self) -> int:
        """Maximum number of skipped statements at a time. It increases with the number of answers."""
        return SKIPPED_AT_FIRST + self.n_judged // JUDGED_PER_SKIP

    @property
    def has_judged_share(self) -> bool:
        return self.quota is not None and self.n_judged >= self.quota


class Reservation(models.Model):
    """Statements of a round that only some of its annotators may judge (annotation.judging.reservations).

    n_reserved: number of statements at the time of the reservation, without gold. released_at: time at which the
    statements returned to the pool, or None. Rows are not deleted: without a full index on JudgmentTask.reservation,
    the database would search the whole table for references.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="reservations")
    annotators = models.ManyToManyField(Annotator, related_name="reservations")
    n_reserved = models.PositiveIntegerField()
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.n_reserved} statements of round {self.round_id}"

    @property
    def statements_left(self) -> models.QuerySet[JudgmentTask]:
        return self.round.tasks.without_gold().filter(reservation=self, verdict="")

    @cached_property
    def n_stuck(self) -> int:
        """Number of statements that need more judgments than the annotators of the reservation can add."""
        able = list(self.round.annotators.able().filter(reservations=self).values_list("pk", flat=True))
        taken = [Assignment.Status.LEASED, Assignment.Status.DONE]
        n_taken = Count("assignments", filter=Q(assignments__annotator__in=able, assignments__status__in=taken))
        n = F("n_wanted") - F("n_judgments") - F("n_leased") + n_taken
        return self.tasks.without_gold().with_open_slot().alias(n=n).filter(n__gt=len(able)).count()


class AssignmentQuerySet(models.QuerySet):
    def taken(self):
        """Return assignments whose task must not be assigned to the annotator again: leased, done, or skipped."""
        return self.filter(status__in=[Assignment.Status.LEASED, Assignment.Status.DONE, Assignment.Status.SKIPPED])

    def skipped(self):
        return self.filter(status=Assignment.Status.SKIPPED)


class Assignment(models.Model):
    """A lease: one slot of the task is reserved for the annotator until `expires_at`."""

    class Status(models.TextChoices):
        LEASED = "leased"
        DONE = "done"
        EXPIRED = "expired"
        SKIPPED = "skipped"

    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="assignments")
    annotator = models.ForeignKey(Annotator, on_delete=models.CASCADE, related_name="assignments")
    status = models.CharField(max_length=8, choices=Status, default=Status.LEASED)
    expires_at = models.DateTimeField()

    objects = AssignmentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "annotator"], name="assignment_task_annotator_unique"),
            models.CheckConstraint(
                condition=Q(status__in=["leased", "done", "expired", "skipped"]), name="assignment_status_known"
            ),
        ]
        indexes = [
            models.Index(fields=["status", "expires_at"], name="assignment_status_expires_at"),
            models.Index(fields=["annotator", "status"], name="assignment_annotator_status"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} for {self.annotator_id}: {self.status}"


class Label(models.TextChoices):
    TRUE = "true"
    FALSE = "false"
    UNJUDGEABLE = "unjudgeable"


class JudgmentQuerySet(models.QuerySet):
    def current(self):
        return self.filter(superseded_by=None)

    def counted(self):
        """Return the judgments used for verdicts and agreement: exactly k per complete task."""
        return self.current().filter(is_counted=True)

    def filling_slots(self):
        """Return the judgments that fill slots: the counted judgments, and judgments of gold that is not reused."""
        return self.current().filter(Q(is_counted=True) | Q(fills_gold_slot=True))

    def unsealed(self):
        return self.filter(sealed_in=None)

    def not_withdrawn(self):
        """Return judgments that may be exported: all except those that an annotator's withdrawal deletes."""
        return self.exclude(annotator__withdrawal__on_withdrawal=OnWithdrawal.DELETE)


class Judgment(models.Model):
    """One answer of an annotator to a task. Append-only: a changed answer supersedes the previous one.

    client_uuid: created by the client, so a resent answer is stored once. is_counted: True for the k judgments of a
    task; False if the slot was taken after the lease expired, the quota was exhausted, or the annotator is excluded.
    fills_gold_slot: True for answers to gold that fill one of its slots; None if the annotator is excluded, and for
    judgments of earlier versions.
    is_excluded: True if the judgment counted until the annotator was excluded. is_late: True if the lease had expired
    at the first answer. Annotators see is_late, so it is also set for gold. seconds: active time; None if not measured.
    wrong_part: "relation" or the number of a slot if the round asks which part is wrong and the label is False,
    otherwise empty. opened_reference: True if the annotator opened a reference of the statement before answering; None
    if there were no references, or if it is unknown.
    sealed_in: number of the audit log entry; None until sealed (annotation.judging.sealing).
    """

    client_uuid = models.UUIDField(primary_key=True)
    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="judgments")
    annotator = models.ForeignKey(Annotator, on_delete=models.PROTECT, related_name="judgments")
    label = models.CharField(max_length=11, choices=Label)
    is_counted = models.BooleanField(default=True)
    fills_gold_slot = models.BooleanField(null=True, blank=True, editable=False)
    is_excluded = models.BooleanField(default=False)
    is_late = models.BooleanField(default=False)
    seconds = models.FloatField(null=True, blank=True)
    comment = models.TextField(blank=True)
    wrong_part = models.CharField(max_length=8, blank=True, default="", db_default="")
    opened_reference = models.BooleanField(null=True, blank=True)
    judged_at = models.DateTimeField()
    # The index judgment_supersedes_one excludes NULL: with a full index, SQLite would scan all current judgments.
    superseded_by = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="superseded", db_index=False
    )
    sealed_in = models.PositiveBigIntegerField(null=True, blank=True, editable=False)

    objects = JudgmentQuerySet.as_manager()

    class Meta:
        ordering = ["judged_at", "client_uuid"]
        constraints = [
            models.UniqueConstraint(
                fields=["task", "annotator"], condition=Q(superseded_by=None), name="judgment_one_current"
            ),
            models.UniqueConstraint(
                fields=["superseded_by"], condition=Q(superseded_by__isnull=False), name="judgment_supersedes_one"
            ),
            models.CheckConstraint(
                condition=Q(label__in=["true", "false", "unjudgeable"]), name="judgment_label_known"
            ),
            models.CheckConstraint(
                condition=Q(is_counted=False) | Q(is_excluded=False), name="judgment_excluded_is_not_counted"
            ),
            models.CheckConstraint(
                condition=Q(wrong_part="") | Q(label="false", wrong_part__in=wrong_parts(MOST_ENTITIES)),
                name="judgment_wrong_part_of_false",
            ),
        ]
        indexes = [
            models.Index(fields=["annotator", "judged_at"], name="judgment_annotator_judged_at"),
            models.Index(fields=["task"], condition=Q(sealed_in=None), name="judgment_unsealed"),
            models.Index(
                fields=["annotator", "task"],
                condition=Q(superseded_by=None) & ~Q(comment=""),
                name="judgment_commented",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_label_display()} by {self.annotator_id} on {self.task_id}"


class StatementReport(models.Model):
    """An annotator's report of a broken statement; not a judgment. A new report replaces the previous one."""

    class Reason(models.TextChoices):
        UNREADABLE = "unreadable", "Not a readable sentence"
        OFFENSIVE = "offensive", "Offensive or about a private person"
        OTHER = "other", "Other"

    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="reports")
    annotator = models.ForeignKey(Annotator, on_delete=models.CASCADE, related_name="reports")
    reason = models.CharField(max_length=10, choices=Reason)
    comment = models.TextField(blank=True)
    reported_at = models.DateTimeField()

    class Meta:
        ordering = ["-reported_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["task", "annotator"], name="statement_report_task_annotator_unique"),
            models.CheckConstraint(
                condition=Q(reason__in=["unreadable", "offensive", "other"]), name="statement_report_reason_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_reason_display()}: {self.task_id} by {self.annotator_id}"
