"""Access policy: one table of actions and roles, used by pages, API, services, and commands.

Annotators only judge and never see the LM, setting, or score. Members of a project see the pages for researchers, but
only objects of their projects: each query starts with `objects.visible_to(user)`, so objects of other projects are not
found. Actions that the role does not permit raise NotAllowed.
"""

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

User = AbstractBaseUser | AnonymousUser | None  # None stands for the operator, who runs commands


class Action(StrEnum):
    """Actions in a project. WORK: create or change its relations, harvests, rounds, and reports."""

    VIEW = "view"
    ADJUDICATE = "adjudicate"
    WORK = "work"
    MANAGE = "manage"  # change the project's name and members, and see personal data


MAY: Mapping[Action, frozenset[Role]] = {
    Action.VIEW: frozenset(Role),
    Action.ADJUDICATE: frozenset({Role.OWNER, Role.RESEARCHER, Role.ADJUDICATOR}),
    Action.WORK: frozenset({Role.OWNER, Role.RESEARCHER}),
    Action.MANAGE: frozenset({Role.OWNER}),
}
VERBS = {Action.VIEW: "view", Action.ADJUDICATE: "adjudicate in", Action.WORK: "work in", Action.MANAGE: "manage"}


class NotAllowed(DomainError, PermissionDenied):
    """The user's role does not permit the action. Pages and API answer 403."""


def owns_installation(user: User) -> bool:
    """Return True for the operator and for superusers, unless the request's token is bound to a project."""
    return user is None or (user.is_active and user.is_superuser and bound_to(user) is None)


def bound_to(user: User) -> int | None:
    """Return the id of the project to which the token of the user's request is bound, or None."""
    return getattr(user, "bound_to", None)


def may(user: User, action: Action, project: Project | None) -> bool:
    """Return whether `user` may do `action` in `project`.

    A project of None stands for the whole installation, which members of any project may view. Superusers and the
    operator may do everything.
    """
    if owns_installation(user):
        return True
    if user.is_anonymous or not user.is_active or bound_to(user) not in (None, project and project.pk):
        return False
    if project is None:
        return action == Action.VIEW and may_anywhere(user, action)
    return user.is_superuser or ProjectMember.objects.filter(project=project, user=user, role__in=MAY[action]).exists()


def check_may(user: User, action: Action, project: Project | None) -> None:
    """Raise NotAllowed unless `user` may do `action` in `project`."""
    if may(user, action, project):
        return
    if project is None:
        raise NotAllowed("Only a superuser may change objects of the whole installation.")
    raise NotAllowed(f"You may not {VERBS[action]} the project {project}. Ask its owner for the role {_roles(action)}.")


def _roles(action: Action) -> str:
    return " or ".join(role.value for role in Role if role in MAY[action])


def allowed_actions(user: User, project: Project | None) -> dict[str, bool]:
    """Return, for each action, whether `user` may do it in `project`. Templates use, for example, `may.work`."""
    if user is None or user.is_superuser or project is None:
        return {action.value: may(user, action, project) for action in Action}
    role = ProjectMember.objects.filter(project=project, user=user).values_list("role", flat=True).first()
    return {action.value: user.is_active and role in MAY[action] for action in Action}


def visible(objects: QuerySet, user: User, path: str = "project") -> QuerySet:
    """Return the objects of the user's projects, or all objects if `user` is a superuser or the operator.

    path: lookup from an object to its project.
    """
    if owns_installation(user):
        return objects
    return objects.filter(**{f"{path}__in": Project.objects.visible_to(user).order_by().values("pk")})


def visible_or_404(user: User, objects: Any, action: Action = Action.VIEW, **lookup: Any) -> Any:
    """Return the object selected by `lookup`. Raises Http404 if `user` cannot see it.

    Raises NotAllowed if `user` can see the object but may not do `action` in its project.

    objects: a manager or queryset of a model with `visible_to` and `project`.
    """
    row = get_object_or_404(objects.visible_to(user), **lookup)
    if action != Action.VIEW:
        check_may(user, action, row.project)
    return row


def knows(user: User, person: Any) -> bool:
    """Return whether `user` may see that `person` acted on data that projects share.

    Shared data are decisions on knowledge tuples that several projects harvested. The result is True for members of the
    user's projects. Runs one query per request and user.
    """
    if owns_installation(user) or person == user:
        return True
    if not hasattr(user, "_known_people"):
        members = ProjectMember.objects.filter(project__in=Project.objects.visible_to(user).order_by().values("pk"))
        user._known_people = set(members.values_list("user", flat=True))
    return person.pk in user._known_people


def may_anywhere(user: User, action: Action) -> bool:
    """Return whether `user` may do `action` in any project.

    Superusers may do every action, because they can create a project. Users who may do VIEW anywhere are called
    researchers: superusers and the members of any project. Researchers see the pages for researchers. Runs one query
    per request and user.
    """
    if not user.is_active or user.is_superuser:
        return user.is_active
    if not hasattr(user, "_roles"):
        members = ProjectMember.objects.filter(user=user)
        members = members if bound_to(user) is None else members.filter(project=bound_to(user))
        user._roles = set(members.order_by().values_list("role", flat=True).distinct())
    return not MAY[action].isdisjoint(user._roles)


def check_may_anywhere(user: User, action: Action) -> None:
    """Raise NotAllowed unless `user` may do `action` in any project."""
    if not may_anywhere(user, action):
        raise NotAllowed(f"Your role does not permit this. Ask a project owner for the role {_roles(action)}.")


def researcher_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Send anonymous visitors to the login page; answer 403 to annotators."""

    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        if not may_anywhere(request.user, Action.VIEW):
            raise PermissionDenied("This page is for researchers.")
        return view(request, *args, **kwargs)

    return guarded


def worker_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 403 to users who may not work in any project. API actions call `check_may_anywhere` instead."""

    @researcher_required
    @wraps(view)
    def guarded(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        check_may_anywhere(request.user, Action.WORK)
        return view(request, *args, **kwargs)

    return guarded


class IsResearcher(BasePermission):
    def has_permission(self, request, view) -> bool:
        return may_anywhere(request.user, Action.VIEW)


def roles(request: HttpRequest) -> dict[str, Any]:
    """Template context: `is_researcher`, `may_work` (whether the user may work in any project), and `navigation`."""
    user = getattr(request, "user", AnonymousUser())
    is_researcher, may_work = may_anywhere(user, Action.VIEW), may_anywhere(user, Action.WORK)
    return {"is_researcher": is_researcher, "may_work": may_work, "navigation": settings.NAVIGATION}


def client_ip(request: HttpRequest) -> str | None:
    """Return the client's address as seen by the outermost trusted proxy.

    Without a proxy, return the connection's address.

    Entries further left in X-Forwarded-For come from the client and can be forged.
    """
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if settings.PROXY_COUNT and len(hops) >= settings.PROXY_COUNT:
        with suppress(ValueError):
            return str(ip_address(hops[-settings.PROXY_COUNT]))
    return request.META.get("REMOTE_ADDR")
