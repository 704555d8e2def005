"""How often something was tried that is limited."""

from __future__ import annotations

from django.db import models


class Attempts(models.Model):
    """How many attempts `key` stands for, of one kind and by one address or account, until `ends_at`."""

    key = models.CharField(max_length=120, unique=True)
    n = models.PositiveIntegerField(default=0)
    ends_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "attempts"

    def __str__(self) -> str:
        return f"{self.n} of {self.key}"
