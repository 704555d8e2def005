"""Answers to creating requests, kept so that sending one again creates nothing twice."""

from __future__ import annotations

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models


class KeyedAnswer(models.Model):
    """What was answered to the request that `user` sent with an idempotency key.

    digest: SHA-256 of what was asked, in hexadecimal. status, location, body: of the answer. The row is written in the
    transaction of what was created, so there is one if, and only if, that is there.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    location = models.CharField(max_length=500, blank=True)
    body = models.JSONField(null=True, encoder=DjangoJSONEncoder)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="keyed_answer_user_key_unique")]

    def __str__(self) -> str:
        return self.key
