"""Stored responses of chat models."""

from django.db import models

from kgharvest.harvests.models import HarvestJob


class ChatAnswer(models.Model):
    """Response to one question of a harvest. Rows are never changed. A resumed harvest reuses them.

    position: 0-based position of the question in its harvest. question_sha256: hash of the question's text. If the
    question has changed, it is sent again. raw: unedited text of the response. model_reported: model and fingerprint
    reported by the endpoint, or "". logprobs: tokens of the response and their log-probabilities in nats, if returned.
    cost: cost in the currency of the harvest's prices. seconds: response time.
    """

    job = models.ForeignKey(HarvestJob, on_delete=models.CASCADE, related_name="chat_answers", db_index=False)
    position = models.PositiveIntegerField()
    question_sha256 = models.CharField(max_length=64)
    raw = models.TextField(blank=True)
    model_reported = models.CharField(max_length=700, blank=True)
    logprobs = models.JSONField(default=list, db_default=[], blank=True)
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
