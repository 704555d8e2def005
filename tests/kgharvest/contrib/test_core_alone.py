"""The core works without the optional apps (KGHARVEST_CONTRIB=none)."""

from __future__ import annotations

import pytest

from tests.kgharvest.test_settings import run_python

pytestmark = pytest.mark.slow

# Runs in a process of its own, as the installed apps are fixed once Django has started.
GET_PAGES = """
import django
django.setup()
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from evaluation.reports.services import create_report
from tests import factories

assert not [config.name for config in apps.get_app_configs() if config.name.startswith("kgharvest.contrib.")]
call_command("check")
call_command("migrate", verbosity=0)
settings.ALLOWED_HOSTS.append("testserver")
round = factories.make_round(3, name="pilot", judgments_per_task=1)
factories.judge_all(round, ["true", "false", "true"])
report = create_report(round)
client = Client()
client.force_login(get_user_model().objects.create_superuser("ada"))
paths = ["/", "/relations/", "/harvests/", "/harvests/new/", "/rounds/", "/reports/", "/knowledge/", "/api/v1/schema/"]
for path in [*paths, round.get_absolute_url(), report.get_absolute_url()]:
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code)
    content = response.content.decode()
    for link in LINKS:
        assert link not in content, (path, link)
for path in ["/harvests/import/", "/reports/probes/", f"/reports/{report.pk}/kg/", "/api/v1/probes/"]:
    assert client.get(path).status_code == 404, path
"""
LINKS = [
    'href="/harvests/import/',
    "/kg/",
    "import-kg",
    "Judged KG",
    "Import a KG",
    "/reports/probes/",
    "/api/v1/probes/",
]


def test_core_pages_work_without_optional_apps(tmp_path):
    variables = {"KGHARVEST_CONTRIB": "none", "DATABASE_URL": f"sqlite:///{tmp_path / 'core.sqlite3'}", "DEBUG": "1"}

    done = run_python(tmp_path, "-c", f"LINKS = {LINKS!r}\n{GET_PAGES}", **variables)

    assert done.returncode == 0, done.stderr
