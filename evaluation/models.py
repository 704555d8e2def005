"""Reports: numbers frozen together with what they rest on."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse

from annotation.models import Round


class ReportQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the reports on rounds of the user's studies; all of them for a superuser."""
        return self.filter(round__in=Round.objects.visible_to(user))


class Report(models.Model):
    """What was true of a round when it was reported. `document` is the report's JSON; pages and files only render it.

    method: how verdicts, intervals and agreement were computed, in plain sentences.
    """

    round = models.ForeignKey(Round, on_delete=models.PROTECT, related_name="reports")
    document = models.JSONField()
    method = models.TextField()
    code_version = models.CharField(max_length=100)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField()

    objects = ReportQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.document['round']}, {self.created_at:%Y-%m-%d %H:%M}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:report", args=[self.pk])
