"""Uploaded KG files whose relations are not mapped yet."""

from datetime import timedelta

from django.conf import settings
from django.db import models

from kgharvest.access import visible
from kgharvest.accounts.models import Project

LIFETIME = timedelta(days=1)


class UploadedKGQuerySet(models.QuerySet):
    visible_to = visible

    def expired(self, now):
        return self.filter(uploaded_at__lt=now - LIFETIME)


class UploadedKG(models.Model):
    """An uploaded KG file without a mapping. It is deleted after its import, or after a day.

    system: name of the LM to create.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    uploaded_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    uploaded_at = models.DateTimeField()
    system = models.CharField(max_length=500)
    file_name = models.CharField(max_length=255)
    file_format = models.CharField(max_length=10)
    content = models.BinaryField()
    labels = models.BinaryField(null=True)

    objects = UploadedKGQuerySet.as_manager()

    class Meta:
        db_table = "kgharvest_uploadedkg"  # created when the model belonged to the app `kgharvest`

    def __str__(self) -> str:
        return self.file_name
