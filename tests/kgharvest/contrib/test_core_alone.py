"""The core works without the optional apps (KGHARVEST_CONTRIB=none)."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests.kgharvest.test_settings import run_python

pytestmark = pytest.mark.skipif(settings.CONTRIB_APPS != ["none"], reason="run by ./run core-test")

# Runs in a subprocess, because Django fixes the installed apps at startup.
GET_PAGES = """
from datetime import timedelta
import django
django.setup()
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.test.utils import setup_test_environment
from django.utils import timezone
from annotation.invites.erasure import erase_account, erase_annotator
from annotation.invites.services import make_invites
from annotation.models import Annotator
from annotation.rounds.services import create_draft, delete_draft
from evaluation.reports.files import FILES, write_report
from evaluation.reports.services import create_report
from tests import factories

assert not [config.name for config in apps.get_app_configs() if config.name.startswith("kgharvest.contrib.")]
call_command("check")
call_command("migrate", verbosity=0)
setup_test_environment()
round = factories.make_round(3, name="pilot", judgments_per_task=1)
factories.judge_all(round, ["true", "false", "true"])
report = create_report(round)
# A report that was created while `publishing` was installed
planned = create_report(round)
planned.document["preregistration"] = {"version": 1, "deviations": []}
planned.save()
for name in FILES:
    assert write_report(planned, name), name
harvest = factories.make_harvest([("a", "b"), ("c", "d"), ("e", "f")])
draft, deleted = (
    create_draft({"name": name, "cells": [{"job": harvest.pk, "n": None}]}, None, round.project)
    for name in ("draft", "deleted")
)
delete_draft(deleted)
client = Client()
client.force_login(get_user_model().objects.create_superuser("ada"))
paths = ["/", "/relations/", "/harvests/", "/harvests/new/", "/rounds/", "/reports/", "/knowledge/", "/api/v1/schema/"]
for path in [*paths, *(row.get_absolute_url() for row in (round, draft, report, planned))]:
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code)
    content = response.content.decode()
    for link in LINKS:
        assert link not in content, (path, link)
absent = ["/harvests/import/", "/reports/probes/", f"/reports/{report.pk}/kg/", "/api/v1/probes/"]
absent += ["/reports/text-tasks/", "/api/v1/text-tasks/"]
absent += [f"/reports/{report.pk}/pack/", f"/reports/{report.pk}/paper/statements/"]
absent += [f"{draft.get_absolute_url()}preregister/", "/recruiting/prolific/events/"]
absent += [f"/api/v1/reports/{report.pk}/packs/", f"/api/v1/rounds/{draft.pk}/preregistrations/"]
absent += [f"{round.get_absolute_url()}panels/", f"/api/v1/rounds/{round.pk}/panels/", f"/judge/{round.pk}/done/"]
for path in absent:
    assert client.get(path).status_code == 404, path

# Guests join by invite, fail or pass the comprehension check, judge, and withdraw.
check = "Is a rare case enough?\\n- yes\\n+ no"
asked = factories.make_round(2, name="asked", judgments_per_task=3, check_questions=check)
invites = make_invites(asked, 2, timezone.now() + timedelta(days=1))


def page_of(guest, path, posted=None):
    response = guest.get(path, follow=True) if posted is None else guest.post(path, posted, follow=True)
    assert response.status_code == 200, (path, response.status_code)
    return response


def join_and_answer(invite, answers):
    guest = Client()
    page_of(guest, invite.get_absolute_url(), {})
    for answer in answers:
        page_of(guest, f"/judge/{asked.pk}/questions/", {"check-1": answer, "stage": "check"})
    return guest


passed = join_and_answer(invites[0], ["no"])
page = page_of(passed, f"/judge/{asked.pk}/")
statement = page.context["statements"][0]
answer = {"task": statement["task"], "label": "true", "client_uuid": "7e9c0000-0000-4000-8000-000000000001"}
page_of(passed, f"/judge/{asked.pk}/", answer)
assert Annotator.objects.get(invite=invites[0]).n_judged == 1
failed = join_and_answer(invites[1], ["yes", "yes"])
templates = [used.name for used in page_of(failed, f"/judge/{asked.pk}/").templates]
assert "annotation/questionnaire/failed.html" in templates
withdrawn = page_of(passed, f"/judge/{asked.pk}/withdraw/", {})
assert withdrawn.context["reasons"] == [] and not withdrawn.context["has_place"]
assert erase_annotator(Annotator.objects.get(invite=invites[1])) == []
[annotator] = factories.make_annotators(asked, 1)
assert erase_account(annotator.user) == 1
assert Annotator.objects.filter(round=asked, erased_at=None).count() == 0
"""
LINKS = [
    'href="/harvests/import/',
    "/kg/",
    "import-kg",
    "Export judged KG",
    "Import KG",
    "/reports/probes/",
    "/api/v1/probes/",
    "/reports/text-tasks/",
    "/api/v1/text-tasks/",
    "Recruit people",
    "/panels/",
    "/pack/",
    "Replication package",
    "Paper metadata",
    "/preregister/",
    "/preregistrations/",
]


def test_core_pages_work_without_optional_apps(tmp_path):
    variables = {"KGHARVEST_CONTRIB": "none", "DATABASE_URL": f"sqlite:///{tmp_path / 'core.sqlite3'}", "DEBUG": "1"}

    process = run_python(tmp_path, "-c", f"LINKS = {LINKS!r}\n{GET_PAGES}", **variables)

    assert process.returncode == 0, process.stderr
