"""Who may see researchers' pages. Annotators only judge: LM, setting and score stay out of their sight."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from ipaddress import ip_address

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from rest_framework.permissions import BasePermission

RESEARCHERS = "researchers"


def is_researcher(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Return whether `user` is staff or in the group of researchers. Asks the database once per request and user."""
    if not hasattr(user, "_is_researcher"):
        user._is_researcher = user.is_active and (user.is_staff or user.groups.filter(name=RESEARCHERS).exists())
    return user._is_researcher


def make_researcher(user: AbstractBaseUser) -> None:
    user.groups.add(Group.objects.get_or_create(name=RESEARCHERS)[0])


def researcher_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Send anonymous visitors to the login; answer 403 to annotators."""

    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if not is_researcher(request.user):
            raise PermissionDenied("This page is for researchers.")
        return view(request, *args, **kwargs)

    return guarded


def client_ip(request: HttpRequest) -> str | None:
    """Return the address that the outermost proxy of our own saw, or the connection's where there is none.

    What X-Forwarded-For says further left came from the client, who could write anything there.
    """
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if settings.PROXY_COUNT and len(hops) >= settings.PROXY_COUNT:
        with suppress(ValueError):
            return str(ip_address(hops[-settings.PROXY_COUNT]))
    return request.META.get("REMOTE_ADDR")


class IsResearcher(BasePermission):
    def has_permission(self, request, view) -> bool:
        return is_researcher(request.user)


def roles(request: HttpRequest) -> dict[str, bool]:
    """Template context: `is_researcher`."""
    return {"is_researcher": hasattr(request, "user") and is_researcher(request.user)}
