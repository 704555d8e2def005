"""Invites: single-use links for joining a round without an account."""

import secrets

from django.db import models
from django.db.models import Q
from django.urls import reverse

from annotation.judging.models import Annotator
from annotation.rounds.models import Round
from kgharvest.accounts.models import person_or_null


def new_invite_token() -> str:
    return secrets.token_urlsafe(16)


class InviteQuerySet(models.QuerySet):
    def unused(self):
        return self.filter(annotator=None, revoked_at=None)

    def usable(self, now):
        return self.unused().filter(expires_at__gt=now)


class Invite(models.Model):
    """Single-use invitation to a round. annotator: the annotator who joined with the invitation."""

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="invites")
    token = models.CharField(max_length=32, unique=True, default=new_invite_token)
    annotator = models.OneToOneField(Annotator, on_delete=models.CASCADE, null=True, blank=True, related_name="invite")
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = InviteQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(annotator=None, used_at=None) | Q(annotator__isnull=False, used_at__isnull=False),
                name="invite_used_by_somebody",
            ),
            models.CheckConstraint(
                condition=Q(revoked_at=None) | Q(annotator=None), name="invite_revoked_before_use_only"
            ),
        ]

    def __str__(self) -> str:
        return f"invite {self.pk} to {self.round_id}"

    def status(self, now) -> str:
        """Return "used", "revoked", "expired", or "open"."""
        if self.annotator_id is not None:
            return "used"
        if self.revoked_at is not None:
            return "revoked"
        return "open" if self.expires_at > now else "expired"

    def get_absolute_url(self) -> str:
        return reverse("annotation:invite", args=[self.token])
