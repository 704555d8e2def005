"""API of preregistrations."""

from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.rounds.api import RoundPartViewSet
from kgharvest.api.views import PagedList, file_operation
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.plan import PlanSerializer
from kgharvest.contrib.publishing.preregistration.services import freeze_preregistration
from kgharvest.contrib.publishing.preregistration.views import FILE_FORMATS, preregistration_download
from kgharvest.tables.formats import FORMATS

CONTENT_TYPES = {name: FORMATS[name].content_type for name in FILE_FORMATS}

PLAN = {
    "hypotheses": [
        {
            "first": {"model": "embedded", "setting": "multi"},
            "second": {"model": "embedded", "setting": "human"},
            "expects": "first",
            "words": "Prompts created by paraphrasing yield more true tuples than the human prompt.",
        }
    ],
    "comparisons": [
        {"first": {"model": "embedded", "setting": "multi"}, "second": {"model": "embedded", "setting": "top1"}}
    ],
    "primary_outcome": "Accuracy of each setting, averaged over relations.",
    "exclusion_rules": "An annotator whom a limit pauses is excluded if two of us agree, before we see accuracies.",
    "stopping_rule": "Every statement has its three judgments.",
    "analysis": "The method stated in every report.",
}


class PreregistrationEntrySerializer(serializers.ModelSerializer):
    """A preregistration in lists. sha256: hash of its JSON file."""

    class Meta:
        model = Preregistration
        fields = ["id", "round", "version", "sha256", "frozen_at"]


class PreregistrationSerializer(PreregistrationEntrySerializer):
    document = serializers.DictField(help_text="Frozen document (docs/preregistration.md).")

    class Meta(PreregistrationEntrySerializer.Meta):
        fields = [*PreregistrationEntrySerializer.Meta.fields, "document"]


class PreregistrationViewSet(PagedList, RoundPartViewSet):
    """Versions of a round's preregistration, newest first. The newest version is in force."""

    serializer_class = PreregistrationSerializer
    entry_serializer_class = PreregistrationEntrySerializer

    def get_queryset(self) -> QuerySet:
        versions = self.round().preregistrations
        return versions.defer("document") if self.action == "list" else versions.select_related("round")

    @extend_schema(
        summary="Preregister a round",
        request=PlanSerializer,
        examples=[OpenApiExample("Two settings of an LM", PLAN, request_only=True)],
    )
    def create(self, request: Request, round_id: int) -> Response:
        """Freezes the current state of the round with your plan. Rejected after the first judgment."""
        frozen = freeze_preregistration(self.round(), self.sent(PlanSerializer), timezone.now(), request.user)
        return self.created(frozen, self.address(frozen))

    @extend_schema(summary="A preregistration")
    def retrieve(self, request: Request, round_id: int, pk: int) -> Response:
        return self.answer(self.get_object())

    @file_operation("A preregistration as a file", "preregistration.<slug:file_format>", CONTENT_TYPES)
    def file(self, request: Request, round_id: int, pk: int, file_format: str) -> HttpResponse:
        return preregistration_download(self.get_object(), file_format)
