"""Pay in the API: a panel's balance and hourly pay, its ledger, what its platform is asked to do."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Panel, PayEntry, PlatformCommand
from annotation.recruiting.panels.api import PanelView
from annotation.recruiting.panels.models import MOST_MONEY
from annotation.recruiting.pay import bonuses, commands, floor, ledger, review
from annotation.recruiting.pay.hourly import hourly_pay
from annotation.recruiting.pay.models import LONGEST_MESSAGE
from annotation.recruiting.pay.views import ledger_csv
from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import AnyRenderer, ListView
from kgharvest.tables.downloads import download

Kind, State = PlatformCommand.Kind, PlatformCommand.State
MONEY = "In minor units of the panel's currency, such as cents."


# -- balance and hourly pay --------------------------------------------------------------------------------------------


class PersonPaySerializer(serializers.Serializer):
    """One completed place. bonus: what lifts its pay to the floor."""

    submission = serializers.IntegerField()
    annotator = serializers.CharField()
    active_seconds = serializers.FloatField(allow_null=True, help_text="Null where too little was measured.")
    owed = serializers.IntegerField(help_text=MONEY)
    paid = serializers.IntegerField(help_text=MONEY)
    hourly = serializers.FloatField(allow_null=True, help_text=MONEY)
    bonus = serializers.IntegerField(help_text=MONEY)


class PaySerializer(serializers.Serializer):
    """Money is in minor units of the currency, such as cents."""

    currency = serializers.CharField()
    owed = serializers.IntegerField()
    paid = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Owed and not paid.")
    median_hourly = serializers.FloatField(allow_null=True, help_text="On active time; null for the `reason`.")
    n_measured = serializers.IntegerField(help_text="People of whom it is the median.")
    reason = serializers.CharField(allow_blank=True)
    hourly_floor = serializers.IntegerField(help_text="0: none.")
    is_below_floor = serializers.BooleanField()
    missing = serializers.IntegerField(help_text="The sum of the bonuses that lift everybody to the floor.")
    n_to_review = serializers.IntegerField()
    people = PersonPaySerializer(many=True)


def pay_of(panel: Panel) -> dict[str, Any]:
    pay, balance = hourly_pay(panel), ledger.panel_balance(panel)
    lacks = {lack.work.submission.pk: lack.amount for lack in floor.floor_bonuses(pay, panel.hourly_floor)}
    return {
        "currency": panel.currency,
        "owed": balance.owed,
        "paid": balance.paid,
        "open": balance.open,
        "median_hourly": pay.median,
        "n_measured": pay.n,
        "reason": pay.reason,
        "hourly_floor": panel.hourly_floor,
        "is_below_floor": floor.is_below_floor(panel, pay),
        "missing": sum(lacks.values()),
        "n_to_review": review.to_review(panel).count(),
        "people": [
            {
                "submission": work.submission.pk,
                "annotator": str(work.submission.annotator),
                "active_seconds": work.active_s,
                "owed": work.balance.owed,
                "paid": work.balance.paid,
                "hourly": None if work.hourly is None else float(work.hourly),
                "bonus": lacks.get(work.submission.pk, 0),
            }
            for work in pay.works
        ],
    }


class PanelPay(PanelView):
    serializer_class = PaySerializer

    @extend_schema(summary="What a panel pays")
    def get(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(pay_of(self.panel()))


class PanelFloor(PanelView):
    serializer_class = PaySerializer

    @extend_schema(summary="Lift everybody to the floor", request=None, responses={200: PaySerializer})
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """Grant the bonuses that are missing, and let a panel that was paused for them go on. Twice is once."""

        def lift() -> Response:
            panel = self.panel()
            floor.make_good(panel, request.user)
            return self.answer(pay_of(panel))

        return self.once(lift)


# -- ledger ------------------------------------------------------------------------------------------------------------


class PayEntrySerializer(serializers.ModelSerializer):
    """A line of the ledger. People are named by their codes. event, command: what told of it."""

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


class PayEntryList(PanelView, ListView):
    """The lines of a panel's ledger, the first one first."""

    serializer_class = PayEntrySerializer
    filters = PayEntryFilters
    order = ("pk",)

    def get_queryset(self) -> QuerySet:
        return self.panel().pay_entries.select_related("submission__annotator", "by")


class PayEntryFile(PanelView):
    renderer_classes = (AnyRenderer,)

    @extend_schema(summary="A panel's ledger as CSV", responses={(200, "text/csv"): OpenApiTypes.BINARY})
    def get(self, request: Request, round_id: int, name: str) -> HttpResponse:
        """Amounts are in decimals here."""
        panel = self.panel()
        return download(ledger_csv(panel), f"{panel.name}-ledger.csv")


# -- commands ----------------------------------------------------------------------------------------------------------


class CommandSerializer(serializers.ModelSerializer):
    """What the platform is asked to do about a submission."""

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
        help_text=f"Why somebody is rejected, in {commands.SHORTEST_REJECTION} characters or more.",
    )
    category = serializers.ChoiceField(
        list(commands.GROUNDS), required=False, default="", help_text="On which ground somebody is rejected."
    )


