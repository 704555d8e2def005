"""What Prolific adds to the page of a panel (PANELS of kgharvest.registries)."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest

from annotation.models import Panel as RecruitingPanel
from annotation.models import PanelEvent
from annotation.recruiting.platforms import Can, platform_of
from kgharvest.pages.panels import Panel


def platform_state(request: HttpRequest, panel: RecruitingPanel) -> Iterator[Panel]:
    """How far the platform and we agree, once it has a study."""
    if Can.RECONCILE not in platform_of(panel).can or not panel.external_id:
        return
    failed = PanelEvent.objects.filter(platform=panel.platform, handled_at=None, n_tries__gt=1).order_by("-pk")
    newest = failed.first()
    context = {"panel": panel, "n_waiting_events": failed.count(), "event_error": newest.error if newest else ""}
    yield Panel("annotation/recruiting/prolific/_panel.html", context)
