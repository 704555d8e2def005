"""What platforms told us, as they sent it: stored before it is answered, handled by a job."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from kgharvest.contrib.recruiting.panels.identifiers import decrypted
from kgharvest.contrib.recruiting.panels.models import Platform


class PanelEventQuerySet(models.QuerySet):
    def waiting(self):
        return self.filter(handled_at=None)


class PanelEvent(models.Model):
    """One message of a platform. Its body holds participant ids, so it is encrypted.

    event_id: of the platform; the same one is stored once. event_type: as the platform names it. next_try_at: of its
    handling. error: of the last try, in a sentence without ids. outcome: what came of it, in a word.
    """

    platform = models.CharField(max_length=8, choices=Platform)
    event_id = models.CharField(max_length=200)
    event_type = models.CharField(max_length=100, blank=True)
    body = models.TextField()
    received_at = models.DateTimeField(default=timezone.now)
    handled_at = models.DateTimeField(null=True, blank=True)
    n_tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(default=timezone.now)
    outcome = models.CharField(max_length=30, blank=True)
    error = models.CharField(max_length=300, blank=True)

    objects = PanelEventQuerySet.as_manager()

    class Meta:
        db_table = "annotation_panelevent"
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["platform", "event_id"], name="panel_event_id_unique")]
        indexes = [models.Index(fields=["next_try_at"], condition=Q(handled_at=None), name="panel_event_due")]

    def __str__(self) -> str:
        return f"{self.platform} event {self.pk}"

    @property
    def text(self) -> str:
        """The body as it came. Raises Unreadable."""
        return decrypted(self.body)
