"""The API's description: every operation with all statuses that it can answer, errors in their one shape."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from kgharvest.api.idempotency import HEADER, LONGEST_KEY
from kgharvest.api.views import ApiView, ApiViewSet, PagedList
from kgharvest.http import refusal


class ErrorSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="For programs: one word for each kind of error.")
    message = serializers.CharField(help_text="For people: what is wrong and what to do.")
    fields = serializers.DictField(required=False, help_text="Of invalid input: what is wrong with each field.")


class RefusalSerializer(serializers.Serializer):
    error = ErrorSerializer()


REFUSALS = {
    "400": (
        "Invalid input.",
        refusal("Invalid", "The input is not valid.", fields={"limit": ["Give a number from 1 to 500."]}),
    ),
    "401": (
        "No token, or one that is unknown, expired or revoked.",
        refusal("NotAuthenticated", "Authentication credentials were not provided."),
    ),
    "403": (
        "The token's scope or your role does not allow it.",
        refusal("PermissionDenied", "The scope of this token does not reach so far; make one with another scope."),
    ),
    "404": ("There is no such thing, or none that you may see.", refusal("NotFound", "Not found.")),
    "406": (
        "No media type that `Accept` names can be had.",
        refusal("NotAcceptable", "Could not satisfy the request Accept header."),
    ),
    "409": (
        "A rule of the domain says no; `code` names it.",
        refusal("JobNotOpen", "Cannot cancel job 7: it has already ended."),
    ),
    "415": (
        "The body is of another media type.",
        refusal("UnsupportedMediaType", 'Unsupported media type "text/plain" in request.'),
    ),
    "429": (
        "Too many requests; `Retry-After` says in how many seconds to go on.",
        refusal("Throttled", "Request was throttled. Expected available in 12 seconds."),
    ),
}
ALWAYS = {"400", "401", "403", "404", "406", "429"}
ON_CHANGES = ALWAYS | {"409", "415"}
KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same key within a day, the request changes nothing twice; its answer comes again.",
)


def refused(status: str) -> OpenApiResponse:
    """Return how an error is described."""
    description, example = REFUSALS[status]
    return OpenApiResponse(RefusalSerializer, description, [OpenApiExample(example["error"]["code"], example)])


class ApiSchema(AutoSchema):
    """Adds what all views of the API share: errors, filters, idempotency keys."""

    def get_override_parameters(self) -> list[Any]:
        if not isinstance(self.view, ApiView):
            return []
        if self.method == "POST":
            return [KEY] if self.view.is_keyed else []
        is_list = isinstance(self.view, PagedList) and self.method == "GET" and self._is_list_view()
        return [self.view.filters] if is_list and self.view.filters().fields else []

    def get_request_serializer(self) -> Any:
        """Return None for viewsets: `extend_schema` names what an operation reads."""
        return None if isinstance(self.view, ApiViewSet) else super().get_request_serializer()

    def get_filter_backends(self) -> list[Any]:
        return []

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        bodies = super()._get_response_bodies(direction)
        if not isinstance(self.view, ApiView):
            return bodies
        statuses = ALWAYS if self.method == "GET" and not self.view.refuses else ON_CHANGES
        if self.method == "GET":
            statuses = statuses - {"415"}
        for status in sorted(statuses - bodies.keys()):
            bodies[status] = self._get_response_for_code(refused(status), status, ["application/json"], direction)
        return bodies
