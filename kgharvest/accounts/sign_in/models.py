"""Second factors and OpenID identities."""

from django.conf import settings
from django.db import models


class SecondFactor(models.Model):
    """An authenticator app of a local account (TOTP, RFC 6238).

    secret: encrypted with SECRET_KEY. last_step: 30-second step of the last accepted code; only codes of later steps
    are accepted.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="second_factor")
    secret = models.TextField()
    last_step = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"second factor of {self.user_id}"


class RecoveryCode(models.Model):
    """A single-use replacement for a code of the app. digest: hexadecimal SHA-256 of the code."""

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
    """An identity at an OpenID provider that logs in as `user`. subject: the provider's immutable `sub`."""

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
    """Marks a membership derived from OpenID groups. The membership is removed when the user leaves the group."""

    member = models.OneToOneField("kgharvest.ProjectMember", on_delete=models.CASCADE, related_name="by_groups")

    def __str__(self) -> str:
        return f"{self.member} by groups"
