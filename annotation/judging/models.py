"""Annotators, their assignments (leases on tasks), judgments and reports of statements.

Assignments (leases on a task) and judgments (append-only evidence) are apart, so that imported judgments need no
assignment.
"""

from __future__ import annotations

import secrets
from hashlib import blake2s

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from annotation.questionnaire.questions import OnWithdrawal
from annotation.rounds.models import JudgmentTask, Layout, Round
from kgharvest.bulk.prepared import Parameter, PreparedSelect

# What judging reads of an annotator and their round. Reading every column each time would cost half as much again.
JUDGING_COLUMNS = (
    "round", "user", "code", "token_key", "status", "status_since", "next_position", "n_handed_out", "n_judged",
    "trained_at", "place_size", "has_questions_left",
    *(
        f"round__{name}"
        for name in (
            "name", "status", "source", "closes_at", "seed", "n_tasks", "n_gold", "batch_size", "gold_share",
            "training_size", "judgments_per_task", "third_only_if_split", "max_per_annotator", "dominance_cap",
        )
    ),
)  # fmt: skip


# What an annotator sees in the place of a task's id. Ids follow the round's order, in which gold, handed out apart from
# it, stands out. A token is the id under a permutation of the 64-bit numbers that each annotator has of their own: the
# same over reloads, undo, skips and answers that wait offline, without a column or an index to keep. It is a Feistel
# network of four rounds, which cannot be told from a random permutation by whoever lacks the key (Luby & Rackoff 1988,
# How to construct pseudorandom permutations from pseudorandom functions).
N_ROUNDS = 4
HALF = 4  # bytes
LARGEST_ID = 2**63 - 1
SIXTEEN_HEX_DIGITS = r"[0-9a-f]{16}"


def new_token_key() -> str:
    return secrets.token_hex(16)


def task_token(key: str, task_id: int) -> str:
    """Return the 16 hexadecimal digits that stand for a task. `key`: the annotator's."""
    block = task_id.to_bytes(2 * HALF, "big")
    left, right = block[:HALF], block[HALF:]
    for number in range(N_ROUNDS):
        left, right = right, _mixed(left, right, key, number)
    return (left + right).hex()


def task_of_token(key: str, token: str) -> int:
    """Return the id that `token`, SIXTEEN_HEX_DIGITS, stands for; 0, which no task has, where it cannot be one."""
    block = bytes.fromhex(token)
    left, right = block[:HALF], block[HALF:]
    for number in reversed(range(N_ROUNDS)):
        left, right = _mixed(right, left, key, number), left
    task_id = int.from_bytes(left + right, "big")
    return task_id if task_id <= LARGEST_ID else 0


def _mixed(half: bytes, other: bytes, key: str, number: int) -> bytes:
    """Return `half` XOR the pseudorandom function of `other` that the key has for the round `number`."""
    mask = blake2s(other, digest_size=HALF, key=key.encode(), salt=bytes([number])).digest()
    return bytes(a ^ b for a, b in zip(half, mask, strict=True))


class AnnotatorManager(models.Manager):
    def lock(self, pk: int) -> Annotator:
        """Return the annotator, fresh and locked until the transaction ends: what one person does happens in a row."""
        [annotator] = _locked(id=pk)
        return annotator


@PreparedSelect
def _locked() -> models.QuerySet[Annotator]:
    locked = Annotator.objects.filter(pk=Parameter(Annotator, "id")).select_for_update(of=("self",), no_key=True)
    return locked.select_related("round").only(*JUDGING_COLUMNS)


