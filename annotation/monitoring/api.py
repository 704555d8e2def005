"""Assigned statements of a round in the API."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judging.serializers import CountSerializer
from annotation.monitoring.assigned import holders, release_assigned
from annotation.rounds.api import RoundOperations
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import operation


class HolderSerializer(serializers.Serializer):
    annotator = serializers.CharField(source="annotator.code")
    who = serializers.CharField(source="annotator.who", allow_blank=True)
    n = serializers.IntegerField(help_text="Statements, gold included.")
    last_active_at = serializers.DateTimeField(help_text="When they last loaded statements or answered.")
    expires_at = serializers.DateTimeField(help_text="From when on others are handed these.")


class AssignedSerializer(serializers.Serializer):
    """Who is assigned statements now, the longest silent first."""

    holders = HolderSerializer(many=True)


class ReleaseInput(StrictSerializer):
    annotators = serializers.ListField(
        child=serializers.SlugField(), required=False, max_length=1000, help_text="Their codes; all if left out."
    )


class MonitoringViewSet(RoundOperations):
    @operation("Assigned statements by annotator", method="get", serializer_class=AssignedSerializer)
    def assigned(self, request: Request, round_id: int) -> Response:
        return self.answer({"holders": holders(self.round())})

    @operation(
        "Release assigned statements",
        request=ReleaseInput,
        examples=[OpenApiExample("Of one annotator", {"annotators": ["a-1f2e3d4c"]}, request_only=True)],
        serializer_class=CountSerializer,
    )
    def release(self, request: Request, round_id: int) -> Response:
        """Others can get them at once. A later answer counts if the statement still needs a judgment."""
        codes = self.sent(ReleaseInput).get("annotators")
        return self.answer({"n": release_assigned(self.round(), codes, by=request.user)})
