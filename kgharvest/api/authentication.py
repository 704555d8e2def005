"""API authentication by token (`Authorization: Bearer kgh_...`) or session, token scopes, and rate limits."""

from collections.abc import Callable

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from kgharvest.accounts.throttle import network_of, seconds_to_wait
from kgharvest.accounts.tokens import Scope, find_token
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


class TokenAllows(BasePermission):
    """Permission by token scope. Sessions and the scope `write` permit all views; services check the user's role.

    The default `scope` of a view is `read` for safe methods and `write` for all others.
    """

    message = "The scope of this token does not permit this request. Create a token with another scope."

    def has_permission(self, request: Request, view) -> bool:
        if not request.user.is_authenticated:
            return False
        default = Scope.READ if request.method in SAFE_METHODS else Scope.WRITE
        required = getattr(view, "scope", None) or default
        return request.auth is None or request.auth.scope in (Scope.WRITE, required)


class Throttle(BaseThrottle):
    """Rate limit named `scope` in settings.API_LIMITS, shared by all processes.

    who(request, view) returns the key to count, or None if the limit does not apply.
    """

    scope: str
    who: Callable[..., str | None]

    def allow_request(self, request: Request, view) -> bool:
        who = self.who(request, view)
        self._wait = seconds_to_wait(f"api:{who}", *settings.API_LIMITS[self.scope], timezone.now()) if who else 0.0
        return not self._wait

    def wait(self) -> float:
        return self._wait


class TokenThrottle(Throttle):
    """Limit per token, or per user for sessions."""

    scope = "token"

    def who(self, request: Request, view) -> str | None:
        if not request.user.is_authenticated:
            return None
        return f"token:{request.auth.pk}" if request.auth else f"user:{request.user.pk}"


class AnonymousThrottle(Throttle):
    """Limit per address, for requests without a valid token or session."""

    scope = "anonymous"

    def who(self, request: Request, view) -> str | None:
        is_authenticated = view is not None and request.user.is_authenticated
        return None if is_authenticated else f"address:{network_of(request)}"
