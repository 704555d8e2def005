"""Panels in the API: drafted, published, paused, stopped; who came. Only for those who work in the project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Panel, Submission
from annotation.recruiting.panels.participants import participant_rows, places_of
from annotation.recruiting.panels.presets import entry_link
from annotation.recruiting.panels.publishing import (
    LONGEST_REASON,
    cost_in_words,
    create_panel,
    delete_panel,
    edit_panel,
    pause_panel,
    publish_panel,
    resume_panel,
    stop_panel,
)
from annotation.recruiting.platforms import PlatformRefused, check_not_closed
from annotation.rounds.api import RoundView
from kgharvest.access import Action
from kgharvest.api.input import Filters, StrictSerializer
from kgharvest.api.views import ListView

OPTIONS = {"platform": "connect", "places": 30, "statements_per_place": 50, "reward": 300, "completion_code": "A1B2C3"}


class PanelInput(StrictSerializer, serializers.ModelSerializer):
    """Options of a panel. Missing options get the defaults of the round and the platform. Amounts are in cents."""

    platform_options = serializers.DictField(required=False, help_text="Options of this platform only.")

    class Meta:
        model = Panel
        fields = (*Panel.OPTIONS, "platform_options")
        extra_kwargs = {"name": {"required": False}}

    def validate_platform(self, platform: str) -> str:
        try:
            check_not_closed(Panel(platform=platform))
        except PlatformRefused as refusal:
            raise serializers.ValidationError(str(refusal)) from None
        return platform


class PlacesSerializer(serializers.Serializer):
    """taken: by people at work and done. left: without finishing."""

    taken = serializers.IntegerField()
    done = serializers.IntegerField()
    free = serializers.IntegerField()
    left = serializers.IntegerField()


class PanelEntrySerializer(serializers.ModelSerializer):
    """A panel as lists have it. Amounts are in minor units of the currency."""

    class Meta:
        model = Panel
        fields = ["id", "name", "platform", "status", "ended_reason", "external_id", "created_at", *Panel.OPTIONS[2:]]


class PanelSerializer(PanelEntrySerializer):
    """entry_link: as it is pasted at the platform. Whoever has it can come while there are places."""

    entry_link = serializers.SerializerMethodField()
    taken_places = serializers.SerializerMethodField()

    class Meta(PanelEntrySerializer.Meta):
        fields = [*PanelEntrySerializer.Meta.fields, "platform_options", "entry_link", "taken_places"]

    def get_entry_link(self, panel: Panel) -> str:
        address = reverse("annotation:panel_enter", args=[panel.token])
        return entry_link(panel, self.context["request"].build_absolute_uri(address))

    @extend_schema_field(PlacesSerializer)
    def get_taken_places(self, panel: Panel) -> dict[str, int]:
        return places_of(panel)


class PanelView(RoundView):
    """A view of one panel, or of what belongs to it."""

    serializer_class = PanelSerializer

    def panel(self) -> Panel:
        """Return the panel that the address names. Raises Http404, NotAllowed."""
        panels = self.round(Action.WORK).panels.select_related("round__project")
        return get_object_or_404(panels, name=self.kwargs["name"])


class PanelList(RoundView, ListView):
    """The panels of a round, the newest first."""

    serializer_class = PanelEntrySerializer

    def get_queryset(self) -> QuerySet:
        return self.round(Action.WORK).panels.all()

    @extend_schema(
        summary="Draft a panel",
        request=PanelInput,
        responses={201: PanelSerializer},
        examples=[OpenApiExample("On Connect", OPTIONS, request_only=True)],
    )
    def post(self, request: Request, round_id: int) -> Response:
        """Nobody comes, and nothing is paid, before it is published. An empty body takes all that is suggested."""
        self.serializer_class = PanelSerializer

        def create() -> Response:
            panel = create_panel(self.round(Action.WORK), self.sent(PanelInput, partial=True), request.user)
            return self.created(panel, reverse("annotation:api_panel", args=[round_id, panel.name]))

        return self.once(create)


class PanelDetail(PanelView):
    def get(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(self.panel())

    @extend_schema(summary="Edit a panel", request=PanelInput, responses={200: PanelSerializer})
    def patch(self, request: Request, round_id: int, name: str) -> Response:
        """All of a draft; later only `places`, where people publish by hand, and `hourly_floor`."""
        panel = self.panel()
        return self.answer(edit_panel(panel, self.sent(PanelInput, partial=True), request.user))

    @extend_schema(summary="Delete the draft of a panel", responses={204: None})
    def delete(self, request: Request, round_id: int, name: str) -> Response:
        delete_panel(self.panel(), request.user)
        return self.deleted()


class CostSerializer(serializers.Serializer):
    cost = serializers.CharField(help_text="In a sentence, as the platform says.")


class PanelCost(PanelView):
    serializer_class = CostSerializer

    def get(self, request: Request, round_id: int, name: str) -> Response:
        """What publishing costs."""
        return self.answer({"cost": cost_in_words(self.panel())})


class PanelPublish(PanelView):
    @extend_schema(summary="Publish a panel", request=None)
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """Lets people in, and makes the study at a platform that has an API. This is what costs money."""
        return self.changed(publish_panel)

    def changed(self, change: Callable[..., None], *args: Any) -> Response:
        panel = self.panel()
        change(panel, *args, by=self.request.user)
        return self.answer(panel)


class PauseInput(StrictSerializer):
    reason = serializers.CharField(max_length=LONGEST_REASON, required=False, default="", allow_blank=True)


class PanelPause(PanelPublish):
    @extend_schema(summary="Pause a panel", request=PauseInput)
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """Nobody new comes in; who has a place goes on."""
        return self.changed(pause_panel, self.sent(PauseInput)["reason"])


class PanelResume(PanelPublish):
    @extend_schema(summary="Resume a panel", request=None)
    def post(self, request: Request, round_id: int, name: str) -> Response:
        return self.changed(resume_panel)


class PanelStop(PanelPublish):
    @extend_schema(summary="Stop a panel", request=None)
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """For good; who has a place goes on and is paid."""
        return self.changed(stop_panel)


# -- people ------------------------------------------------------------------------------------------------------------


class ParticipantSerializer(serializers.Serializer):
    """Somebody who came. participant, session: as the platform names them. owed, paid: in minor units."""

    id = serializers.IntegerField(source="pk")
    participant = serializers.CharField()
    session = serializers.CharField()
    study = serializers.CharField()
    annotator = serializers.CharField(help_text="Empty until they agreed and joined.")
    status = serializers.ChoiceField(Submission.Status.choices)
    platform_status = serializers.CharField()
    entered_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    active_s = serializers.FloatField(allow_null=True, help_text="Active time; null where too little was measured.")
    n_judged = serializers.IntegerField()
    n_gold = serializers.IntegerField()
    n_gold_right = serializers.IntegerField()
    owed = serializers.IntegerField()
    paid = serializers.IntegerField()


class ParticipantFilters(Filters):
    status = serializers.ChoiceField(Submission.Status.choices, required=False)


class PanelParticipants(PanelView, ListView):
    """The people who came, the last one first."""

    serializer_class = ParticipantSerializer
    filters = ParticipantFilters

    def get_queryset(self) -> QuerySet:
        return self.panel().submissions.select_related("annotator")

    def paginate_queryset(self, queryset: QuerySet) -> list[dict[str, Any]]:
        return participant_rows(self.panel(), super().paginate_queryset(queryset))
