"""API of access tokens: the tokens of the authenticated user."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.access import Action
from kgharvest.accounts.tokens import LONGEST_DAYS, Scope, create_token, revoke_token
from kgharvest.api.authentication import TokenAllows
from kgharvest.api.input import ProjectField, StrictSerializer
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin
from kgharvest.models import ApiToken

TOKEN = {
    "id": 3,
    "name": "nightly harvest",
    "prefix": "kgh_Zb3xQ0aR",
    "scope": "write",
    "project": None,
    "created_at": "2026-11-01T09:00:00Z",
    "expires_at": "2027-01-30T09:00:00Z",
    "last_used_at": "2026-11-22T02:00:00Z",
    "revoked_at": None,
}


@extend_schema_serializer(examples=[OpenApiExample("A token", TOKEN, response_only=True)])
class TokenSerializer(serializers.ModelSerializer):
    """An API token. Its secret is returned only once, on creation."""

    project = serializers.CharField(
        source="project.slug",
        default=None,
        allow_null=True,
        help_text="Slug of the only accessible project; null for all.",
    )

    class Meta:
        model = ApiToken
        fields = ["id", "name", "prefix", "scope", "project", "created_at", "expires_at", "last_used_at", "revoked_at"]


@extend_schema_serializer(
    examples=[OpenApiExample("A new token", TOKEN | {"token": "kgh_Zb3xQ0aR..."}, response_only=True)]
)
class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="Secret for the Authorization header. Shown only once.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]


class TokenInput(StrictSerializer):
    name = serializers.CharField(max_length=100, help_text="Purpose of the token.")
    scope = serializers.ChoiceField(Scope.choices)
    days = serializers.IntegerField(min_value=1, max_value=LONGEST_DAYS, default=90)
    project = ProjectField("Slug of the only accessible project. Default: all your projects.")


class NotByToken(exceptions.PermissionDenied):
    default_detail = "A token cannot create tokens. Use the page API tokens or the command `token`."


class TokenViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Your tokens, newest first. A token bound to a project lists only tokens bound to the same project."""

    access = Action.VIEW
    permission_classes = (TokenAllows,)
    serializer_class = TokenSerializer
    is_keyed = False  # the response to POST contains a secret
    queryset = ApiToken.objects.select_related("project")

    @extend_schema(request=TokenInput, responses={201: NewTokenSerializer}, summary="Create a token")
    def create(self, request: Request) -> Response:
        """Requires a browser session: a stolen token must not create a token that outlives it."""
        if request.auth:
            raise NotByToken
        new = create_token(request.user, **self.sent(TokenInput), now=timezone.now())
        new.token.token = new.secret
        self.serializer_class = NewTokenSerializer
        return self.created(new.token, self.address(new.token))

    @extend_schema(summary="Revoke a token")
    def destroy(self, request: Request, pk: int) -> Response:
        """The token stops working immediately. Its row is kept, with the time of revocation."""
        revoke_token(self.named(), timezone.now())
        return self.deleted()
