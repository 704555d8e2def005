"""Projects with the people in them, links that invite to one; tokens for programs; how often something was tried."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse


def person_or_null() -> models.ForeignKey:
    """Return a column for a person: null for the operator, for workers, and after the account is deleted."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )


class Role(models.TextChoices):
    """What somebody is in a project; what each may do is in kgharvest.access.MAY."""

    OWNER = "owner"
    RESEARCHER = "researcher"
    ADJUDICATOR = "adjudicator"
    VIEWER = "viewer"


class ProjectQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the user's projects; all of them for a superuser, and for None, the operator at a command."""
        reached = self.reached_by(user)
        if user is None or user.is_superuser:
            return reached
        return self.none() if user.is_anonymous else reached.filter(members__user=user)

    def reached_by(self, user):
        """Leave out what the token of this request is not for, if it is bound to a project (accounts.tokens)."""
        bound_to = getattr(user, "bound_to", None)
        return self if bound_to is None else self.filter(pk=bound_to)

    def with_role(self, user, roles):
        """Return the projects in which the user has one of `roles`; for a superuser and for None all of them."""
        reached = self.reached_by(user)
        if user is None or user.is_superuser:
            return reached
        return self.none() if user.is_anonymous else reached.filter(members__user=user, members__role__in=roles)


class Project(models.Model):
    """What people work on together: its members share relations, launches, rounds and reports. slug: in addresses."""

    name = models.CharField(max_length=100, unique=True)
    slug = models.SlugField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("kgharvest:project", args=[self.slug])


class ProjectMember(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role)

    class Meta:
        ordering = ["user__username"]
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="project_member_unique"),
            models.CheckConstraint(
                condition=Q(role__in=["owner", "researcher", "adjudicator", "viewer"]), name="project_member_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} ({self.role}) in {self.project}"


class ProjectInviteQuerySet(models.QuerySet):
    def usable(self, now):
        return self.filter(used_at=None, revoked_at=None, expires_at__gt=now)


class ProjectInvite(models.Model):
    """A link by which one person becomes a member. token_hash: SHA-256 of the link's secret, which is not stored.

    used_by: None until it is used, and once that account is gone.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invites")
    role = models.CharField(max_length=12, choices=Role)
    token_hash = models.CharField(max_length=64, unique=True)
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = person_or_null()
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ProjectInviteQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(role__in=["owner", "researcher", "adjudicator", "viewer"]), name="project_invite_role_known"
            ),
        ]

    def status(self, now) -> str:
        """Return "open", "used", "revoked" or "over"."""
        if self.used_at:
            return "used"
        if self.revoked_at:
            return "revoked"
        return "open" if now < self.expires_at else "over"

    def __str__(self) -> str:
        return f"invite {self.pk} to {self.project_id} as {self.role}"


class Attempts(models.Model):
    """How many attempts `key` stands for, of one kind and by one address or account, until `ends_at`."""

    key = models.CharField(max_length=120, unique=True)
    n = models.PositiveIntegerField(default=0)
    ends_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "attempts"

    def __str__(self) -> str:
        return f"{self.n} of {self.key}"


class ApiTokenQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the user's tokens; by a token that is bound to a project, those that are bound to it as well."""
        own = self.filter(user=user)
        bound_to = getattr(user, "bound_to", None)
        return own if bound_to is None else own.filter(project=bound_to)

    def valid(self, now):
        """Return tokens that open a door: neither revoked nor expired, of users who are active."""
        return self.filter(revoked_at=None, expires_at__gt=now, user__is_active=True)


class ApiToken(models.Model):
    """A key to the API for a program of `user`. It never allows more than the user may.

    prefix: its first characters, by which people tell tokens apart. digest: SHA-256 of the whole of it, in hexadecimal;
    the token itself is kept nowhere. project: the only one that it reaches, None for all of the user's. last_used_at:
    to the minute.
    """

    class Scope(models.TextChoices):
        READ = "read", "read: look at everything, change nothing"
        WRITE = "write", "write: all that your role allows"
        JUDGE = "judge", "judge: judge statements, nothing else"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=5, choices=Scope)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="api_tokens")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=["read", "write", "judge"]), name="api_token_scope_known"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
