"""Decisions of researchers on candidates for gold that is false."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from kgharvest.models import Relation


class GoldDecision(models.Model):
    """That a person confirmed a corrupted seed as surely false, or rejected it. Only confirmed ones become gold.

    entities: the seed tuple with the entity of `slot` replaced; key: their `tuple_key`; seed: the tuple as it was.
    """

    relation = models.ForeignKey(Relation, on_delete=models.CASCADE, related_name="gold_decisions")
    entities = models.JSONField()
    key = models.TextField()
    seed = models.JSONField()
    slot = models.PositiveSmallIntegerField()
    is_confirmed = models.BooleanField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["relation", "key"], name="gold_decision_relation_key_unique")]

    def __str__(self) -> str:
        return f"{' · '.join(self.entities)}: {'false' if self.is_confirmed else 'not surely false'}"
