"""API of panels, their participants, pay, and reconciliation, for members who can work in the project."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.rounds.api import RoundPartViewSet
from kgharvest.access import Action
from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import PagedList, RetrieveMixin, file_operation, operation
from kgharvest.contrib.recruiting.models import LONGEST_MESSAGE, Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels import publishing
from kgharvest.contrib.recruiting.panels.models import MOST_MONEY
from kgharvest.contrib.recruiting.panels.participants import participant_rows, places_of
from kgharvest.contrib.recruiting.panels.presets import entry_link
from kgharvest.contrib.recruiting.pay import bonuses, commands, ledger
from kgharvest.contrib.recruiting.pay.hourly import hourly_pay
from kgharvest.contrib.recruiting.platforms import PlatformRefused, check_not_closed
from kgharvest.contrib.recruiting.reconciliation import ask_reconciliation
from kgharvest.contrib.recruiting.views import ledger_csv
from kgharvest.tables.downloads import download

Kind, State = PlatformCommand.Kind, PlatformCommand.State
MONEY = "The unit is the minor unit of the panel's currency, for example cents."
RECONCILIATION = {"panel": "prolific-1", "reconciled_at": "2026-11-22T09:00:00Z", "reconcile_error": ""}
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
    taken = serializers.IntegerField(help_text="Active or completed places.")
    done = serializers.IntegerField()
    free = serializers.IntegerField()
    left = serializers.IntegerField(help_text="Participants who left without finishing.")


class PanelEntrySerializer(serializers.ModelSerializer):
    """A panel in lists. Amounts are in minor units of the currency."""

    class Meta:
        model = Panel
        fields = ["id", "name", "platform", "status", "ended_reason", "external_id", "created_at", *Panel.OPTIONS[2:]]


class PanelSerializer(PanelEntrySerializer):
    entry_link = serializers.SerializerMethodField(
        help_text="Link to paste on the platform. Anyone with the link can enter while places are free."
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


class PauseInput(StrictSerializer):
    reason = serializers.CharField(max_length=publishing.LONGEST_REASON, required=False, default="", allow_blank=True)


class CostSerializer(serializers.Serializer):
    cost = serializers.CharField(help_text="Sentence that states the cost.")


@extend_schema_serializer(examples=[OpenApiExample("A reconciled panel", RECONCILIATION, response_only=True)])
class ReconciliationSerializer(serializers.ModelSerializer):
    """State of the reconciliation with the platform.

    reconciled_at: time of the last reconciliation; null before the first reconciliation, or while one is queued.
    reconcile_error: error of the last reconciliation; empty if it succeeded.
    """

    panel = serializers.CharField(source="name")

    class Meta:
        model = Panel
        fields = [*RECONCILIATION]


class PanelPartViewSet(RoundPartViewSet):
    """Operations on a part of a panel, for members who can work in the project."""

    access = Action.WORK

    def panel(self) -> Panel:
        """Return the panel named in the URL. Raises Http404 or NotAllowed."""
        return get_object_or_404(self.round().panels.select_related("round__project"), name=self.kwargs["name"])


class ParticipantSerializer(serializers.Serializer):
    """A participant. owed, paid: amounts in minor units of the currency."""

    id = serializers.IntegerField(source="pk")
    participant = serializers.CharField(help_text="The platform's id of the participant.")
    session = serializers.CharField(help_text="The platform's id of the submission.")
    study = serializers.CharField()
    annotator = serializers.CharField(help_text="Annotator code; empty until the participant has consented and joined.")
    status = serializers.ChoiceField(Submission.Status.choices)
    platform_status = serializers.CharField()
    entered_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    active_s = serializers.FloatField(
        allow_null=True, help_text="Active time in seconds; null if too little was measured."
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


class PersonPaySerializer(serializers.Serializer):
    """Pay for one completed place."""

    submission = serializers.IntegerField(source="work.submission.pk")
    annotator = serializers.CharField(source="work.submission.annotator")
    active_seconds = serializers.FloatField(
        source="work.active_s", allow_null=True, help_text="Null if too little was measured."
    )
    owed = serializers.IntegerField(source="work.balance.owed", help_text=MONEY)
    paid = serializers.IntegerField(source="work.balance.paid", help_text=MONEY)
    hourly = serializers.FloatField(source="work.hourly", allow_null=True, help_text=MONEY)
    bonus = serializers.IntegerField(help_text=f"Bonus that raises the pay to the minimum hourly rate. {MONEY}")


class PaySerializer(serializers.Serializer):
    """Amounts are in minor units of the currency, for example cents."""

    currency = serializers.CharField()
    owed = serializers.IntegerField()
    paid = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Outstanding: owed minus paid.")
    median_hourly = serializers.FloatField(
        allow_null=True, help_text="Median pay per hour of active time. If null, `reason` says why."
    )
    n_measured = serializers.IntegerField(help_text="Number of participants from whom the median was computed.")
    reason = serializers.CharField(allow_blank=True)
    hourly_floor = serializers.IntegerField(help_text="Minimum hourly rate; 0 if there is none.")
    is_below_floor = serializers.BooleanField()
    missing = serializers.IntegerField(
        help_text="Total of the bonuses that would raise all participants to the minimum hourly rate."
    )
    n_to_review = serializers.IntegerField()
    people = PersonPaySerializer(many=True)


def pay_of(panel: Panel) -> dict[str, Any]:
    pay, balance = hourly_pay(panel), ledger.balance_of(panel)
    missing = {work.submission.pk: amount for work, amount in bonuses.floor_bonuses(pay, panel.hourly_floor)}
    return {
        "currency": panel.currency,
        **balance._asdict(),
        "open": balance.open,
        "median_hourly": pay.median,
        "n_measured": pay.n,
        "reason": pay.reason,
        "hourly_floor": panel.hourly_floor,
        "is_below_floor": bonuses.is_below_floor(panel, pay),
        "missing": sum(missing.values()),
        "n_to_review": commands.to_review(panel).count(),
        "people": [{"work": work, "bonus": missing.get(work.submission.pk, 0)} for work in pay.works],
    }


class PayEntrySerializer(serializers.ModelSerializer):
    """An entry of the ledger. Participants appear under their annotator codes. event, command: source of the entry."""

    annotator = serializers.CharField(source="submission.annotator.code", allow_null=True, default=None)
    by = serializers.CharField(source="by.username", allow_null=True, default=None)

    class Meta:
        model = PayEntry
        fields = [
            *("id", "at", "submission", "annotator", "side", "purpose", "key", "amount", "reason"),
            *("event", "command", "by"),
        ]


class PayEntryFilters(Filters):
    submission = IdField(required=False)
    side = serializers.ChoiceField(PayEntry.Side.choices, required=False)


class PayEntryViewSet(PagedList, PanelPartViewSet):
    """The entries of a panel's ledger, oldest first."""

    serializer_class = PayEntrySerializer
    filters = PayEntryFilters
    order = ("pk",)

    def get_queryset(self) -> QuerySet:
        return self.panel().pay_entries.select_related("submission__annotator", "by")


