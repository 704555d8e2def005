"""Links to the import and export of knowledge graphs.

They are registered in PANELS and shown on pages of harvests and reports.
"""

from collections.abc import Iterator

from django.http import HttpRequest
from django.urls import reverse

from evaluation.models import Report
from kgharvest.pages.panels import Panel, button


def kg_import(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield button("Import KG", reverse("knowledge_graphs:kg_upload"))


def judged_kg(request: HttpRequest, report: Report) -> Iterator[Panel]:
    yield button("Export judged KG", reverse("knowledge_graphs:judged_kg", args=[report.pk]))
