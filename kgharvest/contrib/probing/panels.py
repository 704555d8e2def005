"""Link to the probes on the report list (PANELS of kgharvest.registries)."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest
from django.urls import reverse

from kgharvest.pages.panels import Panel, button


def probes(request: HttpRequest, subject: None) -> Iterator[Panel]:
    yield button("Probes", reverse("probing:probe_list"))
