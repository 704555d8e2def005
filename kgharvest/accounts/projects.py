"""Services for projects, members, and invitations."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.text import slugify

from kgharvest.access import MAY, Action, NotAllowed, bound_to, check_may, check_may_anywhere
from kgharvest.audit.tables import AuditedTable, sha256
from kgharvest.errors import DomainError, NotFound
from kgharvest.events.models import Event
from kgharvest.events.recording import actor_code, record
from kgharvest.models import Project, ProjectInvite, ProjectMember, Role
from kgharvest.names import check_name

DEFAULT = "default"  # slug of the project of a new installation
LONGEST_NAME = 100  # characters
MOST_DAYS = 90  # maximum validity of an invitation
MEMBERS = AuditedTable(ProjectMember, "project_id", "user_id", "role", is_mutable=True)
NOT_USABLE = "This link was already used, was revoked, or has expired. Ask for a new link."


class LastOwner(DomainError):
    """The operation would leave a project without an owner."""


class InviteNotUsable(DomainError):
    """The invitation was used or revoked, or has expired."""


# Choosing a project


def find_project(name: str, user=None) -> Project:
    """Return the project with this slug or name that `user` can see. Raises NotFound."""
    projects = Project.objects.visible_to(user)
    project = projects.filter(slug=name).first() or projects.filter(name=name).first()
    if project is None:
        slugs = ", ".join(projects.values_list("slug", flat=True)[:10]) or "none"
        raise NotFound(f"Project {name!r:.60} not found. Existing projects: {slugs}.")
    return project


def project_for(by, project: Project | str | None = None) -> Project:
    """Return the project for a new object: `project`, or the only project in which `by` may work.

    If there are no projects, the default project is created and returned to the operator (None) and superusers. Raises
    NotAllowed, NotFound, and ProjectNotNamed with the slugs to choose from.
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
        raise DomainError("ProjectNotNamed", f"Several projects exist. Choose one (--project): {names}.")
    if by is None or by.is_superuser:
        return default_project()
    raise DomainError(
        "ProjectNotNamed", "You cannot work in any project. Create one, or ask a project owner for a role."
    )


def default_project() -> Project:
    """Return the project of a new installation; create it if it is missing."""
    return Project.objects.get_or_create(slug=DEFAULT, defaults={"name": "Default"})[0]


# Projects


@transaction.atomic
def create_project(name: str, by=None) -> Project:
    """Create a project. `by` becomes its owner. If `by` is None (the operator), the project has no owner.

    Raises BadName, NameTaken, or NotAllowed (if `by` cannot work in any project or uses a token bound to a project).
    """
    if by is not None:
        check_may_anywhere(by, Action.WORK)
        if bound_to(by) is not None:
            raise NotAllowed("This token is bound to one project. Use an unbound token to create another project.")
    name = name.strip()
    check_name(name, LONGEST_NAME, "project")
    stem = slugify(name)[:90] or "project"
    existing_slugs = set(Project.objects.filter(slug__startswith=stem).values_list("slug", flat=True)) | {"new"}
    slugs = (stem, *(f"{stem}-{n}" for n in range(2, len(existing_slugs) + 3)))
    with _unique_name("A project", name):
        project = Project.objects.create(name=name, slug=next(slug for slug in slugs if slug not in existing_slugs))
    if by is not None:
        project.members.create(user=by, role=Role.OWNER)
    record("project.made", project, by, project.pk, list(project.members.all()), project=project.slug)
    return project


@transaction.atomic
def rename_project(project: Project, name: str, by=None) -> None:
    """Rename a project; its URLs do not change. Raises NotAllowed, BadName, or NameTaken."""
    check_may(by, Action.MANAGE, project)
    name = name.strip()
    check_name(name, LONGEST_NAME, "project")
    with _unique_name("A project", name):
        Project.objects.filter(pk=project.pk).update(name=name)
    project.name = name


