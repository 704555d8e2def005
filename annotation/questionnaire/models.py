"""What annotators answered before they judged, and who has withdrawn."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from annotation.judging.models import Annotator
from annotation.questionnaire.questions import OnWithdrawal

MOST_TRIES = 2  # Prolific lets nobody be screened out by a comprehension check after fewer


class WhoAnswers(models.Model):
    """What one annotator says about themselves, once. It leaves the database only in groups of five people or more.

    answers: by the key of the question; what they prefer not to say is not in it.
    """

    annotator = models.OneToOneField(Annotator, on_delete=models.CASCADE, related_name="who_answers")
    answers = models.JSONField(default=dict)
    answered_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        verbose_name_plural = "who answers"

    def __str__(self) -> str:
        return f"of {self.annotator_id}"


class CheckTry(models.Model):
    """One time that an annotator took the comprehension check. answers: by the key of the question."""

    annotator = models.ForeignKey(Annotator, on_delete=models.CASCADE, related_name="check_tries")
    number = models.PositiveSmallIntegerField()
    answers = models.JSONField()
    n_right = models.PositiveSmallIntegerField()
    n_questions = models.PositiveSmallIntegerField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["annotator", "number"]
        verbose_name_plural = "check tries"
        constraints = [
            models.UniqueConstraint(fields=["annotator", "number"], name="check_try_number_unique"),
            models.CheckConstraint(condition=Q(number__gte=1, number__lte=MOST_TRIES), name="check_try_one_of_two"),
            models.CheckConstraint(condition=Q(n_right__lte=F("n_questions")), name="check_try_right_of_asked"),
        ]

    def __str__(self) -> str:
        return f"{self.annotator_id}: {self.n_right} of {self.n_questions}"

    @property
    def is_passed(self) -> bool:
        return self.n_right == self.n_questions


class Withdrawal(models.Model):
    """That somebody has taken back their consent. on_withdrawal: what the round had said of it.

    by: who entered it, None for the annotator. done_at: when all of it was done; what is interrupted goes on.
    """

    annotator = models.OneToOneField(Annotator, on_delete=models.CASCADE, related_name="withdrawal")
    on_withdrawal = models.CharField(max_length=6, choices=OnWithdrawal)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    at = models.DateTimeField()
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(condition=Q(on_withdrawal__in=["keep", "delete"]), name="withdrawal_known"),
        ]

    def __str__(self) -> str:
        return f"of {self.annotator_id} at {self.at:%Y-%m-%d %H:%M}"
