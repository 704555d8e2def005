"""The JSON interface of harvests and launches."""

from __future__ import annotations

from django.utils import timezone
from rest_framework import generics
from rest_framework.response import Response

from kgharvest.harvests.launch_views import shown_jobs
from kgharvest.harvests.launches import progress_of
from kgharvest.harvests.serializers import HarvestSerializer, LaunchSerializer
from kgharvest.models import HarvestJob, Launch


class HarvestDetail(generics.RetrieveAPIView):
    """A harvest and how far it is."""

    queryset = HarvestJob.objects.with_cell()
    serializer_class = HarvestSerializer


class LaunchDetail(generics.GenericAPIView):
    """How far a launch is, with the harvests of one page of it (`page`, `status` as in the page's address)."""

    queryset = Launch.objects.all()
    serializer_class = LaunchSerializer

    def get(self, request, pk: int) -> Response:
        launch = self.get_object()
        progress = progress_of(launch, timezone.now())
        return Response(self.get_serializer({"progress": progress, "jobs": shown_jobs(request, launch)}).data)
