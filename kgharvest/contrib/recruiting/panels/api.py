"""API of panels, their participants, and reconciliation, for members who can work in the project."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.rounds.api import RoundPartViewSet
from kgharvest.access import Action
from kgharvest.api.input import Filters, StrictSerializer
from kgharvest.api.views import PagedList, RetrieveMixin, operation
from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.panels.participants import participant_rows, places_of
from kgharvest.contrib.recruiting.panels.presets import entry_link
from kgharvest.contrib.recruiting.panels.publishing import (
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
from kgharvest.contrib.recruiting.platforms import PlatformRefused, check_not_closed
from kgharvest.contrib.recruiting.reconciliation import ask_reconciliation

OPTIONS = {"platform": "connect", "places": 30, "statements_per_place": 50, "reward": 300, "completion_code": "A1B2C3"}


class PanelInput(StrictSerializer, serializers.ModelSerializer):
    """Options of a panel. Missing options get the defaults for the round and platform. Amounts are in cents."""

    platform_options = serializers.DictField(required=False, help_text="Options specific to this platform.")

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
    taken = serializers.IntegerField(help_text="Active or completed.")
    done = serializers.IntegerField()
    free = serializers.IntegerField()
    left = serializers.IntegerField(help_text="Participants who left without finishing.")


class PanelEntrySerializer(serializers.ModelSerializer):
    """Panel in lists. Amounts are in minor units of the currency."""

    class Meta:
        model = Panel
        fields = ["id", "name", "platform", "status", "ended_reason", "external_id", "created_at", *Panel.OPTIONS[2:]]


class PanelSerializer(PanelEntrySerializer):
    entry_link = serializers.SerializerMethodField(
        help_text="Link to paste at the platform. Anyone with the link can enter while places are free."
    )
    taken_places = serializers.SerializerMethodField()

    class Meta(PanelEntrySerializer.Meta):
        fields = [*PanelEntrySerializer.Meta.fields, "platform_options", "entry_link", "taken_places"]

    def get_entry_link(self, panel: Panel) -> str:
        address = reverse("recruiting:panel_enter", args=[panel.token])
        return entry_link(panel, self.context["request"].build_absolute_uri(address))

    @extend_schema_field(PlacesSerializer)
    def get_taken_places(self, panel: Panel) -> dict[str, int]:
        return places_of(panel)


class PanelPartViewSet(RoundPartViewSet):
    """Operations on a part of a panel, for members who can work in the project."""

    access = Action.WORK

    def panel(self) -> Panel:
        """Return the panel named in the URL. Raises Http404, NotAllowed."""
        return get_object_or_404(self.round().panels.select_related("round__project"), name=self.kwargs["name"])


class PanelOperations(PanelPartViewSet):
    serializer_class = PanelSerializer
    lookup_field = "name"
    lookup_value_converter = "slug"

    def get_object(self) -> Panel:
        return self.panel()


class PauseInput(StrictSerializer):
    reason = serializers.CharField(max_length=LONGEST_REASON, required=False, default="", allow_blank=True)


class CostSerializer(serializers.Serializer):
    cost = serializers.CharField(help_text="Cost in a sentence.")


class PanelViewSet(PagedList, RetrieveMixin, PanelOperations):
    """The panels of a round, newest first."""

    entry_serializer_class = PanelEntrySerializer

    def get_queryset(self) -> QuerySet:
        return self.round().panels.all()

    @extend_schema(
        summary="Draft a panel",
        request=PanelInput,
        examples=[OpenApiExample("On Connect", OPTIONS, request_only=True)],
    )
    def create(self, request: Request, round_id: int) -> Response:
        """A draft admits no participants and costs nothing. Missing options get their defaults."""
        panel = create_panel(self.round(), self.sent(PanelInput, partial=True), request.user)
        return self.created(panel, self.address(panel))

    @extend_schema(summary="Edit a panel", request=PanelInput)
    def partial_update(self, request: Request, round_id: int, name: str) -> Response:
        """All options of a draft. After publication, only `hourly_floor`, and `places` on platforms without an API."""
        return self.answer(edit_panel(self.panel(), self.sent(PanelInput, partial=True), request.user))

    @extend_schema(summary="Delete the draft of a panel")
    def destroy(self, request: Request, round_id: int, name: str) -> Response:
        delete_panel(self.panel(), request.user)
        return self.deleted()

    @operation("Cost of publishing a panel", method="get", serializer_class=CostSerializer)
    def cost(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer({"cost": cost_in_words(self.panel())})

    @operation("Publish a panel", once=False)
    def publish(self, request: Request, round_id: int, name: str) -> Response:
        """Admits participants, and creates the study on a platform with an API. This costs money."""
        return self.changed(publish_panel)

    @operation("Pause a panel", request=PauseInput, once=False)
    def pause(self, request: Request, round_id: int, name: str) -> Response:
        """Admits no new participants; participants with a place continue."""
        return self.changed(pause_panel, self.sent(PauseInput)["reason"])

    @operation("Resume a panel", once=False)
    def resume(self, request: Request, round_id: int, name: str) -> Response:
        return self.changed(resume_panel)

    @operation("Stop a panel", once=False)
    def stop(self, request: Request, round_id: int, name: str) -> Response:
        """Cannot be undone. Participants with a place continue and are paid."""
        return self.changed(stop_panel)


class ParticipantSerializer(serializers.Serializer):
    """A participant. owed, paid: in minor units of the currency."""

    id = serializers.IntegerField(source="pk")
    participant = serializers.CharField(help_text="The platform's id of the participant.")
    session = serializers.CharField(help_text="The platform's id of the submission.")
    study = serializers.CharField()
    annotator = serializers.CharField(help_text="Empty until the participant consented and joined.")
    status = serializers.ChoiceField(Submission.Status.choices)
    platform_status = serializers.CharField()
    entered_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    active_s = serializers.FloatField(
        allow_null=True, help_text="Active time in seconds; null if not enough was measured."
    )
    n_judged = serializers.IntegerField()
    n_gold = serializers.IntegerField()
    n_gold_right = serializers.IntegerField()
    owed = serializers.IntegerField()
    paid = serializers.IntegerField()


class ParticipantFilters(Filters):
    status = serializers.ChoiceField(Submission.Status.choices, required=False)


class ParticipantViewSet(PagedList, PanelPartViewSet):
    """The participants of a panel, newest first."""

    serializer_class = ParticipantSerializer
    filters = ParticipantFilters

    def get_queryset(self) -> QuerySet:
        return self.panel().submissions.select_related("annotator")

    def paginate_queryset(self, queryset: QuerySet) -> list[dict[str, Any]]:
        return participant_rows(self.panel(), super().paginate_queryset(queryset))


RECONCILIATION = {"panel": "prolific-1", "reconciled_at": "2026-11-22T09:00:00Z", "reconcile_error": ""}


@extend_schema_serializer(examples=[OpenApiExample("A reconciled panel", RECONCILIATION, response_only=True)])
class ReconciliationSerializer(serializers.ModelSerializer):
    """reconciled_at: time of the last reconciliation; null if there was none or one is queued. reconcile_error: failure
    of the last reconciliation; empty if it succeeded.
    """

    panel = serializers.CharField(source="name")

    class Meta:
        model = Panel
        fields = [*RECONCILIATION]


class ReconciliationViewSet(PanelOperations):
    serializer_class = ReconciliationSerializer

    @operation("Last reconciliation of a panel with its platform", method="get")
    def reconciliation(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(self.panel())

    @extend_schema(summary="Reconcile a panel with its platform", responses={202: ReconciliationSerializer})
    @reconciliation.mapping.post
    def reconcile(self, request: Request, round_id: int, name: str) -> Response:
        """Within seconds, a worker reads all submissions on the platform and applies missed changes."""
        ask_reconciliation(self.panel(), request.user)
        return self.accepted(self.panel(), request.path)