@transaction.atomic
def publish_knowledge(project: Project, published: str, by=None) -> None:
    """Set which harvested tuples researchers of other projects can see (Project.Published). Raises NotAllowed."""
    check_may(by, Action.MANAGE, project)
    project.published_knowledge = Project.Published(published)
    other = Project.objects.filter(pk=project.pk).exclude(published_knowledge=published)
    if other.update(published_knowledge=published):
        record("project.knowledge_published", project, by, project.pk, project=project.slug, published=published)


@contextmanager
def _unique_name(noun: str, name: str) -> Iterator[None]:
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise DomainError("NameTaken", f"{noun} named {name!r:.60} already exists. Choose another name.") from None


# Members


@transaction.atomic
def set_role(project: Project, user, role: str, by=None) -> ProjectMember:
    """Add a member, or change the role of a member. Raises NotAllowed or LastOwner."""
    _lock(project, by)
    if role != Role.OWNER:
        _check_other_owner(project, user)
    member, _ = ProjectMember.objects.update_or_create(project=project, user=user, defaults={"role": Role(role)})
    _record_member("role_set", project, user, by, role=member.role)
    return member


@transaction.atomic
def remove_member(project: Project, user, by=None) -> None:
    """Remove a member. Members may remove themselves. Raises NotAllowed, LastOwner, or NotFound."""
    if by != user:
        check_may(by, Action.MANAGE, project)
    _lock(project, None)
    _check_other_owner(project, user)
    members = ProjectMember.objects.filter(project=project, user=user)
    if not (removed := list(members)):
        raise NotFound(f"{user} is not a member of the project {project}.")
    _record_member("removed", project, user, by, deleted=removed)
    members.delete()


@transaction.atomic
def hand_over(project: Project, user, by) -> None:
    """Transfer ownership from `by` to another member. `by` becomes a researcher. Raises NotAllowed or NotFound."""
    _lock(project, by)
    if user == by or not ProjectMember.objects.filter(project=project, user=user).update(role=Role.OWNER):
        raise NotFound(f"{user} cannot become the owner of the project {project}. Choose another member.")
    ProjectMember.objects.filter(project=project, user=by).update(role=Role.RESEARCHER)
    _record_member("handed_over", project, user, by)


def _record_member(verb: str, project: Project, user, by, deleted: Sequence[ProjectMember] = (), **facts: str) -> None:
    rows = [] if deleted else list(ProjectMember.objects.filter(project=project, user__in=[user, by or user]))
    facts |= {"project": project.slug, "person": actor_code(user)}
    record(f"member.{verb}", user, by, project.pk, rows, deleted=deleted, **facts)


def _lock(project: Project, by) -> None:
    """Serialize membership changes, so that two owners who leave simultaneously cannot both leave."""
    check_may(by, Action.MANAGE, project)
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)


def _check_other_owner(project: Project, user) -> None:
    owners = ProjectMember.objects.filter(project=project, role=Role.OWNER)
    if owners.filter(user=user).exists() and not owners.exclude(user=user).exists():
        raise LastOwner(f"{user} is the last owner of the project {project}. Transfer ownership first.")


# Accounts of annotators


@transaction.atomic
def create_annotator(project: Project, username: str, email: str = "", by=None):
    """Create and return an account without a role, which can only judge. Existing accounts are never changed.

    The account has no password until its owner sets one. Raises NotAllowed, NameTaken, or BadAccount.
    """
    check_may(by, Action.MANAGE, project)
    User = get_user_model()
    user = User(username=User.normalize_username(username.strip()), email=email.strip())
    user.set_unusable_password()
    try:
        user.full_clean(validate_unique=False)
    except ValidationError as error:
        raise DomainError("BadAccount", " ".join(error.messages)) from None
    with _unique_name("An account", user.username):
        if User.objects.filter(username__iexact=user.username).exists():
            raise IntegrityError("The username differs only in case from another username.")
        user.save()
    record("account.made", user, by, project.pk, project=project.slug, person=actor_code(user))
    return user


def annotators_without_password(project: Project) -> QuerySet:
    """Return the accounts that owners of the project created for annotators and that nobody has used."""
    made = Event.objects.filter(action="account.made", project_id=project.pk).values_list("subject_id", flat=True)
    unused = get_user_model().objects.filter(password__startswith=UNUSABLE_PASSWORD_PREFIX, last_login=None)
    return unused.filter(pk__in=list(map(int, made)), memberships=None, is_active=True, is_superuser=False)


