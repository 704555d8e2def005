"""What chat models answered to harvests."""

from __future__ import annotations

from django.db import models

from kgharvest.harvests.models import HarvestJob


class ChatAnswer(models.Model):
    """An answer to one question of a harvest. Rows are only added, so that a harvest taken up again asks no more.

    position: of the question in its harvest, from 0. question_sha256: of its text; another question at that place is
    asked anew. raw: the text as it came. model_reported: as the endpoint named its model, with its fingerprint; empty
    where it did not. cost: in the currency of the harvest's prices. seconds: that the reply took.
    """

    job = models.ForeignKey(HarvestJob, on_delete=models.CASCADE, related_name="chat_answers", db_index=False)
    position = models.PositiveIntegerField()
    question_sha256 = models.CharField(max_length=64)
    raw = models.TextField(blank=True)
    model_reported = models.CharField(max_length=700, blank=True)
    n_prompt_tokens = models.PositiveIntegerField(default=0)
    n_completion_tokens = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=16, decimal_places=8, default=0)
    seconds = models.FloatField(null=True, blank=True)
    answered_at = models.DateTimeField()

    class Meta:
        ordering = ["job", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["job", "position", "question_sha256"], name="chat_answer_job_position_question_unique"
            )
        ]

    def __str__(self) -> str:
        return f"answer {self.position + 1} of job {self.job_id}"
