"""What the API says about probes and evaluations of scores."""

from __future__ import annotations

from rest_framework import serializers

from evaluation.models import Probe, ScoreEvaluation

JOB = ("status", "is_unfinished", "stage", "done", "total", "attempts", "error")
TIMES = ("created_at", "started_at", "finished_at")


class ScoreEvaluationSerializer(serializers.ModelSerializer):
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = ScoreEvaluation
        fields = ["id", "model", *JOB, "document", *TIMES]


class ProbeSerializer(serializers.ModelSerializer):
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = Probe
        fields = ["id", "name", "model", "methods", "facts", *JOB, "revision", "code_version", "document", *TIMES]