class CommandSerializer(serializers.ModelSerializer):
    """Request to the platform about a submission."""

    class Meta:
        model = PlatformCommand
        fields = [
            *("id", "submission", "kind", "key", "amount", "message", "category", "state", "n_tries"),
            *("next_try_at", "error", "created_at", "done_at"),
        ]


class CommandInput(StrictSerializer):
    submission = IdField()
    kind = serializers.ChoiceField([kind for kind in Kind.choices if kind[0] != Kind.BONUS])
    message = serializers.CharField(
        max_length=LONGEST_MESSAGE,
        required=False,
        default="",
        help_text=f"Explanation of a rejection, at least {commands.SHORTEST_REJECTION} characters.",
    )
    category = serializers.ChoiceField(
        list(commands.GROUNDS), required=False, default="", help_text="Reason for a rejection."
    )


class CommandFilters(Filters):
    state = serializers.ChoiceField(State.choices, required=False)
    submission = IdField(required=False)


class SettleInput(StrictSerializer):
    was_done = serializers.BooleanField(help_text="True if the platform shows that the payment was made.")


class CommandViewSet(PagedList, PanelPartViewSet):
    """The commands to the platform, newest first."""

    serializer_class = CommandSerializer
    filters = CommandFilters

    def get_queryset(self) -> QuerySet:
        return PlatformCommand.objects.filter(submission__panel=self.panel())

    @extend_schema(
        summary="Approve or reject a submission",
        request=CommandInput,
        examples=[OpenApiExample("Approve", {"submission": 12, "kind": "approve"}, request_only=True)],
    )
    def create(self, request: Request, round_id: int, name: str) -> Response:
        """The request is stored immediately and sent to the platform within seconds."""
        sent = self.sent(CommandInput)
        submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
        return self.created(commands.decide(submission, by=request.user, **sent))

    @operation("Resend a failed command")
    def resend(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        return self.changed(commands.resend)

    @operation("Settle an uncertain payment", request=SettleInput)
    def settle(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        """Check on the platform first whether the payment was made. A payment that was not made is retried."""
        command = self.get_object()
        commands.settle_by_hand(command, self.sent(SettleInput)["was_done"], request.user)
        command.refresh_from_db()
        return self.answer(command)


class OpenBonusSerializer(serializers.Serializer):
    """Bonuses of one participant that must be paid manually."""

    submission = serializers.IntegerField(source="submission.pk")
    annotator = serializers.CharField(source="submission.annotator.code", allow_null=True, default=None)
    amount = serializers.IntegerField(help_text=MONEY)
    reason = serializers.CharField()


class BonusInput(StrictSerializer):
    submission = IdField()
    amount = serializers.IntegerField(min_value=1, max_value=MOST_MONEY, help_text=MONEY)
    reason = serializers.CharField(max_length=commands.LONGEST_REASON, help_text="Shown to the participant.")


class PaidInput(StrictSerializer):
    submissions = serializers.ListField(child=IdField(), min_length=1)
    total = serializers.IntegerField(min_value=1, help_text=f"Total amount paid. {MONEY}")


class NotedSerializer(serializers.Serializer):
    n_people = serializers.IntegerField()


class ApprovalInput(StrictSerializer):
    submissions = serializers.ListField(
        child=IdField(),
        required=False,
        allow_null=True,
        default=None,
        help_text="Ids of submissions that await review. Default: all.",
    )


class ApprovedSerializer(serializers.Serializer):
    n_approved = serializers.IntegerField()


class PanelOperations(PanelPartViewSet):
    serializer_class = PanelSerializer
    lookup_field = "name"
    lookup_value_converter = "slug"

    def get_object(self) -> Panel:
        return self.panel()


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
        panel = publishing.create_panel(self.round(), self.sent(PanelInput, partial=True), request.user)
        return self.created(panel, self.address(panel))

    @extend_schema(summary="Edit a panel", request=PanelInput)
    def partial_update(self, request: Request, round_id: int, name: str) -> Response:
        """After publication, only `hourly_floor` and, on platforms without an API, `places` can change."""
        return self.answer(publishing.edit_panel(self.panel(), self.sent(PanelInput, partial=True), request.user))

    @extend_schema(summary="Delete a draft panel")
    def destroy(self, request: Request, round_id: int, name: str) -> Response:
        publishing.delete_panel(self.panel(), request.user)
        return self.deleted()

    @operation("Cost of publishing a panel", method="get", serializer_class=CostSerializer)
    def cost(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer({"cost": publishing.cost_in_words(self.panel())})

    @operation("Publish a panel", once=False)
    def publish(self, request: Request, round_id: int, name: str) -> Response:
        """Admits participants, and creates the study on a platform with an API. This costs money."""
        return self.changed(publishing.publish_panel)

    @operation("Pause a panel", request=PauseInput, once=False)
    def pause(self, request: Request, round_id: int, name: str) -> Response:
        """Stops admitting new participants. Participants with a place can continue."""
        return self.changed(publishing.pause_panel, self.sent(PauseInput)["reason"])

    @operation("Resume a panel", once=False)
    def resume(self, request: Request, round_id: int, name: str) -> Response:
        return self.changed(publishing.resume_panel)

    @operation("Stop a panel", once=False)
    def stop(self, request: Request, round_id: int, name: str) -> Response:
        """Stops the panel permanently. Participants with a place can continue and are paid."""
        return self.changed(publishing.stop_panel)


class PayViewSet(PanelOperations):
    serializer_class = PaySerializer

    @operation("Pay of a panel", method="get")
    def pay(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(pay_of(self.panel()))

    @operation("Raise pay to the minimum hourly rate", "pay/floor/")
    def floor(self, request: Request, round_id: int, name: str) -> Response:
        """Grants the missing bonuses, and resumes the panel if it was paused because pay was below the minimum."""
        panel = self.panel()
        bonuses.make_good(panel, request.user)
        return self.answer(pay_of(panel))

    @file_operation("A panel's ledger as CSV", "pay/entries.csv", "text/csv")
    def entries_file(self, request: Request, round_id: int, name: str) -> HttpResponse:
        """Amounts in the file are decimal numbers."""
        panel = self.panel()
        return download(ledger_csv(panel), f"{panel.name}-ledger.csv")

    @operation("Bonuses to pay manually", "pay/bonuses/", method="get", responses={200: OpenBonusSerializer(many=True)})
    def bonuses(self, request: Request, round_id: int, name: str) -> Response:
        """Lists bonuses that the platform cannot pay or refused to pay."""
        return Response(OpenBonusSerializer(bonuses.open_bonuses(self.panel()), many=True).data)

    @extend_schema(
        summary="Grant a bonus",
        request=BonusInput,
        responses={201: PayEntrySerializer},
        examples=[
            OpenApiExample(
                "A bonus",
                {"submission": 12, "amount": 150, "reason": "Thank you for your comments."},
                request_only=True,
            )
        ],
    )
    @bonuses.mapping.post
    def grant_bonus(self, request: Request, round_id: int, name: str) -> Response:
        """The bonus is owed immediately. A platform that pays bonuses receives the request within seconds."""
        sent = self.sent(BonusInput)
        submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
        entry = bonuses.grant_bonus(submission, **sent, by=request.user)
        return Response(PayEntrySerializer(entry).data, status.HTTP_201_CREATED)

    @operation("Record manually paid bonuses", "pay/bonuses/paid/", request=PaidInput, serializer_class=NotedSerializer)
    def bonuses_paid(self, request: Request, round_id: int, name: str) -> Response:
        """Records all open bonuses of these participants as paid. The sum of these bonuses must be `total`."""
        n_people = bonuses.note_paid(self.panel(), **self.sent(PaidInput), by=request.user)
        return self.answer({"n_people": n_people})

    @operation("Approve completed places", "pay/approve/", request=ApprovalInput, serializer_class=ApprovedSerializer)
    def approve(self, request: Request, round_id: int, name: str) -> Response:
        """Approves at most 1,000 places at once. Submissions with a decision are skipped."""
        n = commands.approve(self.panel(), self.sent(ApprovalInput)["submissions"], request.user)
        return self.answer({"n_approved": n})


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
