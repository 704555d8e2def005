"""Who may see researchers' pages, and change what is the installation's.

Annotators only judge: LM, setting and score stay out of their sight.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from ipaddress import ip_address

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from rest_framework.permissions import BasePermission

from kgharvest.errors import DomainError

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


# -- who may change what is the installation's -------------------------------------------------------------------------


class NotYours(DomainError):
    """Changing what somebody else made."""


Rule = Callable[[Model, AbstractBaseUser], bool]


def _by_nobody(subject: Model, user: AbstractBaseUser) -> bool:
    return False


def _who_made_it(subject: Model, user: AbstractBaseUser) -> bool:
    return subject.created_by_id == user.pk


def _who_decided_it(subject: Model, user: AbstractBaseUser) -> bool:
    return subject.decided_by_id == user.pk


def _who_harvested_it(subject: Model, user: AbstractBaseUser) -> bool:
    """Nobody alone, where harvests of several people found it."""
    makers = set(subject.harvested_tuples.values_list("job__created_by", flat=True))
    return makers == {user.pk}


# Who besides a superuser, who owns the installation, may change what belongs to no study, by the name of its model.
MAY_CHANGE: dict[str, Rule] = {
    "RelationSet": _who_made_it,  # and its relations and prompts
    "Launch": _who_made_it,
    "Job": _who_made_it,  # of every kind
    "KnowledgeTuple": _who_harvested_it,
    "SensitiveWord": _by_nobody,
    "GoldDecision": _who_decided_it,
}


def may_change(user: AbstractBaseUser | None, subject: Model | type[Model]) -> bool:
    """Return whether `user` may change what is the installation's. `user`: None for the operator, at a command.

    subject: a row, or the model where the whole table is changed at once.
    """
    if user is None or user.is_superuser:
        return True
    model = subject if isinstance(subject, type) else type(subject)
    return next(MAY_CHANGE[base.__name__] for base in model.__mro__ if base.__name__ in MAY_CHANGE)(subject, user)


def check_may_change(user: AbstractBaseUser | None, subject: Model) -> None:
    """Raise NotYours unless `user` may change `subject`."""
    if not may_change(user, subject):
        raise NotYours(f"Only who made {subject._meta.verbose_name} {subject}, or a superuser, may change it.")


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
