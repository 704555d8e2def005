"""What the API says about probes and evaluations of scores."""

from __future__ import annotations

from rest_framework import serializers

from evaluation.scores.models import ScoreEvaluation
from kgharvest.jobs.serializers import JOB_FIELDS, JOB_TIMES


class ScoreEvaluationSerializer(serializers.ModelSerializer):
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = ScoreEvaluation
        fields = ["id", "model", *JOB_FIELDS, "document", *JOB_TIMES]
