"""The JSON interface of probes and evaluations of scores, as far as the pages need it."""

from __future__ import annotations

from rest_framework import generics

from evaluation.scores.models import ScoreEvaluation
from evaluation.scores.serializers import ScoreEvaluationSerializer


class ScoreEvaluationDetail(generics.RetrieveAPIView):
    """An evaluation of scores and how far it is; its document once it has succeeded."""

    queryset = ScoreEvaluation.objects.select_related("language_model")
    serializer_class = ScoreEvaluationSerializer
