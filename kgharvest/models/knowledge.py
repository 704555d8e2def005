"""What the jobs found.

Two identities carry the design: a KnowledgeTuple is (relation, case-folded entities) and belongs to no job, so that
people judge it once whoever found it; a HarvestedTuple is that tuple as one job scored it.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.db.models import Q

from kgharvest.models.jobs import HarvestJob
from kgharvest.models.relations import Relation

KEY_SEPARATOR = "\x1f"


def tuple_key(entities: Sequence[str]) -> str:
    """Return what makes a tuple of one relation unique: its case-folded entities, joined."""
    return KEY_SEPARATOR.join(entity.casefold() for entity in entities)


class KnowledgeTuple(models.Model):
    """A claim: ordered, case-folded `entities` of a relation, whoever found it. `key` is `tuple_key(entities)`."""

    relation = models.ForeignKey(Relation, on_delete=models.PROTECT, related_name="knowledge_tuples")
    entities = models.JSONField()
    key = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["relation", "key"], name="knowledge_tuple_relation_key_unique")]

    def __str__(self) -> str:
        return " · ".join(self.entities)


class HarvestedTuple(models.Model):
    """A knowledge tuple as one job scored it. rank: 1 is best; mtl: nats, None where unknown; surface: as written."""

    job = models.ForeignKey(HarvestJob, on_delete=models.CASCADE, related_name="tuples")
    knowledge_tuple = models.ForeignKey(KnowledgeTuple, on_delete=models.PROTECT, related_name="harvested_tuples")
    rank = models.PositiveIntegerField()
    score = models.FloatField()
    mtl = models.FloatField(null=True, blank=True)
    surface = models.JSONField()

    class Meta:
        ordering = ["job", "rank"]
        constraints = [
            models.UniqueConstraint(fields=["job", "knowledge_tuple"], name="harvested_tuple_job_tuple_unique"),
            models.UniqueConstraint(fields=["job", "rank"], name="harvested_tuple_job_rank_unique"),
            # Ranks are 1-based: annotators and the paper say "top 1", strata use rank_from=1.
            models.CheckConstraint(condition=Q(rank__gte=1), name="harvested_tuple_rank_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.rank}. {' · '.join(self.surface)}"
