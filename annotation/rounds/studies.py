"""Who works together."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q


class Study(models.Model):
    """The people who share rounds and reports."""

    name = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "studies"

    def __str__(self) -> str:
        return self.name


class StudyMember(models.Model):
    class Role(models.TextChoices):
        OWNER = "owner"
        RESEARCHER = "researcher"
        ADJUDICATOR = "adjudicator"
        VIEWER = "viewer"

    MANAGING = (Role.OWNER, Role.RESEARCHER)  # who may open and close rounds
    ADJUDICATING = (*MANAGING, Role.ADJUDICATOR)

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="study_members")
    role = models.CharField(max_length=12, choices=Role)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["study", "user"], name="study_member_unique"),
            models.CheckConstraint(
                condition=Q(role__in=["owner", "researcher", "adjudicator", "viewer"]), name="study_member_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} ({self.role}) in {self.study}"
