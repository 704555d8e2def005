"""What the API says about probes."""

from __future__ import annotations

from rest_framework import serializers

from evaluation.models import Probe


class ProbeSerializer(serializers.ModelSerializer):
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = Probe
        fields = [
            *("id", "name", "model", "methods", "facts", "status", "is_unfinished", "stage", "done", "total"),
            *("attempts", "error", "revision", "code_version", "document", "created_at", "started_at", "finished_at"),
        ]
