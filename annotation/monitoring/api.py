"""How a round is judged now, in the API: who is assigned statements, and releasing them."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judging.serializers import CountSerializer
from annotation.monitoring.assigned import holders, release_assigned
from annotation.rounds.api import RoundView
from kgharvest.access import Action
from kgharvest.api.input import StrictSerializer


class HolderSerializer(serializers.Serializer):
    annotator = serializers.CharField(source="annotator.code")
    who = serializers.CharField(source="annotator.who", allow_blank=True)
    n = serializers.IntegerField(help_text="Statements, gold included.")
    last_active_at = serializers.DateTimeField(help_text="When they last loaded statements or answered.")
    expires_at = serializers.DateTimeField(help_text="From when on others are handed these.")


class AssignedSerializer(serializers.Serializer):
    """Who is assigned statements now, the longest silent first."""

    holders = HolderSerializer(many=True)


class RoundAssigned(RoundView):
    serializer_class = AssignedSerializer

    @extend_schema(summary="Who is assigned statements")
    def get(self, request: Request, round_id: int) -> Response:
        return self.answer({"holders": holders(self.round())})


class ReleaseInput(StrictSerializer):
    annotators = serializers.ListField(
        child=serializers.SlugField(), required=False, max_length=1000, help_text="Their codes; all if left out."
    )


class RoundRelease(RoundView):
    serializer_class = CountSerializer

    @extend_schema(
        summary="Release assigned statements",
        request=ReleaseInput,
        examples=[OpenApiExample("Of one annotator", {"annotators": ["a-1f2e3d4c"]}, request_only=True)],
    )
    def post(self, request: Request, round_id: int) -> Response:
        """Others are handed them at once; an answer that comes later counts where its place is still free."""

        def release() -> Response:
            codes = self.sent(ReleaseInput).get("annotators")
            return Response({"n": release_assigned(self.round(Action.WORK), codes, by=request.user)})

        return self.once(release)
