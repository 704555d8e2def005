"""Who asks, and what the token allows: `Authorization: Bearer kgh_...`, or the session of a page."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from kgharvest.accounts.tokens import Scope, find_token
from kgharvest.api.throttles import AnonymousThrottle
from kgharvest.models import ApiToken

SCHEME = "Bearer"
BAD_TOKEN = "This token is unknown, expired or revoked; make a new one on the page API tokens."  # noqa: S105


class TokenAuthentication(BaseAuthentication):
    """Takes the token of a request. A wrong one is 401, and counted with what nobody asks."""

    def authenticate(self, request: Request) -> tuple[object, ApiToken] | None:
        scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        token = find_token(secret.strip(), timezone.now())
        if token is None:
            throttle = AnonymousThrottle()
            if not throttle.allow_request(request, None):
                raise exceptions.Throttled(throttle.wait())
            raise exceptions.AuthenticationFailed(BAD_TOKEN)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return f'{SCHEME} realm="kgharvest"'


class TokenScheme(OpenApiAuthenticationExtension):
    """How the API's description names it."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "kgh_...",
            "description": "A token of the page *API tokens* or the command `token`.",
        }


# What tokens of a scope open: `read` what is looked at, `judge` the annotator's own client, `write` everything.
OPENS = {
    Scope.READ: {Scope.READ},
    Scope.JUDGE: {Scope.JUDGE},
    Scope.WRITE: set(Scope),
}


class TokenAllows(BasePermission):
    """The token's scope opens this view. A session opens them all; what the user may is the services' question.

    A view's `scope`, by default, is `read` for what is only looked at and `write` for the rest.
    """

    message = "The scope of this token does not reach so far; make one with another scope."

    def has_permission(self, request: Request, view) -> bool:
        if not request.user.is_authenticated:
            return False
        if request.auth is None:
            return True
        usual = Scope.READ if request.method in SAFE_METHODS else Scope.WRITE
        return (getattr(view, "scope", None) or usual) in OPENS[request.auth.scope]
