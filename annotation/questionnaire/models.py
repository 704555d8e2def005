"""Questionnaire answers, comprehension check attempts, and withdrawals."""

from django.db import models
from django.db.models import F, Q

from annotation.judging.models import Annotator
from annotation.questionnaire.questions import OnWithdrawal
from kgharvest.accounts.models import person_or_null

MOST_TRIES = 2  # minimum number of attempts that Prolific requires before a check can screen out a participant


class WhoAnswers(models.Model):
    """Questionnaire answers of one annotator. Answers leave the database only in groups of at least five people.

    answers: by question key. Questions that the annotator preferred not to answer are omitted.
    """

    annotator = models.OneToOneField(Annotator, on_delete=models.CASCADE, related_name="who_answers")
    answers = models.JSONField(default=dict)
    answered_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        verbose_name_plural = "questionnaire answers"

    def __str__(self) -> str:
        return f"of {self.annotator_id}"


class CheckTry(models.Model):
    """Attempt of an annotator at the comprehension check. answers: by question key."""

    annotator = models.ForeignKey(Annotator, on_delete=models.CASCADE, related_name="check_tries")
    number = models.PositiveSmallIntegerField()
    answers = models.JSONField()
    n_right = models.PositiveSmallIntegerField()
    n_questions = models.PositiveSmallIntegerField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["annotator", "number"]
        verbose_name_plural = "comprehension check attempts"
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
    """Withdrawal of an annotator's consent. on_withdrawal: the round's option at that time.

    by: user who entered it; None for the annotator. done_at: time of completion; None while unfinished or interrupted.
    """

    annotator = models.OneToOneField(Annotator, on_delete=models.CASCADE, related_name="withdrawal")
    on_withdrawal = models.CharField(max_length=6, choices=OnWithdrawal)
    by = person_or_null()
    at = models.DateTimeField()
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(condition=Q(on_withdrawal__in=["keep", "delete"]), name="withdrawal_known")
        ]

    def __str__(self) -> str:
        return f"of {self.annotator_id} at {self.at:%Y-%m-%d %H:%M}"
