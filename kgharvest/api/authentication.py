"""API authentication by token (`Authorization: Bearer kgh_...`) or session, rate limits, and token scopes."""

from contextlib import suppress
from datetime import timedelta

from django.conf import settings
from django.core.cache import cache
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from kgharvest.accounts.throttle import add_attempts, network_of
from kgharvest.accounts.tokens import Scope
from kgharvest.audit.tables import sha256
from kgharvest.models import ApiToken

SCHEME = "Bearer"
BAD_TOKEN = "This token is unknown, expired, or revoked. Create a new one on the API tokens page."  # noqa: S105
USE_NOTED_EVERY = timedelta(minutes=1)
BLOCKS = 20  # number of blocks into which a rate limit is divided


def count_request(request: Request, user=None) -> None:
    """Count a request per token, per account for browser sessions, or per address for anonymous users.

    settings.API_LIMITS contains the limits. Raises Throttled, with the seconds to wait. A database write for each
    request would be too slow. Therefore, each process reserves a block of requests (a twentieth of the limit) in the
    database and counts them in memory. The limit is never exceeded, but a process cannot use requests that another
    process has reserved. After the limit is reached, each process queries the database once and then refuses requests
    without a query.
    """
    if user is not None and user.is_authenticated:
        scope, who = "token", f"token:{request.auth.pk}" if request.auth else f"user:{user.pk}"
    else:
        scope, who = "anonymous", f"address:{network_of(request)}"
    key, (most, window_s), now = f"api:{who}", settings.API_LIMITS[scope], timezone.now()
    refused_until = cache.get(f"{key}:refused")
    if refused_until and refused_until > now:
        raise exceptions.Throttled((refused_until - now).total_seconds())
    with suppress(ValueError):  # this process has no block, or the block's time window has ended
        if cache.decr(f"{key}:left") >= 0:
            return
    block = max(1, most // BLOCKS)
    attempts = add_attempts(key, block, window_s, now)
    lasts_s = (attempts.ends_at - now).total_seconds()
    granted = min(block, most - attempts.n + block)
    if granted <= 0:
        cache.set(f"{key}:refused", attempts.ends_at, lasts_s)
        raise exceptions.Throttled(lasts_s)
    cache.set(f"{key}:left", granted - 1, lasts_s)


class TokenAuthentication(BaseAuthentication):
    """Authentication by the secret of a token, which must be valid and belong to an active user.

    `user.bound_to` is the id of the token's project, which `kgharvest.access` checks. Invalid tokens get 401 and
    count towards the anonymous rate limit.
    """

    def authenticate(self, request: Request) -> tuple[object, ApiToken] | None:
        scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        now = timezone.now()
        valid = ApiToken.objects.valid(now).filter(user__is_active=True)
        token = valid.filter(digest=sha256(secret.strip())).select_related("user").first()
        if token is None:
            count_request(request)
            raise exceptions.AuthenticationFailed(BAD_TOKEN)
        token.user.bound_to = token.project_id
        if token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY:
            is_due = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
            ApiToken.objects.filter(is_due, pk=token.pk).update(last_used_at=now)
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
