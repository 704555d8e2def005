"""API of score evaluations, as far as their page needs it."""

from __future__ import annotations

from rest_framework import generics, serializers

from evaluation.models import ScoreEvaluation
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES


class ScoreEvaluationSerializer(serializers.ModelSerializer):
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = ScoreEvaluation
        fields = ["id", "model", *JOB_FIELDS, "document", *JOB_TIMES]


class ScoreEvaluationDetail(generics.RetrieveAPIView):
    """An evaluation of scores and how far it is; its document once it has succeeded."""

    queryset = ScoreEvaluation.objects.select_related("language_model")
    serializer_class = ScoreEvaluationSerializer
