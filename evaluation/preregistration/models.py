"""Preregistrations: what a round and its analysis were to be, frozen before anybody judged."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.urls import reverse

from annotation.models import Round
from kgharvest.access import visible
from kgharvest.errors import DomainError

NEVER = "A preregistration is never altered or deleted; before the first judgment another version may be frozen."


class PreregistrationQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return those on rounds of the user's projects; all of them for a superuser and for the operator."""
        return visible(self, user, "round__project")

    def update(self, **fields: Any) -> int:
        raise DomainError("Frozen", NEVER)

    def delete(self) -> tuple[int, dict[str, int]]:
        raise DomainError("Frozen", NEVER)


class Preregistration(models.Model):
    """A version of a round's preregistration; it goes with its round and not otherwise.

    document: docs/preregistration.md says what is in it. sha256: of the document's canonical JSON, which is the file
    that people download. version: 1, 2, ...; the last one counts.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="preregistrations")
    version = models.PositiveSmallIntegerField()
    document = models.JSONField()
    sha256 = models.CharField(max_length=64)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    frozen_at = models.DateTimeField()

    objects = PreregistrationQuerySet.as_manager()

    class Meta:
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["round", "version"], name="preregistration_round_version_unique"),
            models.CheckConstraint(condition=models.Q(version__gte=1), name="preregistration_version_positive"),
        ]

    def __str__(self) -> str:
        return f"preregistration {self.version} of {self.round}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            raise DomainError("Frozen", NEVER)
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise DomainError("Frozen", NEVER)

    def get_absolute_url(self) -> str:
        return reverse("evaluation:preregistration", args=[self.round.path, self.version])
