"""Training statements of a round, and annotators' training results."""

from django.db import models
from django.db.models import F, Q

from annotation.judging.models import Annotator
from annotation.rounds.instructions import statement_parts
from annotation.rounds.models import Round


class TrainingStatement(models.Model):
    """A statement with its correct label and the reason, frozen when the round opens."""

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="training_statements")
    position = models.PositiveSmallIntegerField()
    statement = models.TextField()
    spans = models.JSONField()
    label = models.CharField(max_length=5)
    reason = models.TextField()

    class Meta:
        ordering = ["round", "position"]
        constraints = [
            models.UniqueConstraint(fields=["round", "position"], name="training_statement_position_unique"),
            models.CheckConstraint(condition=Q(label__in=["true", "false"]), name="training_statement_label_known"),
        ]

    def __str__(self) -> str:
        return self.statement

    @property
    def parts(self) -> list[tuple[str, bool]]:
        return statement_parts(self.statement, self.spans)


class Training(models.Model):
    """One pass of an annotator through the training; the last pass may be unfinished.

    missed: (position, given label) of each incorrect answer, in order of the answers.
    """

    annotator = models.ForeignKey(Annotator, on_delete=models.CASCADE, related_name="trainings")
    n_answered = models.PositiveSmallIntegerField(default=0)
    n_right = models.PositiveSmallIntegerField(default=0)
    missed = models.JSONField(default=list)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["annotator"], condition=Q(finished_at=None), name="training_one_unfinished"
            ),
            models.CheckConstraint(condition=Q(n_right__lte=F("n_answered")), name="training_right_of_answered"),
        ]

    def __str__(self) -> str:
        return f"{self.annotator_id}: {self.n_right} of {self.n_answered}"
