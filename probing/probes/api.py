"""The JSON interface of probes, as far as the pages need it."""

from __future__ import annotations

from rest_framework import generics

from probing.probes.models import Probe
from probing.probes.serializers import ProbeSerializer


class ProbeDetail(generics.RetrieveAPIView):
    """A probe and how far it is; its document once it has succeeded."""

    queryset = Probe.objects.select_related("language_model")
    serializer_class = ProbeSerializer
