"""The JSON interface of probes, as far as the pages need it."""

from __future__ import annotations

from rest_framework import generics, serializers

from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from probing.models import Probe


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


class ProbeDetail(generics.RetrieveAPIView):
    """A probe and how far it is; its document once it has succeeded."""

    queryset = Probe.objects.select_related("language_model")
    serializer_class = ProbeSerializer
