"""API of a project's webhooks and their deliveries, for project owners."""

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer, extend_schema_view
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action
from kgharvest.accounts.api import ProjectPartViewSet
from kgharvest.api.input import Filters, StrictSerializer
from kgharvest.api.views import PagedList, RetrieveMixin, operation
from kgharvest.events.types import TOPICS
from kgharvest.models import Delivery, Webhook
from kgharvest.webhooks import outbox
from kgharvest.webhooks.addresses import LONGEST_URL

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
    """A webhook. failing_since: time of the first failure since the last success, null if the last delivery succeeded.

    disabled_at: null if the webhook is enabled.
    """

    events = serializers.ListField(child=serializers.ChoiceField(list(TOPICS)))

    class Meta:
        model = Webhook
        fields = [*WEBHOOK]


@extend_schema_serializer(
    examples=[OpenApiExample("A new webhook", WEBHOOK | {"secret": "whsec_..."}, response_only=True)]
)
class NewWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="Signing secret. Shown only once.")

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]


class WebhookInput(StrictSerializer):
    url = serializers.CharField(max_length=LONGEST_URL, help_text="Public https URL.")
    events = serializers.ListField(child=serializers.ChoiceField(list(TOPICS)), allow_empty=False)


@extend_schema_serializer(examples=[OpenApiExample("A delivery", DELIVERY, response_only=True)])
class DeliverySerializer(serializers.ModelSerializer):
    """Delivery of an event. status: HTTP status of the last attempt; null without a response. body: request body."""

    class Meta:
        model = Delivery
        fields = [*DELIVERY]


class DeliveryFilters(Filters):
    state = serializers.ChoiceField(Delivery.State.choices, required=False)
    event = serializers.ChoiceField([*TOPICS, "test"], required=False)


@extend_schema_view(list=extend_schema(operation_id="webhooks_list"))
class WebhookViewSet(PagedList, RetrieveMixin, ProjectPartViewSet):
    """Webhooks of a project, newest first, for its owners."""

    access = Action.MANAGE
    serializer_class = WebhookSerializer
    is_keyed = False  # responses must not be stored, because some contain a secret

    def get_queryset(self) -> QuerySet[Webhook]:
        return Webhook.objects.filter(project_id=self.project.pk)

    def with_secret(self, webhook: Webhook, status_code: int, location: str | None = None) -> Response:
        self.serializer_class = NewWebhookSerializer
        return self.answer(webhook, status_code, location)

    @extend_schema(request=WebhookInput, responses={201: NewWebhookSerializer}, summary="Create a webhook")
    def create(self, request: Request, slug: str) -> Response:
        """Creates a webhook. The response contains the signing secret, which is shown only once."""
        webhook = outbox.create_webhook(self.project.pk, **self.sent(WebhookInput), by=request.user)
        return self.with_secret(webhook, status.HTTP_201_CREATED, self.address(webhook))

    @extend_schema(request=WebhookInput, summary="Change the URL or events of a webhook")
    def partial_update(self, request: Request, slug: str, pk: int) -> Response:
        """Changes the webhook. Pending deliveries are sent to the new URL."""
        webhook = self.named()
        values = {"url": webhook.url, "events": webhook.events} | self.sent(WebhookInput, partial=True)
        outbox.edit_webhook(webhook, **values, by=request.user)
        return self.answer(self.named())

    @extend_schema(summary="Delete a webhook")
    def destroy(self, request: Request, slug: str, pk: int) -> Response:
        """Deletes the webhook and its delivery log. Pending deliveries are not sent."""
        outbox.delete_webhook(self.named(), request.user)
        return self.deleted()

    @operation("Enable a webhook", is_keyed=True)
    def enable(self, request: Request, slug: str, pk: int) -> Response:
        """Enables the webhook. Pending deliveries are sent immediately."""
        return self.changed(outbox.enable_webhook)

    @operation("Disable a webhook", is_keyed=True)
    def disable(self, request: Request, slug: str, pk: int) -> Response:
        return self.changed(outbox.disable_webhook)

    @operation("Rotate the secret of a webhook", responses=NewWebhookSerializer, is_keyed=False)
    def secret(self, request: Request, slug: str, pk: int) -> Response:
        """Creates a new secret.

        For one day, messages are also signed with the old secret, so that receivers can switch.
        """
        return self.with_secret(outbox.rotate_secret(self.named(), request.user), status.HTTP_200_OK)

    @operation(
        "Send a test event to a webhook",
        responses={202: DeliverySerializer},
        serializer_class=DeliverySerializer,
        is_keyed=True,
    )
    def test(self, request: Request, slug: str, pk: int) -> Response:
        """A worker sends the test event within seconds. The list of deliveries shows the result."""
        delivery = outbox.send_test(self.named(), request.user)
        return self.accepted(delivery, self.location("kgharvest:api_deliveries", slug, pk))


@extend_schema_view(list=extend_schema(operation_id="webhook_deliveries_list"))
class DeliveryViewSet(PagedList, ProjectPartViewSet):
    """Sent and pending deliveries of a webhook in the last 30 days, newest first."""

    access = Action.MANAGE
    serializer_class = DeliverySerializer
    filters = DeliveryFilters
    lookup_url_kwarg = "delivery"

    def get_queryset(self) -> QuerySet[Delivery]:
        webhook = get_object_or_404(Webhook, project_id=self.project.pk, pk=self.kwargs["pk"])
        return webhook.deliveries.select_related("webhook")

    @operation("Retry a delivery", "send-again/", responses={202: DeliverySerializer})
    def again(self, request: Request, slug: str, pk: int, delivery: int) -> Response:
        """Retries the delivery immediately and, if it fails, for another 48 hours.

        Successful deliveries are not repeated.
        """
        outbox.send_again(self.named(), request.user)
        return self.accepted(self.named(), self.location("kgharvest:api_deliveries", slug, pk))
