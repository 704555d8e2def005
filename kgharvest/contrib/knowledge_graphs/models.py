"""Uploaded KG files whose relations are not mapped yet, and score thresholds learned from judgments."""

from datetime import timedelta

from django.conf import settings
from django.db import models

from annotation.models import Round
from kgharvest.access import visible
from kgharvest.accounts.models import Project
from kgharvest.models import LanguageModel, Relation

LIFETIME = timedelta(days=1)


class UploadedKGQuerySet(models.QuerySet):
    visible_to = visible

    def expired(self, now):
        return self.filter(uploaded_at__lt=now - LIFETIME)


class UploadedKG(models.Model):
    """An uploaded KG file without a mapping. It is deleted after its import, or after a day.

    system: name of the LM to create.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    uploaded_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    uploaded_at = models.DateTimeField()
    system = models.CharField(max_length=500)
    file_name = models.CharField(max_length=255)
    file_format = models.CharField(max_length=10)
    content = models.BinaryField()
    labels = models.BinaryField(null=True)

    objects = UploadedKGQuerySet.as_manager()

    class Meta:
        db_table = "kgharvest_uploadedkg"  # created when the model belonged to the app `kgharvest`

    def __str__(self) -> str:
        return self.file_name


class ScoreThreshold(models.Model):
    """Score with the largest F1 on the judged tuples of a cell in a round (lm_kbc.set_scores.best_threshold).

    n, n_true: number of judged and of accepted tuples.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="+")
    relation = models.ForeignKey(Relation, on_delete=models.CASCADE, related_name="+")
    language_model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="+")
    setting = models.CharField(max_length=30)
    score = models.FloatField()
    f1 = models.FloatField()
    n = models.PositiveIntegerField()
    n_true = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["round", "relation", "language_model", "setting"], name="score_threshold_cell_unique"
            )
        ]

    def __str__(self) -> str:
        cell = f"{self.relation.name} × {self.language_model.short_name} × {self.setting}"
        judged = f"F1 {self.f1:.3f} on {self.n:,} judged tuples, {self.n_true:,} true, of round {self.round.name}"
        return f"{cell}: score >= {self.score:.3f} ({judged})"
