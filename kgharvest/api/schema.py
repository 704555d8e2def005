"""OpenAPI description: statuses and errors of every operation."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from kgharvest.api.authentication import TokenAllows
from kgharvest.api.idempotency import HEADER, LONGEST_KEY
from kgharvest.api.views import ApiView, ApiViewSet, PagedList
from kgharvest.http import refusal


class ErrorSerializer(serializers.Serializer):
    code = serializers.CharField(help_text="Error code for programs.")
    message = serializers.CharField(help_text="Explanation for people.")
    fields = serializers.DictField(required=False, help_text="Errors by field, for invalid input.")


class RefusalSerializer(serializers.Serializer):
    error = ErrorSerializer()


DESCRIPTIONS = {
    "400": "Invalid input.",
    "401": "The token is missing, unknown, expired, or revoked.",
    "403": "The token's scope or your role does not permit the request.",
    "404": "The object does not exist or is not visible to you.",
    "406": "No media type in `Accept` is available.",
    "409": "A domain rule was violated; see `code`.",
    "415": "Unsupported media type of the request body.",
    "429": "Too many requests. `Retry-After` contains the seconds to wait.",
}
EXAMPLES = {
    "400": refusal("Invalid", "Invalid input.", fields={"limit": ["Invalid limit. Use a number from 1 to 500."]}),
    "401": refusal("NotAuthenticated", "Authentication credentials were not provided."),
    "403": refusal("PermissionDenied", TokenAllows.message),
    "404": refusal("NotFound", "Not found."),
    "406": refusal("NotAcceptable", "Could not satisfy the request Accept header."),
    "409": refusal("JobNotOpen", "Cannot cancel job 7: it has already ended."),
    "415": refusal("UnsupportedMediaType", 'Unsupported media type "text/plain" in request.'),
    "429": refusal("Throttled", "Request was throttled. Expected available in 12 seconds."),
}
KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="A repeated request with the same key within one day returns the stored response and changes nothing.",
)


class ApiSchema(AutoSchema):
    """Adds the parts that API views share to the description: errors, filters, and idempotency keys."""

    def get_override_parameters(self) -> list[Any]:
        if not isinstance(self.view, ApiView):
            return []
        if self.method == "POST":
            return [KEY] if self.view.is_keyed else []
        is_list = isinstance(self.view, PagedList) and self.method == "GET" and self._is_list_view()
        return [self.view.filters] if is_list and self.view.filters().fields else []

    def get_request_serializer(self) -> Any:
        """Return None for viewsets, because `extend_schema` names the request serializer of each operation."""
        return None if isinstance(self.view, ApiViewSet) else super().get_request_serializer()

    def get_filter_backends(self) -> list[Any]:
        return []

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        bodies = super()._get_response_bodies(direction)
        if not isinstance(self.view, ApiView):
            return bodies
        excluded = {"415"} if self.method == "GET" else set()  # 409: domain rules, 415: request bodies
        if self.method == "GET" and not self.view.refuses:
            excluded.add("409")
        for status in sorted(DESCRIPTIONS.keys() - excluded - bodies.keys()):
            examples = [OpenApiExample(EXAMPLES[status]["error"]["code"], EXAMPLES[status])]
            response = OpenApiResponse(RefusalSerializer, DESCRIPTIONS[status], examples)
            bodies[status] = self._get_response_for_code(response, status, ["application/json"], direction)
        return bodies
