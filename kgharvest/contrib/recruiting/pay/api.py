"""API of pay: balance and hourly pay of a panel, ledger, commands to the platform, and bonuses."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import PagedList, file_operation, operation
from kgharvest.contrib.recruiting.models import LONGEST_MESSAGE, Panel, PayEntry, PlatformCommand
from kgharvest.contrib.recruiting.panels.api import PanelOperations, PanelPartViewSet
from kgharvest.contrib.recruiting.panels.models import MOST_MONEY
from kgharvest.contrib.recruiting.pay import bonuses, commands, floor, ledger
from kgharvest.contrib.recruiting.pay.hourly import hourly_pay
from kgharvest.contrib.recruiting.pay.views import ledger_csv
from kgharvest.tables.downloads import download

Kind, State = PlatformCommand.Kind, PlatformCommand.State
MONEY = "In minor units of the panel's currency, for example cents."


# Balance and hourly pay


class PersonPaySerializer(serializers.Serializer):
    """One completed place."""

    submission = serializers.IntegerField(source="work.submission.pk")
    annotator = serializers.CharField(source="work.submission.annotator")
    active_seconds = serializers.FloatField(
        source="work.active_s", allow_null=True, help_text="Null if not enough was measured."
    )
    owed = serializers.IntegerField(source="work.balance.owed", help_text=MONEY)
    paid = serializers.IntegerField(source="work.balance.paid", help_text=MONEY)
    hourly = serializers.FloatField(source="work.hourly", allow_null=True, help_text=MONEY)
    bonus = serializers.IntegerField(help_text=f"Missing amount to the minimum hourly rate. {MONEY}")


class PaySerializer(serializers.Serializer):
    """Amounts are in minor units of the currency, for example cents."""

    currency = serializers.CharField()
    owed = serializers.IntegerField()
    paid = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Outstanding: owed minus paid.")
    median_hourly = serializers.FloatField(allow_null=True, help_text="Per hour of active time; null: see `reason`.")
    n_measured = serializers.IntegerField(help_text="Number of participants in the median.")
    reason = serializers.CharField(allow_blank=True)
    hourly_floor = serializers.IntegerField(help_text="Minimum hourly rate; 0: none.")
    is_below_floor = serializers.BooleanField()
    missing = serializers.IntegerField(help_text="Total of the bonuses that raise all participants to the minimum.")
    n_to_review = serializers.IntegerField()
    people = PersonPaySerializer(many=True)


def pay_of(panel: Panel) -> dict[str, Any]:
    pay, balance = hourly_pay(panel), ledger.panel_balance(panel)
    missing = {bonus.work.submission.pk: bonus.amount for bonus in floor.floor_bonuses(pay, panel.hourly_floor)}
    return {
        "currency": panel.currency,
        **balance._asdict(),
        "open": balance.open,
        "median_hourly": pay.median,
        "n_measured": pay.n,
        "reason": pay.reason,
        "hourly_floor": panel.hourly_floor,
        "is_below_floor": floor.is_below_floor(panel, pay),
        "missing": sum(missing.values()),
        "n_to_review": commands.to_review(panel).count(),
        "people": [{"work": work, "bonus": missing.get(work.submission.pk, 0)} for work in pay.works],
    }


# Ledger


class PayEntrySerializer(serializers.ModelSerializer):
    """Ledger entry. Participants are named by annotator code. event, command: source of the entry."""

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


# Commands


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
    was_done = serializers.BooleanField(help_text="True if the platform shows the payment as made.")


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
        """Stored immediately and sent to the platform within seconds."""
        sent = self.sent(CommandInput)
        submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
        return self.created(commands.decide(submission, by=request.user, **sent))

    @operation("Resend a failed command")
    def resend(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        return self.changed(commands.resend)

    @operation("Settle an uncertain payment", request=SettleInput)
    def settle(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        """Check on the platform first: a payment that was not made is retried."""
        command = self.get_object()
        commands.settle_by_hand(command, self.sent(SettleInput)["was_done"], request.user)
        command.refresh_from_db()
        return self.answer(command)


# Bonuses


class OpenBonusSerializer(serializers.Serializer):
    """Bonuses of one participant to pay manually."""

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


# Review


class ApprovalInput(StrictSerializer):
    submissions = serializers.ListField(
        child=IdField(),
        required=False,
        allow_null=True,
        default=None,
        help_text="Submissions awaiting review. Default: all.",
    )


class ApprovedSerializer(serializers.Serializer):
    n_approved = serializers.IntegerField()


# Operations


class PayViewSet(PanelOperations):
    serializer_class = PaySerializer

    @operation("Pay of a panel", method="get")
    def pay(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(pay_of(self.panel()))

    @operation("Raise pay to the minimum hourly rate", "pay/floor/")
    def floor(self, request: Request, round_id: int, name: str) -> Response:
        """Grants the missing bonuses and resumes a panel that was paused because of them."""
        panel = self.panel()
        floor.make_good(panel, request.user)
        return self.answer(pay_of(panel))

    @file_operation("A panel's ledger as CSV", "pay/entries.csv", "text/csv")
    def entries_file(self, request: Request, round_id: int, name: str) -> HttpResponse:
        """Amounts are decimal numbers."""
        panel = self.panel()
        return download(ledger_csv(panel), f"{panel.name}-ledger.csv")

    @operation("Bonuses to pay manually", "pay/bonuses/", method="get", responses={200: OpenBonusSerializer(many=True)})
    def bonuses(self, request: Request, round_id: int, name: str) -> Response:
        """Bonuses that the platform cannot pay or refused to pay."""
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
        """Owed immediately. A platform that pays bonuses receives the request within seconds."""
        sent = self.sent(BonusInput)
        submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
        entry = bonuses.grant_bonus(submission, **sent, by=request.user)
        return Response(PayEntrySerializer(entry).data, status.HTTP_201_CREATED)

    @operation("Record manually paid bonuses", "pay/bonuses/paid/", request=PaidInput, serializer_class=NotedSerializer)
    def bonuses_paid(self, request: Request, round_id: int, name: str) -> Response:
        """Records all open bonuses of these participants as paid. Their sum must be `total`."""
        n_people = bonuses.note_paid(self.panel(), **self.sent(PaidInput), by=request.user)
        return self.answer({"n_people": n_people})

    @operation("Approve completed places", "pay/approve/", request=ApprovalInput, serializer_class=ApprovedSerializer)
    def approve(self, request: Request, round_id: int, name: str) -> Response:
        """At most 1,000 at once. Submissions with a decision are skipped."""
        n = commands.approve(self.panel(), self.sent(ApprovalInput)["submissions"], request.user)
        return self.answer({"n_approved": n})
