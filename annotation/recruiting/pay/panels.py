"""What pay adds to the page of a panel (registries.PANELS)."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest

from annotation.models import Panel
from annotation.recruiting.pay.hourly import hourly_pay
from annotation.recruiting.pay.views import pay_facts
from kgharvest.pages.panels import Panel as PagePanel


def pay_summary(request: HttpRequest, panel: Panel) -> Iterator[PagePanel]:
    """How much is owed, paid and open, what an hour brings, and whether something waits; nothing of a draft."""
    if panel.status != Panel.Status.DRAFT:
        yield PagePanel("annotation/recruiting/pay/_summary.html", pay_facts(panel, hourly_pay(panel)))
