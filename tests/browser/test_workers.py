"""Workers page in Chromium: accessible and refreshed automatically."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from kgharvest.models import Worker
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (360, "light")])
def test_workers_page_is_accessible_and_shows_leaving_worker(visit, admin_user, width, scheme):
    now = timezone.now()
    worker = factories.make_worker(
        now, "celery@here", devices=["cpu, 2 cores"], language_models=["bert on cpu, float32"]
    )
    lease = {"owner_token": uuid4(), "lease_expires_at": now + timedelta(hours=1), "started_at": now}
    factories.make_harvest_job("running", worker=worker, stage="search", done=3, total=9, **lease)
    visitor = visit(admin_user, width=width, color_scheme=scheme)
    visitor.page.goto("/workers/")

    assert visitor.axe_violations() == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == width
    Worker.objects.update(left_at=now)
    visitor.page.get_by_text("left", exact=True).wait_for()
