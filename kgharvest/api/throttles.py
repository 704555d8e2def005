"""How much is asked of the API: settings.API_LIMITS, counted by token, user or address in each web process."""

from __future__ import annotations

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from kgharvest.accounts.throttle import network_of


class Throttle(SimpleRateThrottle):
    """A limit of settings.API_LIMITS: requests in a window of seconds."""

    def get_rate(self) -> tuple[int, int]:
        return settings.API_LIMITS[self.scope]

    def parse_rate(self, rate: tuple[int, int]) -> tuple[int, int]:
        return rate


class TokenThrottle(Throttle):
    """Of one token, or of one user's session."""

    scope = "token"

    def get_cache_key(self, request: Request, view) -> str | None:
        if not request.user.is_authenticated:
            return None
        return f"api:token:{request.auth.pk}" if request.auth else f"api:user:{request.user.pk}"


class AnonymousThrottle(Throttle):
    """Of one address, without a token or with a wrong one."""

    scope = "anonymous"

    def get_cache_key(self, request: Request, view) -> str | None:
        is_known = view is not None and request.user.is_authenticated
        return None if is_known else f"api:address:{network_of(request)}"
