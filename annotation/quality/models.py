"""Limits, exclusions, and adjudications."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from annotation.judging.models import Annotator, Label
from annotation.judging.verdicts import Verdict
from annotation.rounds.models import JudgmentTask, Round
from kgharvest.accounts.models import person_or_null


class Limits(models.Model):
    """Limits of a round. Annotators who exceed a limit are paused for review. None means no limit.

    gold_accuracy is tested with annotation.quality.profiles.is_below, after at least `n_gold` gold answers.
    OPTIONS: fields in the form and in the JSON description.
    """

    OPTIONS = ("gold_accuracy", "n_gold", "median_seconds", "longest_run")

    round = models.OneToOneField(Round, on_delete=models.CASCADE, related_name="limits")
    gold_accuracy = models.FloatField(
        "minimum gold accuracy",
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text="Share from 0 to 1, for example 0.7. Annotators shown to be below this accuracy are paused for "
        "review. At most 5 % of annotators exactly at the limit are ever paused. Leave empty for no limit.",
    )
    n_gold = models.PositiveSmallIntegerField(
        "minimum gold statements",
        default=10,
        validators=[MinValueValidator(1)],
        help_text="Minimum number of gold statements before an annotator can be paused. The test usually needs more.",
    )
    median_seconds = models.FloatField(
        "minimum median time (seconds)",
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(24 * 3600)],
        help_text="For example 1.5. Checked from the twentieth judgment. Leave empty for no limit.",
    )
    longest_run = models.PositiveSmallIntegerField(
        "maximum run of equal labels",
        null=True,
        blank=True,
        validators=[MinValueValidator(2)],
        help_text="For example 40. If nearly all statements are true, careful annotators produce long runs. "
        "Leave empty for no limit.",
    )

    class Meta:
        verbose_name_plural = "limits"
        constraints = [
            models.CheckConstraint(
                condition=Q(gold_accuracy=None) | Q(gold_accuracy__gte=0, gold_accuracy__lte=1),
                name="limits_gold_accuracy_is_a_share",
            )
        ]

    def __str__(self) -> str:
        return f"limits of {self.round}"

    @property
    def sentence(self) -> str:
        """Return the limits in words, or "none"."""
        parts = [
            (self.gold_accuracy, f"gold accuracy below {self.gold_accuracy} after {self.n_gold} gold statements"),
            (self.median_seconds, f"median below {self.median_seconds} seconds"),
            (self.longest_run, f"more than {self.longest_run} equal labels in a row"),
        ]
        return "; ".join(phrase for value, phrase in parts if value is not None) or "none"


class Exclusion(models.Model):
    """Decision to exclude an annotator's judgments, with the reinstatement, if any.

    effect: result of `exclusion_effect` shown before the decision. n_judgments: number of excluded judgments.
    n_counted_again: number of reinstated judgments that count again. n_left_out: number of reinstated judgments that do
    not count, because another annotator filled the slot.
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
            )
        ]

    def __str__(self) -> str:
        return f"{self.annotator} excluded: {self.reason}"


class AdjudicationQuerySet(models.QuerySet):
    def current(self):
        return self.filter(superseded_by=None)


class Adjudication(models.Model):
    """Expert's label for a task. Append-only like judgments; never changes the majority verdict.

    client_uuid: generated with the page. is_blind: True if annotators' labels were hidden from the expert.
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
