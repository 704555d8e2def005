"""Audit log pages: entries of a project for owners, entries of the installation for superusers."""

from __future__ import annotations

import pytest
from django.utils import timezone

from annotation.invites.erasure import erase_account
from annotation.rounds.services import pause_round, reopen_round
from kgharvest.accounts.models import Role
from kgharvest.accounts.projects import create_project, set_role
from kgharvest.audit import views
from kgharvest.events.chain import head, seal_events
from kgharvest.events.models import Event
from kgharvest.events.recording import actor_code
from kgharvest.models import Project
from tests.factories import make_researcher, make_round, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(client):
    owner = make_researcher("ada")
    create_project("Animals", owner)
    client.force_login(owner)
    return owner


def log_page(client, query: str = "") -> str:
    return client.get(f"/projects/animals/audit/{query}").text


def test_the_page_shows_entries_with_their_users(client, owner):
    create_project("Plants", make_researcher())
    project = Project.objects.get(slug="animals")
    helper = make_user("grace")
    set_role(project, helper, Role.RESEARCHER, owner)

    page = log_page(client)

    assert "created the project animals" in page
    assert "made grace researcher of the project animals" in page
    assert "ada" in page
    assert "plants" not in page
    assert "pending" in page
    seal_events()
    page = log_page(client)
    assert head().hash in page
    assert "pending" not in page


def test_entries_are_filtered_by_action_user_and_date(client, owner):
    round = make_round(1, name="pilot", by=owner, project=Project.objects.get(slug="animals"))
    pause_round(round, owner)
    reopen_round(round)

    assert "paused the round" not in log_page(client, "?action=round.reopened").split("<tbody>")[1]
    by_system = log_page(client, "?who=system").split("<tbody>")[1]
    assert "reopened the round" in by_system
    assert "paused the round" not in by_system
    assert "paused the round" in log_page(client, f"?who={actor_code(owner)}&action=round.paused")
    assert "No matching entries" in log_page(client, "?until=2020-01-01")
    assert "paused the round" in log_page(client, f"?since={timezone.now():%Y-%m-%d}&who=ada")
    assert "paused the round" in log_page(client, f"?until={timezone.now():%Y-%m-%d}")
    assert "paused the round" in log_page(client, "?since=0001-01-01&until=9999-12-31")
    assert "Enter a valid date" in log_page(client, "?since=rubbish")


def test_second_page_continues_after_the_first(client, owner, monkeypatch):
    monkeypatch.setattr(views, "ROWS_PER_PAGE", 3)
    round = make_round(1, by=owner, project=Project.objects.get(slug="animals"))
    for _ in range(3):
        pause_round(round, owner)
        reopen_round(round, owner)

    first = client.get("/projects/animals/audit/").context
    second = client.get(f"/projects/animals/audit/?after={first['page'].after}").context

    shown = [row["entry"].pk for row in [*first["rows"], *second["rows"]]]
    expected = Event.objects.filter(project_id=round.project_id).order_by("-pk")
    assert shown == list(expected.values_list("pk", flat=True)[:6])


def test_only_owners_and_superusers_see_the_log(client, owner):
    project = Project.objects.get(slug="animals")
    researcher, superuser = make_user(), make_user(is_superuser=True)
    seal_events()
    set_role(project, researcher, Role.RESEARCHER, owner)
    client.force_login(researcher)
    assert client.get("/projects/animals/audit/").status_code == 403
    assert client.get("/audit/").status_code == 403
    client.force_login(superuser)
    assert client.get("/projects/animals/audit/").status_code == 200
    assert "started the audit log" in client.get("/audit/").text


def test_erased_account_appears_as_code(client, owner):
    project = Project.objects.get(slug="animals")
    helper = make_user("grace.hopper")
    set_role(project, helper, Role.OWNER, owner)
    round = make_round(1, by=helper, project=Project.objects.get(slug="animals"))
    pause_round(round, helper)
    code = actor_code(helper)
    assert "grace.hopper" in log_page(client)

    erase_account(helper)

    assert "grace.hopper" not in log_page(client)
    assert code in log_page(client)
