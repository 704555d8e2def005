"""Pay in the API: balance and hourly pay of a panel, ledger, commands to the platform, bonuses."""

from __future__ import annotations

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
from kgharvest.contrib.recruiting.models import Panel, PayEntry, PlatformCommand
from kgharvest.contrib.recruiting.panels.api import PanelOperations, PanelPartViewSet
from kgharvest.contrib.recruiting.panels.models import MOST_MONEY
from kgharvest.contrib.recruiting.pay import bonuses, commands, floor, ledger
from kgharvest.contrib.recruiting.pay.hourly import hourly_pay
from kgharvest.contrib.recruiting.pay.models import LONGEST_MESSAGE
from kgharvest.contrib.recruiting.pay.views import ledger_csv
from kgharvest.tables.downloads import download

Kind, State = PlatformCommand.Kind, PlatformCommand.State
MONEY = "In minor units of the panel's currency, such as cents."


# Balance and hourly pay


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
        "n_to_review": commands.to_review(panel).count(),
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


# Ledger


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


class PayEntryViewSet(PagedList, PanelPartViewSet):
    """The entries of a panel's ledger, oldest first."""

    serializer_class = PayEntrySerializer
    filters = PayEntryFilters
    order = ("pk",)

    def get_queryset(self) -> QuerySet:
        return self.panel().pay_entries.select_related("submission__annotator", "by")


# Commands


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


class SettleInput(StrictSerializer):
    was_done = serializers.BooleanField(help_text="Whether the platform shows the payment as made.")


class CommandViewSet(PagedList, PanelPartViewSet):
    """The commands to the platform, newest first."""

    serializer_class = CommandSerializer
    filters = CommandFilters

    def get_queryset(self) -> QuerySet:
        return PlatformCommand.objects.filter(submission__panel=self.panel())

    @extend_schema(
        summary="Have the platform approve or reject",
        request=CommandInput,
        examples=[OpenApiExample("Approve", {"submission": 12, "kind": "approve"}, request_only=True)],
    )
    def create(self, request: Request, round_id: int, name: str) -> Response:
        """Stored now, sent within seconds."""
        sent = self.sent(CommandInput)
        submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
        return self.created(commands.decide(submission, by=request.user, **sent))

    @operation("Resend a failed command")
    def resend(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        return self.changed(commands.resend)

    @operation("Settle an uncertain payment", request=SettleInput)
    def settle(self, request: Request, round_id: int, name: str, pk: int) -> Response:
        """Check on the platform first: a payment that was not made is sent again."""
        command = self.get_object()
        commands.settle_by_hand(command, self.sent(SettleInput)["was_done"], request.user)
        command.refresh_from_db()
        return self.answer(command)


# Bonuses


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


# Review


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


# Operations


class PayViewSet(PanelOperations):
    serializer_class = PaySerializer

    @operation("Pay of a panel", method="get")
    def pay(self, request: Request, round_id: int, name: str) -> Response:
        return self.answer(pay_of(self.panel()))

    @operation("Raise pay to the floor", "pay/floor/")
    def floor(self, request: Request, round_id: int, name: str) -> Response:
        """Grants the missing bonuses and resumes a panel that was paused because of them."""
        panel = self.panel()
        floor.make_good(panel, request.user)
        return self.answer(pay_of(panel))

    @file_operation("A panel's ledger as CSV", "pay/entries.csv", "text/csv")
    def entries_file(self, request: Request, round_id: int, name: str) -> HttpResponse:
        """Amounts are decimal numbers here."""
        panel = self.panel()
        return download(ledger_csv(panel), f"{panel.name}-ledger.csv")

    @operation("Bonuses to pay by hand", "pay/bonuses/", method="get", responses={200: OpenBonusSerializer(many=True)})
    def bonuses(self, request: Request, round_id: int, name: str) -> Response:
        """Bonuses that the platform cannot pay itself or refused to pay."""
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
        """Owed at once; a platform that pays bonuses itself is told within seconds."""
        sent = self.sent(BonusInput)
        submission = get_object_or_404(self.panel().submissions, pk=sent.pop("submission"))
        entry = bonuses.grant_bonus(submission, **sent, by=request.user)
        return Response(PayEntrySerializer(entry).data, status.HTTP_201_CREATED)

    @operation("Record bonuses paid by hand", "pay/bonuses/paid/", request=PaidInput, serializer_class=NotedSerializer)
    def bonuses_paid(self, request: Request, round_id: int, name: str) -> Response:
        """Records all open bonuses of these participants as paid. Their sum must be `total`."""
        n_people = bonuses.note_paid(self.panel(), **self.sent(PaidInput), by=request.user)
        return self.answer({"n_people": n_people})

    @operation("Approve completed places", "pay/approve/", request=ApprovalInput, serializer_class=ApprovedSerializer)
    def approve(self, request: Request, round_id: int, name: str) -> Response:
        """At most 1,000 at once. Submissions that are already decided are skipped."""
        n = commands.approve(self.panel(), self.sent(ApprovalInput)["submissions"], request.user)
        return self.answer({"n_approved": n})