@transaction.atomic
def renew_annotator(project: Project, user, by=None):
    """Invalidate the link of an account, so that the caller can create a new link. Raises NotAllowed or NotFound."""
    check_may(by, Action.MANAGE, project)
    locked = annotators_without_password(project).select_for_update().filter(pk=user.pk).first()
    if locked is None:
        raise NotFound("This account already has a password, or was not created in this project.")
    locked.set_unusable_password()
    locked.save(update_fields=["password"])
    record("account.link_renewed", locked, by, project.pk, project=project.slug, person=actor_code(locked))
    return locked


# Invitations


@transaction.atomic
def create_invite(project: Project, role: str, expires_at: datetime, by=None) -> tuple[ProjectInvite, str]:
    """Return an invitation for one person and the secret of its link, which is not stored. Raises NotAllowed."""
    check_may(by, Action.MANAGE, project)
    secret = secrets.token_urlsafe(24)
    invite = project.invites.create(role=Role(role), token_hash=sha256(secret), expires_at=expires_at, created_by=by)
    record("invite.made", invite, by, project.pk, project=project.slug, role=invite.role)
    return invite, secret


@transaction.atomic
def revoke_invite(invite: ProjectInvite, now: datetime, by=None) -> None:
    """Revoke an unused invitation; idempotent. Raises NotAllowed."""
    check_may(by, Action.MANAGE, invite.project)
    if ProjectInvite.objects.filter(pk=invite.pk, used_at=None, revoked_at=None).update(revoked_at=now):
        record("invite.revoked", invite, by, invite.project_id, project=invite.project.slug, role=invite.role)


def find_invite(secret: str) -> ProjectInvite:
    """Return the invitation of a link. Raises NotFound."""
    invite = ProjectInvite.objects.select_related("project", "created_by").filter(token_hash=sha256(secret)).first()
    if invite is None:
        raise NotFound("No invitation has this link. Check that you copied the complete link.")
    return invite


@transaction.atomic
def accept_invite(invite: ProjectInvite, user, now: datetime) -> ProjectMember:
    """Add `user` with the invitation's role. Existing members keep their role and do not use up the invitation.

    The first owner (`is_first_owners`) becomes a superuser, and all other unused links are revoked.
    Raises InviteNotUsable.
    """
    # Lock the project, so that only one of two simultaneous users can become the first owner.
    Project.objects.select_for_update(no_key=True).get(pk=invite.project_id)
    member = ProjectMember.objects.filter(project=invite.project, user=user).first()
    if member is not None:
        return member
    is_first = is_first_owners(invite)
    if not ProjectInvite.objects.usable(now).filter(pk=invite.pk).update(used_at=now, used_by=user):
        raise InviteNotUsable(NOT_USABLE)
    member = ProjectMember.objects.create(project=invite.project, user=user, role=invite.role)
    _record_member("joined", invite.project, user, user, role=member.role)
    if is_first:
        make_superuser(user)
        ProjectInvite.objects.filter(used_at=None, revoked_at=None).update(revoked_at=now)
    return member


@transaction.atomic
def make_superuser(user) -> None:
    """Give an account all permissions in the installation. For the operator only."""
    user.is_superuser = user.is_staff = True
    user.save(update_fields=["is_superuser", "is_staff"])
    record("superuser.made", user, None, person=actor_code(user))


def is_first_owners(invite: ProjectInvite) -> bool:
    """Return True if the operator created this link for an owner and the installation has no owner yet.

    The person who uses the link, with a new account or an OpenID account, also owns the installation.
    """
    return invite.created_by_id is None and invite.role == Role.OWNER and is_without_owner()


def is_without_owner() -> bool:
    """Return whether no active superuser and no project owner exists."""
    superusers = get_user_model().objects.filter(is_superuser=True, is_active=True)
    return not superusers.exists() and not ProjectMember.objects.filter(role=Role.OWNER).exists()
