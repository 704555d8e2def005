"""How much is asked of the API: settings.API_LIMITS, counted by token, user or address, by all processes together."""

from __future__ import annotations

from abc import ABC, abstractmethod

from django.conf import settings
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from kgharvest.accounts.throttle import network_of, seconds_to_wait


class Throttle(BaseThrottle, ABC):
    """A limit of settings.API_LIMITS, by its name."""

    scope: str

    @abstractmethod
    def who(self, request: Request, view) -> str | None:
        """Return who is counted as one, None for whom this limit does not count."""

    def allow_request(self, request: Request, view) -> bool:
        who = self.who(request, view)
        self._wait = seconds_to_wait(f"api:{who}", *settings.API_LIMITS[self.scope], timezone.now()) if who else 0.0
        return not self._wait

    def wait(self) -> float:
        return self._wait


class TokenThrottle(Throttle):
    """Of one token, or of one user's session."""

    scope = "token"

    def who(self, request: Request, view) -> str | None:
        if not request.user.is_authenticated:
            return None
        return f"token:{request.auth.pk}" if request.auth else f"user:{request.user.pk}"


class AnonymousThrottle(Throttle):
    """Of one address, without a token or with a wrong one."""

    scope = "anonymous"

    def who(self, request: Request, view) -> str | None:
        is_known = view is not None and request.user.is_authenticated
        return None if is_known else f"address:{network_of(request)}"
