"""Parts of harvests that several workers share."""

from __future__ import annotations

from django.db import models

from kgharvest.jobs.models import Job


class HarvestPart(models.Model):
    """A part of a harvest, to be done by any worker; it goes with its job when the harvest ends.

    stage, position: which of the stage's parts it is. size: in the units that the stage reports. question, result: as
    kgharvest.harvests.parts.serialization writes them; result is None until it is known.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="harvest_part")
    stage = models.CharField(max_length=10)
    position = models.PositiveIntegerField()
    size = models.PositiveIntegerField()
    question = models.BinaryField()
    result = models.BinaryField(null=True)

    def __str__(self) -> str:
        return f"{self.stage} {self.position}"
