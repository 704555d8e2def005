"""The JSON interface, as far as the pages need it, and the one shape of its errors."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import exceptions, generics, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, Launch
from kgharvest.serializers import HarvestSerializer, LaunchSerializer
from kgharvest.services.launches import progress_of
from kgharvest.views.launches import shown_jobs


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


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return {"error": {"code", "message"}}, with "fields" for invalid input; None leaves a bug to Django's 500."""
    if isinstance(error, DomainError):
        return Response({"error": {"code": error.code, "message": str(error)}}, status.HTTP_409_CONFLICT)
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, exceptions.ValidationError):
        response.data = {"error": {"code": "Invalid", "message": "The input is not valid.", "fields": response.data}}
    else:
        response.data = {"error": {"code": type(error).__name__, "message": str(response.data.get("detail", error))}}
    return response
