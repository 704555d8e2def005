"""Factories of uploaded knowledge graphs."""

from __future__ import annotations

from django.utils import timezone

from kgharvest.accounts.projects import default_project
from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from tests import factories


def make_uploaded_kg(content: str, **fields) -> UploadedKG:
    values = {
        "project": fields.pop("project", None) or default_project(),
        "uploaded_by": fields.pop("uploaded_by", None) or factories.make_user(),
        "uploaded_at": timezone.now(),
        "system": "GPTKB",
        "file_name": "kg.tsv",
        "file_format": "auto",
        **fields,
    }
    return UploadedKG.objects.create(content=content.encode(), **values)
