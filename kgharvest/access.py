"""Who may see researchers' pages. Annotators only judge: LM, setting and score stay out of their sight."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

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


class IsResearcher(BasePermission):
    def has_permission(self, request, view) -> bool:
        return is_researcher(request.user)


def roles(request: HttpRequest) -> dict[str, bool]:
    """Template context: `is_researcher`."""
    return {"is_researcher": hasattr(request, "user") and is_researcher(request.user)}
