"""Webhooks of a project in the API, for its owners: their addresses, secrets and deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action, check_may
from kgharvest.accounts.project_api import ProjectView
from kgharvest.api.input import Filters, StrictSerializer
from kgharvest.api.views import ListView
from kgharvest.models import Delivery, Webhook
from kgharvest.webhooks.addresses import LONGEST_URL
from kgharvest.webhooks.models import EVENTS
from kgharvest.webhooks.outbox import (
    NewSecret,
    create_webhook,
    delete_webhook,
    disable_webhook,
    edit_webhook,
    enable_webhook,
    rotate_secret,
    send_again,
    send_test,
)

WEBHOOK = {
    "id": 3,
    "url": "https://lab.example.org/hooks/kgharvest",
    "events": ["report.made", "round.complete"],
    "created_at": "2026-11-22T09:00:00Z",
    "failing_since": None,
    "disabled_at": None,
}
DELIVERY = {
    "id": 41,
    "event_id": "0f8b7c3e-2f54-4c5b-9d0e-0a6d1c1f7a55",
    "event": "report.made",
    "state": "delivered",
    "n_tries": 1,
    "created_at": "2026-11-22T09:00:00Z",
    "next_try_at": "2026-11-22T09:00:08Z",
    "delivered_at": "2026-11-22T09:00:01Z",
    "status": 200,
    "error": "",
    "body": '{"at":"2026-11-22T09:00:00Z","event":"report.made","facts":{"report":7,"round":"pilot"}}',
}


@extend_schema_serializer(examples=[OpenApiExample("A webhook", WEBHOOK, response_only=True)])
class WebhookSerializer(serializers.ModelSerializer):
    """failing_since: null while the last event arrived. disabled_at: since when nothing is sent; null: it is sent."""

    events = serializers.ListField(child=serializers.ChoiceField(list(EVENTS)))

    class Meta:
        model = Webhook
        fields = [*WEBHOOK]


@extend_schema_serializer(
    examples=[OpenApiExample("A new webhook", WEBHOOK | {"secret": "whsec_..."}, response_only=True)]
)
class NewWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="Signs what is sent. It is shown now and never again.")

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]


class WebhookInput(StrictSerializer):
    url = serializers.CharField(max_length=LONGEST_URL, help_text="https, of the internet.")
    events = serializers.ListField(child=serializers.ChoiceField(list(EVENTS)), allow_empty=False)


class WebhooksView(ProjectView):
    """What is below the address of a project's webhooks, all of it for owners."""

    serializer_class = WebhookSerializer

    def webhooks(self) -> QuerySet[Webhook]:
        check_may(self.request.user, Action.MANAGE, self.project)
        return Webhook.objects.filter(project_id=self.project.pk)

    def webhook(self) -> Webhook:
        return self.row(self.webhooks())

    def with_secret(self, new: NewSecret, status_code: int, location: str | None = None) -> Response:
        new.webhook.secret = new.secret
        self.serializer_class = NewWebhookSerializer
        return self.answer(new.webhook, status_code, location)


class WebhookList(WebhooksView, ListView):
    """Webhooks of a project, the newest first."""

    is_keyed = False  # its answer has a secret

    def get_queryset(self) -> QuerySet[Webhook]:
        return self.webhooks()

    @extend_schema(operation_id="webhooks_list")
    def get(self, request: Request, slug: str) -> Response:
        return self.list(request)

    @extend_schema(request=WebhookInput, responses={201: NewWebhookSerializer}, summary="Make a webhook")
    def post(self, request: Request, slug: str) -> Response:
        """The answer has the secret, this once."""
        self.webhooks()
        new = create_webhook(self.project.pk, **self.sent(WebhookInput), by=request.user)
        return self.with_secret(
            new, status.HTTP_201_CREATED, self.location("kgharvest:api_webhook", slug, new.webhook.pk)
        )


