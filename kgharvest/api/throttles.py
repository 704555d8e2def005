"""Rate limits of the API (settings.API_LIMITS) per token, user, or address, shared by all processes."""

from abc import ABC, abstractmethod

from django.conf import settings
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from kgharvest.accounts.throttle import network_of, seconds_to_wait


class Throttle(BaseThrottle, ABC):
    """Rate limit named `scope` in settings.API_LIMITS."""

    scope: str

    @abstractmethod
    def who(self, request: Request, view) -> str | None:
        """Return the key to count, or None if the limit does not apply."""

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
