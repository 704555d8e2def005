"""What people prove who they are with, besides passwords: second factors and accounts at OpenID providers."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class SecondFactor(models.Model):
    """An authenticator app of a local account (TOTP, RFC 6238).

    secret: encrypted with the secret key of the installation. last_step: the 30-second step of the last code that was
    accepted; codes of it and of steps before are refused.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="second_factor")
    secret = models.TextField()
    last_step = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"second factor of {self.user_id}"


class RecoveryCode(models.Model):
    """One code that stands for the authenticator app once. digest: SHA-256 of the code, in hexadecimal digits."""

    second_factor = models.ForeignKey(SecondFactor, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["second_factor", "digest"], name="recovery_code_factor_digest_unique")
        ]

    def __str__(self) -> str:
        return f"recovery code {self.pk}"


class OpenIDIdentity(models.Model):
    """An account at an OpenID provider that logs in as `user`. subject: the provider's `sub`, which never changes."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="openid_identities")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)
    last_login_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "OpenID identity"
        verbose_name_plural = "OpenID identities"
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="openid_identity_issuer_subject_unique")
        ]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class GroupMembership(models.Model):
    """Marks a membership that somebody has by their groups at the OpenID provider, which take it away again."""

    member = models.OneToOneField("kgharvest.ProjectMember", on_delete=models.CASCADE, related_name="by_groups")

    def __str__(self) -> str:
        return f"{self.member} by groups"
