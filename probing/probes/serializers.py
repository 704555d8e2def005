"""Serializers of probes."""

from __future__ import annotations

from rest_framework import serializers

from kgharvest.jobs.serializers import JOB_FIELDS, JOB_TIMES
from probing.probes.models import Probe


class ProbeSerializer(serializers.ModelSerializer):
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = Probe
        fields = [
            "id",
            "name",
            "model",
            "methods",
            "facts",
            *JOB_FIELDS,
            "revision",
            "code_version",
            "document",
            *JOB_TIMES,
        ]
