"""Projects, members, invitations, API tokens, and rate-limit counters."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse


def person_or_null() -> models.ForeignKey:
    """Return a foreign key to a user. It is null for the operator, workers, and deleted accounts."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )


class Role(models.TextChoices):
    """Role of a member; kgharvest.access.MAY lists the permitted actions."""

    OWNER = "owner"
    RESEARCHER = "researcher"
    ADJUDICATOR = "adjudicator"
    VIEWER = "viewer"


class ProjectQuerySet(models.QuerySet):
    def visible_to(self, user, **condition):
        """Return the user's projects, or all projects for a superuser and for None (the operator running a command).

        condition: lookups that restrict the user's memberships.
        """
        bound_to = getattr(user, "bound_to", None)  # project of the request's token (accounts.tokens)
        projects = self if bound_to is None else self.filter(pk=bound_to)
        if user is None or user.is_superuser:
            return projects
        return self.none() if user.is_anonymous else projects.filter(members__user=user, **condition)

    def with_role(self, user, roles):
        """Return the projects in which the user has one of `roles`, or all projects for a superuser and for None."""
        return self.visible_to(user, members__role__in=roles)


class Project(models.Model):
    """A study: its members share relations, launches, rounds, and reports. slug: part of URLs.

    published_knowledge: harvested tuples that researchers of other projects can also see.
    """

    class Published(models.TextChoices):
        NONE = "none", "No tuples"
        SHIPPED = "shipped", "Tuples of built-in relation sets"
        ALL = "all", "All tuples"

    name = models.CharField(max_length=100, unique=True)
    slug = models.SlugField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    published_knowledge = models.CharField(
        max_length=7, choices=Published, default=Published.SHIPPED, db_default=Published.SHIPPED
    )

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
    """A link that lets one person join. token_hash: SHA-256 of the link's secret, which is not stored.

    used_by: the account that used the link. None before use, and after the account is deleted.
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
        """Return "active", "used", "revoked", or "expired"."""
        if self.used_at:
            return "used"
        if self.revoked_at:
            return "revoked"
        return "active" if now < self.expires_at else "expired"

    def __str__(self) -> str:
        return f"invite {self.pk} to {self.project_id} as {self.role}"


class Attempts(models.Model):
    """Number of attempts in a window that ends at `ends_at`.

    key: name of the limit, followed by an address or account.
    """

    key = models.CharField(max_length=120, unique=True)
    n = models.PositiveIntegerField(default=0)
    ends_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "rate-limit counters"

    def __str__(self) -> str:
        return f"{self.n} of {self.key}"


class ApiTokenQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the user's tokens.

        A request with a token bound to a project sees only tokens bound to the same project.
        """
        tokens = self.filter(user=user)
        bound_to = getattr(user, "bound_to", None)
        return tokens if bound_to is None else tokens.filter(project=bound_to)

    def valid(self, now):
        return self.filter(revoked_at=None, expires_at__gt=now)


class ApiToken(models.Model):
    """An API key with at most the permissions of `user`.

    prefix: first characters, for display. digest: hexadecimal SHA-256 of the secret, which is not stored. project: the
    only project that the key can access; None for all projects of the user. last_used_at: rounded to the minute.
    """

    class Scope(models.TextChoices):
        READ = "read", "read: view everything, change nothing"
        WRITE = "write", "write: everything your role allows"
        JUDGE = "judge", "judge: judge statements only"

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
