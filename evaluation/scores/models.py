"""Score evaluations: how well an LM's scores tell known facts from false ones."""

from __future__ import annotations

from django.db import models
from django.urls import reverse

from kgharvest.models import Job, LanguageModel


class ScoreEvaluation(Job):
    """How well an LM's scores tell known facts from false ones; work of a worker, or of a command that kept its result.

    document: the JSON of `evaluate_scores` (docs/report-json.md), empty until the job has succeeded.
    """

    KIND = "evaluate_scores"

    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="score_evaluations")
    document = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"Scores of {self.language_model.short_name}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:scores", args=[self.pk])