class CommandFilters(Filters):
    state = serializers.ChoiceField(State.choices, required=False)
    submission = IdField(required=False)


class CommandList(PanelView, ListView):
    """What the platform was asked to do, the last thing first."""

    serializer_class = CommandSerializer
    filters = CommandFilters

    def get_queryset(self) -> QuerySet:
        return PlatformCommand.objects.filter(submission__panel=self.panel())

    @extend_schema(
        summary="Have the platform approve or reject",
        request=CommandInput,
        responses={201: CommandSerializer},
        examples=[OpenApiExample("Approve", {"submission": 12, "kind": "approve"}, request_only=True)],
    )
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """Stored now, sent within seconds."""

        def decide() -> Response:
            sent = self.sent(CommandInput)
            submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
            return self.created(review.decide(submission, by=request.user, **sent))

        return self.once(decide)


class SettleInput(StrictSerializer):
    was_done = serializers.BooleanField(help_text="Whether the platform shows that it was paid.")


class CommandView(PanelView):
    serializer_class = CommandSerializer

    def command(self) -> PlatformCommand:
        return self.row(PlatformCommand.objects.filter(submission__panel=self.panel()))

    def as_it_is_now(self, command: PlatformCommand) -> Response:
        command.refresh_from_db()
        return self.answer(command)


class CommandResend(CommandView):
    @extend_schema(summary="Send a command that failed again", request=None, responses={200: CommandSerializer})
    def post(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        def send() -> Response:
            command = self.command()
            commands.resend(command, request.user)
            return self.as_it_is_now(command)

        return self.once(send)


class CommandSettle(CommandView):
    @extend_schema(
        summary="Say whether an uncertain payment was made", request=SettleInput, responses={200: CommandSerializer}
    )
    def post(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        """Look at the platform first: one that was not made is sent again."""

        def settle() -> Response:
            command = self.command()
            commands.settle_by_hand(command, self.sent(SettleInput)["was_done"], request.user)
            return self.as_it_is_now(command)

        return self.once(settle)


# -- bonuses -----------------------------------------------------------------------------------------------------------


class OpenBonusSerializer(serializers.Serializer):
    """Bonuses of one person that are to be paid by hand."""

    submission = serializers.IntegerField(source="submission.pk")
    annotator = serializers.CharField(source="submission.annotator.code", allow_null=True, default=None)
    amount = serializers.IntegerField(help_text=MONEY)
    reason = serializers.CharField()


class BonusInput(StrictSerializer):
    submission = IdField()
    amount = serializers.IntegerField(min_value=1, max_value=MOST_MONEY, help_text=MONEY)
    reason = serializers.CharField(max_length=commands.LONGEST_REASON, help_text="The person reads it.")


class PaidInput(StrictSerializer):
    submissions = serializers.ListField(child=IdField(), min_length=1)
    total = serializers.IntegerField(min_value=1, help_text=f"Of what was paid to them. {MONEY}")


class NotedSerializer(serializers.Serializer):
    n_people = serializers.IntegerField()


class PanelBonuses(PanelView):
    serializer_class = OpenBonusSerializer

    @extend_schema(summary="Bonuses to pay by hand", responses={200: OpenBonusSerializer(many=True)})
    def get(self, request: Request, round_id: int, name: str) -> Response:
        """Those that the platform does not pay by itself, or refused to."""
        return Response(self.get_serializer(bonuses.open_bonuses(self.panel()), many=True).data)

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
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """Owed now; a platform that pays bonuses by itself is told within seconds."""
        self.serializer_class = PayEntrySerializer

        def grant() -> Response:
            sent = self.sent(BonusInput)
            submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
            return self.created(bonuses.grant_bonus(submission, **sent, by=request.user))

        return self.once(grant)


class BonusesPaid(PanelView):
    serializer_class = NotedSerializer

    @extend_schema(summary="Note bonuses as paid by hand", request=PaidInput, responses={200: NotedSerializer})
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """All that is open of these people, whose sum must be `total`."""

        def note() -> Response:
            return self.answer({"n_people": bonuses.note_paid(self.panel(), **self.sent(PaidInput), by=request.user)})

        return self.once(note)


# -- reviewing all -----------------------------------------------------------------------------------------------------


class ApprovalInput(StrictSerializer):
    submissions = serializers.ListField(
        child=IdField(),
        required=False,
        allow_null=True,
        default=None,
        help_text="Which of those that wait for review; all of them if left out.",
    )


class ApprovedSerializer(serializers.Serializer):
    n_approved = serializers.IntegerField()


class PanelApproval(PanelView):
    serializer_class = ApprovedSerializer

    @extend_schema(summary="Approve completed places", request=ApprovalInput, responses={200: ApprovedSerializer})
    def post(self, request: Request, round_id: int, name: str) -> Response:
        """At most 1,000 at once. What is decided already is passed over."""

        def approve() -> Response:
            n = review.approve(self.panel(), self.sent(ApprovalInput)["submissions"], request.user)
            return self.answer({"n_approved": n})

        return self.once(approve)