class Annotator(models.Model):
    """One person in one round, under a code that tells nothing about them.

    user: None for a guest, who has no account. name: what a guest called themselves, for the researchers' eyes only.
    token_key: of the tokens by which they know tasks (task_token); whoever has it can tell ids.
    layout: how they like to judge; empty follows the round. consented_at, consent_sha256: when they agreed and to
    which text. next_position: where in the round's cyclic order of tasks the next ones are looked for. n_handed_out,
    n_judged: how many they were given and judged, gold included. trained_at: when they first finished the training.
    place_size: how many statements they were recruited to judge, gold included; None is no limit of their own.
    has_questions_left: whether questions come before their training (annotation.questionnaire), or they
    have failed the check, after which nothing comes.
    status: paused gets nothing new, excluded counts no more. status_since: None while they were always active.
    erased_at: when account, name and invite were forgotten (annotation.invites.erasure).
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
        """Who this is, for researchers: an account, the name of a guest or the beginning of an invite; empty else."""
        if self.user:
            return self.user.get_username()
        return self.name or (f"invite {self.invite.token[:6]}…" if hasattr(self, "invite") else "")

    def token_of(self, task_id: int) -> str:
        """Return what stands for a task in all that this annotator is sent."""
        return task_token(self.token_key, task_id)

    def task_of(self, token: str) -> int:
        """Return the id of the task that `token` stands for, 0 for none; it need not have been given to them."""
        return task_of_token(self.token_key, token)

    @property
    def quota(self) -> int | None:
        """How many statements they may judge, gold included, by the round's limit and their own; None is no limit."""
        limits = [limit for limit in (self.round.quota, self.place_size) if limit is not None]
        return min(limits, default=None)

    @property
    def most_to_judge(self) -> int:
        """How many statements there are for them at most, gold included."""
        return self.round.n_tasks if self.quota is None else min(self.round.n_tasks, self.quota)

    @property
    def has_judged_share(self) -> bool:
        share = self.quota
        return share is not None and self.n_judged >= share


class AssignmentQuerySet(models.QuerySet):
    def taken(self):
        """Return what keeps a task from being handed to the same annotator: leased, done or skipped."""
        return self.filter(status__in=[Assignment.Status.LEASED, Assignment.Status.DONE, Assignment.Status.SKIPPED])

    def skipped(self):
        return self.filter(status=Assignment.Status.SKIPPED)


class Assignment(models.Model):
    """A lease: the annotator has one slot of the task until `expires_at`, then it may go to somebody else."""

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


LONGEST_COMMENT = 1000  # characters


class Label(models.TextChoices):
    TRUE = "true"
    FALSE = "false"
    UNJUDGEABLE = "unjudgeable"


class JudgmentQuerySet(models.QuerySet):
    def current(self):
        return self.filter(superseded_by=None)

    def counted(self):
        """Return the judgments that verdicts and agreement rest on: exactly k of a complete task."""
        return self.current().filter(is_counted=True)

    def unsealed(self):
        return self.filter(sealed_in=None)

    def not_withdrawn(self):
        """Return what may leave the database: nothing of those who withdrew from a round that deletes then."""
        return self.exclude(annotator__withdrawal__on_withdrawal=OnWithdrawal.DELETE)

    def of_round(self, round: Round):
        return self.filter(task__in=round.tasks.order_by().values("pk"))


class Judgment(models.Model):
    """What one annotator said about one task. Append-only: changing one's mind adds a judgment that supersedes.

    client_uuid: made where the answer was given, so that the same answer sent twice is one judgment.
    is_counted: False for an answer that came after its lease had gone to somebody else or when its annotator's share
    was full, or of an annotator who is excluded; kept, but not of the k. is_excluded: it counted until its annotator
    was excluded. is_late: the lease was over when the first answer came; told to annotators, and so of gold as well.
    seconds: active time spent, None where nobody measured. sealed_in: the number of the entry of the audit trail that
    speaks for it, None until it is sealed (annotation.judging.sealing).
    """

    client_uuid = models.UUIDField(primary_key=True)
    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="judgments")
    annotator = models.ForeignKey(Annotator, on_delete=models.PROTECT, related_name="judgments")
    label = models.CharField(max_length=11, choices=Label)
    is_counted = models.BooleanField(default=True)
    is_excluded = models.BooleanField(default=False)
    is_late = models.BooleanField(default=False)
    seconds = models.FloatField(null=True, blank=True)
    comment = models.TextField(blank=True)
    judged_at = models.DateTimeField()
    # Its index leaves out NULL: SQLite would search among all current judgments with it.
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
    """That an annotator finds a statement itself broken. It is no judgment; reporting again replaces it."""

    class Reason(models.TextChoices):
        UNREADABLE = "unreadable", "It is not a readable sentence"
        OFFENSIVE = "offensive", "It is offensive or about a private person"
        OTHER = "other", "Something else"

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
