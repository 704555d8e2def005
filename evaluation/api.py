"""The JSON interface of probes and evaluations of scores, as far as the pages need it."""

from __future__ import annotations

from rest_framework import generics

from evaluation.models import Probe, ScoreEvaluation
from evaluation.serializers import ProbeSerializer, ScoreEvaluationSerializer


class ProbeDetail(generics.RetrieveAPIView):
    """A probe and how far it is; its document once it has succeeded."""

    queryset = Probe.objects.select_related("language_model")
    serializer_class = ProbeSerializer


class ScoreEvaluationDetail(generics.RetrieveAPIView):
    """An evaluation of scores and how far it is; its document once it has succeeded."""

    queryset = ScoreEvaluation.objects.select_related("language_model")
    serializer_class = ScoreEvaluationSerializer
