"""Limits, exclusions and adjudications."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from annotation.judging.models import Annotator, Label
from annotation.judging.verdicts import Verdict
from annotation.rounds.models import JudgmentTask, Round
from kgharvest.accounts.models import person_or_null


class Limits(models.Model):
    """When an annotator of a round is paused for somebody to look. None: no such limit.

    gold_accuracy: the least share right; paused who is shown to be below (annotation.quality.profiles.is_below), after
    `n_gold` answers to gold or more. median_seconds: the least median time.
    longest_run: the most equal labels in a row. OPTIONS: what researchers choose; form and JSON are made from it.
    """

    OPTIONS = ("gold_accuracy", "n_gold", "median_seconds", "longest_run")

    round = models.OneToOneField(Round, on_delete=models.CASCADE, related_name="limits")
    gold_accuracy = models.FloatField(
        "least gold accuracy",
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text="A share from 0 to 1, such as 0.7. Paused until somebody has looked is who is shown to be below it: "
        "of people exactly as accurate as the limit, at most 5 % ever are. Empty: no such limit.",
    )
    n_gold = models.PositiveSmallIntegerField(
        "after so many gold statements",
        default=10,
        validators=[MinValueValidator(1)],
        help_text="The least number before gold can pause anybody; the evidence mostly takes more.",
    )
    median_seconds = models.FloatField(
        "least median of seconds",
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(24 * 3600)],
        help_text="Such as 1.5; looked at from the twentieth judgment on. Empty: no such limit.",
    )
    longest_run = models.PositiveSmallIntegerField(
        "most equal labels in a row",
        null=True,
        blank=True,
        validators=[MinValueValidator(2)],
        help_text="Such as 40. Where nearly everything is true, long runs are honest. Empty: no such limit.",
    )

    class Meta:
        verbose_name_plural = "limits"
        constraints = [
            models.CheckConstraint(
                condition=Q(gold_accuracy=None) | Q(gold_accuracy__gte=0, gold_accuracy__lte=1),
                name="limits_gold_accuracy_is_a_share",
            ),
        ]

    def __str__(self) -> str:
        return f"limits of {self.round}"

    @property
    def sentence(self) -> str:
        """Return the limits in words, "none" if there is none."""
        parts = [
            (self.gold_accuracy, f"gold accuracy below {self.gold_accuracy} after {self.n_gold} gold statements"),
            (self.median_seconds, f"median below {self.median_seconds} seconds"),
            (self.longest_run, f"more than {self.longest_run} equal labels in a row"),
        ]
        return "; ".join(phrase for value, phrase in parts if value is not None) or "none"


class Exclusion(models.Model):
    """The decision that an annotator's judgments do not count, and perhaps a later one that they do again.

    effect: what was shown before the decision (annotation.quality.exclusion). n_judgments: taken out.
    n_counted_again, n_left_out: what reinstating found free, and what others had filled meanwhile.
    """

    annotator = models.ForeignKey(Annotator, on_delete=models.CASCADE, related_name="exclusions")
    reason = models.TextField()
    excluded_by = person_or_null()
    excluded_at = models.DateTimeField()
    effect = models.JSONField(default=dict, blank=True)
    n_judgments = models.PositiveIntegerField(default=0)
    reinstated_by = person_or_null()
    reinstated_at = models.DateTimeField(null=True, blank=True)
    n_counted_again = models.PositiveIntegerField(default=0)
    n_left_out = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["annotator"], condition=Q(reinstated_at=None), name="exclusion_one_in_force"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.annotator} excluded: {self.reason}"


class AdjudicationQuerySet(models.QuerySet):
    def current(self):
        return self.filter(superseded_by=None)


class Adjudication(models.Model):
    """What an expert says about a task. Append-only like judgments, and never part of the crowd's verdict.

    client_uuid: made with the page it was given on. is_blind: whether the annotators' labels were out of sight.
    """

    client_uuid = models.UUIDField(primary_key=True)
    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="adjudications")
    label = models.CharField(max_length=11, choices=Label)
    comment = models.TextField(blank=True)
    is_blind = models.BooleanField(default=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="adjudications"
    )
    at = models.DateTimeField()
    superseded_by = models.OneToOneField(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="supersedes"
    )

    objects = AdjudicationQuerySet.as_manager()

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.UniqueConstraint(fields=["task"], condition=Q(superseded_by=None), name="adjudication_one_current"),
            models.CheckConstraint(
                condition=Q(label__in=["true", "false", "unjudgeable"]), name="adjudication_label_known"
            ),
        ]

    VERDICTS = {Label.TRUE: Verdict.ACCEPTED, Label.FALSE: Verdict.REJECTED, Label.UNJUDGEABLE: Verdict.UNDECIDED}

    def __str__(self) -> str:
        return f"{self.get_label_display()} on {self.task_id}"

    @property
    def verdict(self) -> Verdict:
        return self.VERDICTS[Label(self.label)]
