"""Projects and the people in them: make, rename, invite, join, change roles, remove, hand over."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.forms import ModelForm
from django.utils.text import slugify

from kgharvest.access import MAY, Action, NotAllowed, bound_to, check_may, check_may_anywhere
from kgharvest.errors import DomainError, NotFound
from kgharvest.events.recording import actor_code, record
from kgharvest.models import Project, ProjectInvite, ProjectMember, Role
from kgharvest.names import check_name

DEFAULT = "default"  # slug of the project that a fresh installation works in
LONGEST_NAME = 100  # characters
MOST_DAYS = 90  # that an invite is good for


class LastOwner(DomainError):
    """Leaving a project without an owner."""


class InviteNotUsable(DomainError):
    """A link that was used or revoked, or whose time is over."""


# -- which project -----------------------------------------------------------------------------------------------------


def find_project(name: str, user=None) -> Project:
    """Return the project with this slug or name among those that `user` sees. Raises NotFound."""
    projects = Project.objects.visible_to(user)
    project = projects.filter(slug=name).first() or projects.filter(name=name).first()
    if project is None:
        known = ", ".join(projects.values_list("slug", flat=True)[:10]) or "none yet"
        raise NotFound(f"There is no project {name!r:.60}; the projects are: {known}.")
    return project


def project_for(by, project: Project | str | None = None) -> Project:
    """Return the project in which `by` makes something: `project`, or the only one in which they may work.

    The operator (None) of an installation without projects works in the default one, which is made. Raises NotAllowed,
    NotFound, and ProjectNotNamed with the slugs to choose from.
    """
    if isinstance(project, str):
        project = find_project(project, by)
    if project is not None:
        check_may(by, Action.WORK, project)
        return project
    projects = list(Project.objects.with_role(by, MAY[Action.WORK])[:10])
    if len(projects) == 1:
        return projects[0]
    if projects:
        names = ", ".join(project.slug for project in projects)
        raise DomainError(
            "ProjectNotNamed", f"There are several projects; name one of {names} (a command: with --project)."
        )
    if by is None or by.is_superuser:
        return default_project()
    raise DomainError("ProjectNotNamed", "You may work in no project yet; make one, or ask an owner for a role.")


def default_project() -> Project:
    """Return the project that a fresh installation works in; make it if need be."""
    return Project.objects.get_or_create(slug=DEFAULT, defaults={"name": "Default"})[0]


# -- projects ----------------------------------------------------------------------------------------------------------


@transaction.atomic
def create_project(name: str, by=None) -> Project:
    """Create a project owned by `by`, or by nobody if None (the operator).

    Raises NotAllowed for users who may work in no project and for tokens bound to one; BadName, NameTaken.
    """
    if by is not None:
        check_may_anywhere(by, Action.WORK)
        if bound_to(by) is not None:
            raise NotAllowed("This token is bound to one project. Use an unbound token to create another project.")
    name = _checked(name)
    stem = slugify(name)[:90] or "project"
    taken = set(Project.objects.filter(slug__startswith=stem).values_list("slug", flat=True)) | {"new"}
    slugs = (stem, *(f"{stem}-{n}" for n in range(2, len(taken) + 3)))
    try:
        with transaction.atomic():
            project = Project.objects.create(name=name, slug=next(slug for slug in slugs if slug not in taken))
    except IntegrityError:
        raise DomainError("NameTaken", f"There is a project named {name!r:.60} already; choose another name.") from None
    if by is not None:
        project.members.create(user=by, role=Role.OWNER)
    record("project.made", project, by, project.pk, project=project.slug)
    return project


@transaction.atomic
def rename_project(project: Project, name: str, by=None) -> None:
    """Give a project another name; its addresses stay. Raises NotAllowed, BadName, NameTaken."""
    check_may(by, Action.MANAGE, project)
    name = _checked(name)
    try:
        with transaction.atomic():
            Project.objects.filter(pk=project.pk).update(name=name)
    except IntegrityError:
        raise DomainError("NameTaken", f"There is a project named {name!r:.60} already; choose another name.") from None
    project.name = name


def _checked(name: str) -> str:
    name = name.strip()
    check_name(name, LONGEST_NAME, "project")
    return name


# -- members -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def set_role(project: Project, user, role: str, by=None) -> ProjectMember:
    """Give somebody a role: a new member, or another role for one. Raises NotAllowed, LastOwner."""
    _lock(project, by)
    if role != Role.OWNER:
        _check_other_owner(project, user)
    member, _ = ProjectMember.objects.update_or_create(project=project, user=user, defaults={"role": Role(role)})
    _record_member("role_set", project, user, by, role=member.role)
    return member


@transaction.atomic
def remove_member(project: Project, user, by=None) -> None:
    """Take somebody out of the project; everybody may leave. Raises NotAllowed, LastOwner, NotFound."""
    if by != user:
        check_may(by, Action.MANAGE, project)
    _lock(project, None)
    _check_other_owner(project, user)
    if not ProjectMember.objects.filter(project=project, user=user).delete()[0]:
        raise NotFound(f"{user} is no member of the project {project}.")
    _record_member("removed", project, user, by)


@transaction.atomic
def hand_over(project: Project, user, by) -> None:
    """Make another member the owner in the place of `by`, who stays as a researcher. Raises NotAllowed, NotFound."""
    _lock(project, by)
    if user == by or not ProjectMember.objects.filter(project=project, user=user).update(role=Role.OWNER):
        raise NotFound(f"Hand the project {project} over to another of its members; {user} is none.")
    ProjectMember.objects.filter(project=project, user=by).update(role=Role.RESEARCHER)
    _record_member("handed_over", project, user, by)


def _record_member(verb: str, project: Project, user, by, **facts: str) -> None:
    record(f"member.{verb}", user, by, project.pk, project=project.slug, person=actor_code(user), **facts)


def _lock(project: Project, by) -> None:
    """Let members change one after the other, so that two owners who leave at once do not both go."""
    check_may(by, Action.MANAGE, project)
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)


def _check_other_owner(project: Project, user) -> None:
    owners = ProjectMember.objects.filter(project=project, role=Role.OWNER)
    if owners.filter(user=user).exists() and not owners.exclude(user=user).exists():
        raise LastOwner(f"{user} is the last owner of the project {project}; hand it over to somebody first.")


# -- invites -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def create_invite(project: Project, role: str, expires_at: datetime, by=None) -> tuple[ProjectInvite, str]:
    """Return an invite for one person and the secret of its link, which is kept nowhere. Raises NotAllowed."""
    check_may(by, Action.MANAGE, project)
    secret = secrets.token_urlsafe(24)
    invite = project.invites.create(role=Role(role), token_hash=_hash(secret), expires_at=expires_at, created_by=by)
    record("invite.made", invite, by, project.pk, project=project.slug, role=invite.role)
    return invite, secret


@transaction.atomic
def revoke_invite(invite: ProjectInvite, now: datetime, by=None) -> None:
    """Let a link that was not used serve no more. Twice is once. Raises NotAllowed."""
    check_may(by, Action.MANAGE, invite.project)
    if ProjectInvite.objects.filter(pk=invite.pk, used_at=None, revoked_at=None).update(revoked_at=now):
        record("invite.revoked", invite, by, invite.project_id, project=invite.project.slug, role=invite.role)


def find_invite(secret: str) -> ProjectInvite:
    """Return the invite of a link. Raises NotFound."""
    invite = ProjectInvite.objects.select_related("project", "created_by").filter(token_hash=_hash(secret)).first()
    if invite is None:
        raise NotFound("Nothing is behind this link: a part of it is missing, or it was made up.")
    return invite


@transaction.atomic
def accept_invite(invite: ProjectInvite, user, now: datetime) -> ProjectMember:
    """Make `user` a member with the invite's role, once. A member with another role keeps it, and the invite.

    The first owner (`is_first_owners`) becomes superuser, and no other link that was made before serves any more.
    Raises InviteNotUsable.
    """
    Project.objects.select_for_update(no_key=True).get(pk=invite.project_id)  # two first ones come one by one
    member = ProjectMember.objects.filter(project=invite.project, user=user).first()
    if member is not None:
        return member
    is_first = is_first_owners(invite)
    if not ProjectInvite.objects.usable(now).filter(pk=invite.pk).update(used_at=now, used_by=user):
        raise InviteNotUsable("This link was used or revoked, or its time is over; ask for a new one.")
    member = ProjectMember.objects.create(project=invite.project, user=user, role=invite.role)
    _record_member("joined", invite.project, user, user, role=member.role)
    if is_first:
        make_superuser(user)
        ProjectInvite.objects.filter(used_at=None, revoked_at=None).update(revoked_at=now)
    return member


@transaction.atomic
def make_superuser(user) -> None:
    """Let an account do everything in the installation; the operator's to decide."""
    user.is_superuser = user.is_staff = True
    user.save(update_fields=["is_superuser", "is_staff"])
    record("superuser.made", user, None, person=actor_code(user))


def is_first_owners(invite: ProjectInvite) -> bool:
    """Return whether the operator made this link for an owner where nobody owns anything yet.

    Whoever uses it owns the installation, too, with a new account or with one that a provider has brought.
    """
    return invite.created_by_id is None and invite.role == Role.OWNER and is_without_owner()


def is_without_owner() -> bool:
    """Return whether there is neither a superuser nor an owner of a project."""
    superusers = get_user_model().objects.filter(is_superuser=True, is_active=True)
    return not superusers.exists() and not ProjectMember.objects.filter(role=Role.OWNER).exists()


@transaction.atomic
def sign_up(invite: ProjectInvite, form: ModelForm, now: datetime):
    """Return a new account, of a valid form, that has joined. Raises InviteNotUsable."""
    user = form.save()
    accept_invite(invite, user, now)
    return user


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