class WebhookDetail(WebhooksView):
    """A webhook of a project."""

    def get(self, request: Request, slug: str, pk: int) -> Response:
        return self.answer(self.webhook())

    @extend_schema(request=WebhookInput, summary="Change address or events of a webhook")
    def patch(self, request: Request, slug: str, pk: int) -> Response:
        """What waits goes to the new address."""
        webhook = self.webhook()
        sent = {"url": webhook.url, "events": webhook.events} | self.sent(WebhookInput, partial=True)
        edit_webhook(webhook, **sent, by=request.user)
        return self.answer(self.webhook())

    @extend_schema(responses={204: None}, summary="Delete a webhook")
    def delete(self, request: Request, slug: str, pk: int) -> Response:
        """With its log; what waits is not sent."""
        delete_webhook(self.webhook(), request.user)
        return self.deleted()


class WebhookChange(WebhooksView):
    """change: the service's function, of the webhook and who changes it."""

    change: Callable[..., Any]

    @extend_schema(request=None)
    def post(self, request: Request, slug: str, pk: int) -> Response:
        def change() -> Response:
            type(self).change(self.webhook(), by=request.user)
            return self.answer(self.webhook())

        return self.once(change)


@extend_schema(summary="Send a webhook again")
class WebhookEnable(WebhookChange):
    """What waits is sent at once."""

    change = enable_webhook


@extend_schema(summary="Send nothing more to a webhook")
class WebhookDisable(WebhookChange):
    change = disable_webhook


class WebhookSecret(WebhooksView):
    is_keyed = False  # its answer has a secret

    @extend_schema(request=None, responses=NewWebhookSerializer, summary="Give a webhook a new secret")
    def post(self, request: Request, slug: str, pk: int) -> Response:
        """For a day the old one signs as well, so that receivers can change theirs."""
        return self.with_secret(rotate_secret(self.webhook(), request.user), status.HTTP_200_OK)


# -- deliveries --------------------------------------------------------------------------------------------------------


@extend_schema_serializer(examples=[OpenApiExample("A delivery", DELIVERY, response_only=True)])
class DeliverySerializer(serializers.ModelSerializer):
    """An event on its way. status: HTTP's, of the last try; null where nobody answered. body: what is sent."""

    class Meta:
        model = Delivery
        fields = [*DELIVERY]


class DeliveryFilters(Filters):
    state = serializers.ChoiceField(Delivery.State.choices, required=False)
    event = serializers.ChoiceField([*EVENTS, "test"], required=False)


class DeliveryList(WebhooksView, ListView):
    """What was sent to a webhook and what waits, of the last 30 days, the newest first."""

    serializer_class = DeliverySerializer
    filters = DeliveryFilters

    def get_queryset(self) -> QuerySet[Delivery]:
        return self.webhook().deliveries.all()

    @extend_schema(operation_id="webhook_deliveries_list")
    def get(self, request: Request, slug: str, pk: int) -> Response:
        return self.list(request)


class WebhookTest(WebhooksView):
    serializer_class = DeliverySerializer

    @extend_schema(request=None, responses={202: DeliverySerializer}, summary="Send a test to a webhook")
    def post(self, request: Request, slug: str, pk: int) -> Response:
        """A worker sends it within seconds; the list of deliveries says how it went."""

        def test() -> Response:
            sent = send_test(self.webhook(), request.user)
            return self.accepted(sent, self.location("kgharvest:api_deliveries", slug, pk))

        return self.once(test)


class DeliveryAgain(WebhooksView):
    serializer_class = DeliverySerializer

    @extend_schema(request=None, responses={202: DeliverySerializer}, summary="Send an event again")
    def post(self, request: Request, slug: str, pk: int, delivery: int) -> Response:
        """At once, and for another 48 hours; what was delivered stays as it is."""

        def again() -> Response:
            deliveries = self.webhook().deliveries.select_related("webhook")
            waiting = get_object_or_404(deliveries, pk=delivery)
            send_again(waiting, request.user)
            waiting.refresh_from_db()
            return self.accepted(waiting, self.location("kgharvest:api_deliveries", slug, pk))

        return self.once(again)
