"""Stored responses for idempotency keys."""

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models


class KeyedAnswer(models.Model):
    """Response to a request of `user` with an idempotency key.

    digest: hexadecimal SHA-256 of the request. status, location, body: status, `Location` header, and body of the
    response. The row is written in the transaction of the created object, so both exist or neither does.
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
