"""What the API says about jobs."""

from __future__ import annotations

from rest_framework import serializers

from kgharvest.models import HarvestJob


class HarvestSerializer(serializers.ModelSerializer):
    relation = serializers.CharField(source="relation.path")
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = HarvestJob
        fields = [
            *("id", "relation", "model", "setting", "origin", "status", "is_unfinished", "stage", "done", "total"),
            *("attempts", "error", "n_tuples", "summary", "fingerprint", "created_at", "started_at", "finished_at"),
        ]
