"""Preregistrations in the API."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.rounds.api import RoundView
from evaluation.preregistration.models import Preregistration
from evaluation.preregistration.plan import PlanSerializer
from evaluation.preregistration.services import freeze_preregistration
from evaluation.preregistration.views import FILE_FORMATS, preregistration_download
from evaluation.reports.api import files_of
from kgharvest.access import Action
from kgharvest.api.views import AnyRenderer, ListView
from kgharvest.tables.formats import FORMATS

PLAN = {
    "hypotheses": [
        {
            "first": {"model": "embedded", "setting": "multi"},
            "second": {"model": "embedded", "setting": "human"},
            "expects": "first",
            "words": "Prompts found by paraphrasing find more true tuples than the human one.",
        }
    ],
    "comparisons": [
        {
            "first": {"model": "embedded", "setting": "multi"},
            "second": {"model": "embedded", "setting": "top1"},
        }
    ],
    "primary_outcome": "Accuracy of each setting, averaged over relations.",
    "exclusion_rules": "Whoever a limit pauses is excluded if two of us agree, before anybody sees accuracies.",
    "stopping_rule": "Every statement has its three judgments.",
    "analysis": "As every report states it.",
}


class PreregistrationEntrySerializer(serializers.ModelSerializer):
    """A version as lists have it. sha256: of its JSON file."""

    class Meta:
        model = Preregistration
        fields = ["id", "round", "version", "sha256", "frozen_at"]


class PreregistrationSerializer(PreregistrationEntrySerializer):
    document = serializers.DictField(help_text="What was frozen (docs/preregistration.md).")

    class Meta(PreregistrationEntrySerializer.Meta):
        fields = [*PreregistrationEntrySerializer.Meta.fields, "document"]


class PreregistrationList(RoundView, ListView):
    """The versions of a round's preregistration, the newest first; the first in the list counts."""

    serializer_class = PreregistrationEntrySerializer

    def get_queryset(self) -> QuerySet:
        return self.round().preregistrations.defer("document")

    @extend_schema(
        summary="Preregister a round",
        request=PlanSerializer,
        responses={201: PreregistrationSerializer},
        examples=[OpenApiExample("Two settings of an LM", PLAN, request_only=True)],
    )
    def post(self, request: Request, round_id: int) -> Response:
        """Freeze the round as it is, with what you plan; refused from the first judgment on."""
        self.serializer_class = PreregistrationSerializer

        def freeze() -> Response:
            round = self.round(Action.WORK)
            frozen = freeze_preregistration(round, self.sent(PlanSerializer), timezone.now(), request.user)
            return self.created(frozen, reverse("evaluation:api_preregistration", args=[round.pk, frozen.pk]))

        return self.once(freeze)


class PreregistrationView(RoundView):
    serializer_class = PreregistrationSerializer

    def frozen(self) -> Preregistration:
        frozen: Preregistration = self.row(self.round().preregistrations.select_related("round"))
        return frozen


class PreregistrationDetail(PreregistrationView):
    @extend_schema(summary="A preregistration")
    def get(self, request: Request, round_id: int, pk: int) -> Response:
        return self.answer(self.frozen())


class PreregistrationFile(PreregistrationView):
    renderer_classes = (AnyRenderer,)

    @extend_schema(
        summary="A preregistration as a file",
        parameters=[OpenApiParameter("file_format", str, OpenApiParameter.PATH, enum=list(FILE_FORMATS))],
        responses=files_of(FORMATS[name].content_type for name in FILE_FORMATS),
    )
    def get(self, request: Request, round_id: int, pk: int, file_format: str) -> HttpResponse:
        return preregistration_download(self.frozen(), file_format)
