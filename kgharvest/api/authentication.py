"""API authentication by token (`Authorization: Bearer kgh_...`) or session, and token scopes."""

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
BAD_TOKEN = "This token is unknown, expired, or revoked. Create a new one on the page API tokens."  # noqa: S105


class TokenAuthentication(BaseAuthentication):
    """Bearer token authentication. Invalid tokens get 401 and count towards the anonymous rate limit."""

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
    """OpenAPI description of token authentication."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "kgh_...",
            "description": "A token created on the page *API tokens* or with the command `token`.",
        }


# View scopes permitted by each token scope
PERMITTED_SCOPES = {
    Scope.READ: {Scope.READ},
    Scope.JUDGE: {Scope.JUDGE},
    Scope.WRITE: set(Scope),
}


class TokenAllows(BasePermission):
    """Permission by token scope. Sessions have every scope; services check the user's role.

    The default `scope` of a view is `read` for safe methods and `write` for all others.
    """

    message = "The scope of this token does not permit this request. Create a token with another scope."

    def has_permission(self, request: Request, view) -> bool:
        if not request.user.is_authenticated:
            return False
        if request.auth is None:
            return True
        default = Scope.READ if request.method in SAFE_METHODS else Scope.WRITE
        return (getattr(view, "scope", None) or default) in PERMITTED_SCOPES[request.auth.scope]
