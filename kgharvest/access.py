"""Who may do what: one table of actions and roles, which pages, API, services and commands ask.

Annotators only judge: LM, setting and score stay out of their sight. Whoever is a member of a project sees researchers'
pages, and there what is of their projects: every look-up of a page begins with `objects.visible_to(user)`, so that what
is of others is not found. What is found but not allowed is refused with NotAllowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import wraps
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from rest_framework.permissions import BasePermission

from kgharvest.accounts.models import Project, ProjectMember, Role
from kgharvest.errors import DomainError

User = AbstractBaseUser | AnonymousUser | None  # None: the operator of the installation, at a command


class Action(StrEnum):
    """What people do in a project. WORK: everything that makes or changes its relations, harvests, rounds, reports."""

    VIEW = "view"
    ADJUDICATE = "adjudicate"
    WORK = "work"
    MANAGE = "manage"  # its name, members and what the installation knows of people


MAY: Mapping[Action, frozenset[Role]] = {
    Action.VIEW: frozenset(Role),
    Action.ADJUDICATE: frozenset({Role.OWNER, Role.RESEARCHER, Role.ADJUDICATOR}),
    Action.WORK: frozenset({Role.OWNER, Role.RESEARCHER}),
    Action.MANAGE: frozenset({Role.OWNER}),
}
IN_WORDS = {
    Action.VIEW: "see it",
    Action.ADJUDICATE: "adjudicate in it",
    Action.WORK: "work in it",
    Action.MANAGE: "manage it",
}


class NotAllowed(DomainError, PermissionDenied):
    """Doing what one's role in the project does not allow. Pages and API answer 403."""


def owns_installation(user: User) -> bool:
    """Return whether `user` may do everything: the operator, or a superuser, but for a token bound to a project."""
    return user is None or (user.is_active and user.is_superuser and bound_to(user) is None)


def bound_to(user: User) -> int | None:
    """Return the id of the only project that the token of this request reaches, None for all of the user's."""
    return getattr(user, "bound_to", None)


def may(user: User, action: Action, project: Project | None) -> bool:
    """Return whether `user` may do `action` in `project`; None is the installation, which is seen by all members.

    A superuser and the operator may do everything.
    """
    if owns_installation(user):
        return True
    if user.is_anonymous or not user.is_active or bound_to(user) not in (None, project and project.pk):
        return False
    if project is None:
        return action == Action.VIEW and is_researcher(user)
    return user.is_superuser or ProjectMember.objects.filter(project=project, user=user, role__in=MAY[action]).exists()


def check_may(user: User, action: Action, project: Project | None) -> None:
    """Raise NotAllowed unless `user` may do `action` in `project`."""
    if may(user, action, project):
        return
    if project is None:
        raise NotAllowed("This is the whole installation's; only a superuser may change it.")
    roles = " or ".join(_roles(action))
    raise NotAllowed(f"You may not {IN_WORDS[action]}: the project {project} allows it to {roles}; ask its owner.")


def _roles(action: Action) -> list[str]:
    return [role.value for role in Role if role in MAY[action]]


def allowed_actions(user: User, project: Project | None) -> dict[str, bool]:
    """Return for templates, by the name of each action, whether `user` may do it in `project`: `may.work`."""
    if user is None or user.is_superuser or project is None:
        return {action.value: may(user, action, project) for action in Action}
    role = ProjectMember.objects.filter(project=project, user=user).values_list("role", flat=True).first()
    return {action.value: user.is_active and role in MAY[action] for action in Action}


def visible(objects: QuerySet, user: User, path: str = "project") -> QuerySet:
    """Return those of `objects` that are of the user's projects; all for a superuser and the operator.

    path: of the look-up that leads from them to their project.
    """
    if owns_installation(user):
        return objects
    return objects.filter(**{f"{path}__in": Project.objects.visible_to(user).order_by().values("pk")})


def visible_or_404(user: User, objects: Any, action: Action = Action.VIEW, **lookup: Any) -> Any:
    """Return the one of `objects` that `lookup` names, if `user` sees it (else Http404) and may do `action` to it.

    objects: of a model with `visible_to` and `project`. Raises NotAllowed.
    """
    found = get_object_or_404(objects.visible_to(user), **lookup)
    if action != Action.VIEW:
        check_may(user, action, found.project)
    return found


def knows(user: User, person: Any) -> bool:
    """Return whether `user` may learn that an account has done what the whole installation sees: gold of shipped
    relations, decisions on knowledge tuples. They do of those in their own projects. Asks once per request and user.
    """
    if owns_installation(user) or person == user:
        return True
    if not hasattr(user, "_known_people"):
        members = ProjectMember.objects.filter(project__in=Project.objects.visible_to(user).order_by().values("pk"))
        user._known_people = set(members.values_list("user", flat=True))
    return person.pk in user._known_people


# -- researchers' pages ------------------------------------------------------------------------------------------------


def roles_of(user: User) -> set[str]:
    """Return which roles the user has in any project. Asks the database once per request and user."""
    if not hasattr(user, "_roles"):
        members = ProjectMember.objects.filter(user=user)
        reached = members if bound_to(user) is None else members.filter(project=bound_to(user))
        user._roles = set(reached.order_by().values_list("role", flat=True).distinct())
    return user._roles


def is_researcher(user: User) -> bool:
    """Return whether `user` sees researchers' pages: a member of any project, or a superuser."""
    return user.is_active and (user.is_superuser or bool(roles_of(user)))


def may_anywhere(user: User, action: Action) -> bool:
    """Return whether there is a project in which `user` may do `action`; superusers may make one."""
    return user.is_active and (user.is_superuser or not MAY[action].isdisjoint(roles_of(user)))


def check_may_anywhere(user: User, action: Action) -> None:
    """Raise NotAllowed unless there is a project in which `user` may do `action`."""
    if not may_anywhere(user, action):
        roles = " or ".join(_roles(action))
        raise NotAllowed(f"Your role does not allow this. Ask the owner of a project for the role {roles}.")


def researcher_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Send anonymous visitors to the login; answer 403 to annotators."""

    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if not is_researcher(request.user):
            raise PermissionDenied("This page is for researchers.")
        return view(request, *args, **kwargs)

    return guarded


def worker_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 403 to users who may work in no project. API actions call `check_may_anywhere` instead."""

    @researcher_required
    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        check_may_anywhere(request.user, Action.WORK)
        return view(request, *args, **kwargs)

    return guarded


class IsResearcher(BasePermission):
    def has_permission(self, request, view) -> bool:
        return is_researcher(request.user)


def roles(request: HttpRequest) -> dict[str, Any]:
    """Template context: `is_researcher`, and `may_work`, whether the user may make things in any project."""
    if not hasattr(request, "user"):
        return {"is_researcher": False, "may_work": False}
    return {"is_researcher": is_researcher(request.user), "may_work": may_anywhere(request.user, Action.WORK)}


# -- where requests come from ------------------------------------------------------------------------------------------


def client_ip(request: HttpRequest) -> str | None:
    """Return the address that the outermost proxy of our own saw, or the connection's where there is none.

    What X-Forwarded-For says further left came from the client, who could write anything there.
    """
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if settings.PROXY_COUNT and len(hops) >= settings.PROXY_COUNT:
        with suppress(ValueError):
            return str(ip_address(hops[-settings.PROXY_COUNT]))
    return request.META.get("REMOTE_ADDR")
