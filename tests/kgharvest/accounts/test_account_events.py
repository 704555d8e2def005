"""Events about accounts and downloads, from every writer: admin pages, commands, and logins."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.urls import reverse

from kgharvest.accounts.projects import default_project
from kgharvest.audit.verification import Verification
from kgharvest.events.chain import seal_all
from kgharvest.events.models import Event
from kgharvest.events.recording import actor_code
from tests.factories import make_member, make_round, make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery staple"


@pytest.fixture
def superuser(client):
    superuser = make_user("root", is_superuser=True, is_staff=True)
    client.force_login(superuser)
    Event.objects.all().delete()
    return superuser


def events(action: str) -> list[tuple[str, dict]]:
    """Return the actor and the facts of the events with this action, oldest first."""
    return [(event.actor, event.known_facts) for event in Event.objects.filter(action=action)]


def test_superuser_made_and_password_set_on_admin_pages_are_recorded(client, superuser):
    person = make_user("grace")
    by, code = actor_code(superuser), actor_code(person)
    form = {"username": "grace", "is_superuser": "on", "is_active": "on", "is_staff": "on"}
    form |= {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    client.post(f"/admin/auth/user/{person.pk}/change/", form)
    passwords = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    client.post(f"/admin/auth/user/{person.pk}/password/", passwords)

    person.refresh_from_db()
    assert person.is_superuser
    assert person.check_password(PASSWORD)
    assert events("account.set") == [
        (by, {"person": code, "what": "is_superuser, is_staff"}),
        (by, {"person": code, "what": "password"}),
    ]


def test_account_made_and_deleted_on_admin_pages_is_recorded(client, superuser):
    passwords = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    client.post("/admin/auth/user/add/", {"username": "eve", **passwords})
    eve = get_user_model().objects.get(username="eve")
    code = actor_code(eve)
    client.post(f"/admin/auth/user/{eve.pk}/delete/", {"post": "yes"})

    assert not get_user_model().objects.filter(username="eve").exists()
    by = actor_code(superuser)
    assert events("account.created")[-1] == (by, {"person": code})
    assert events("account.deleted") == [(by, {"person": code})]
    seal_all()
    assert list(Verification()) == []


def test_accounts_of_commands_are_recorded():
    call_command("createsuperuser", username="ada", email="ada@example.org", interactive=False)

    code = actor_code(get_user_model().objects.get())
    assert events("account.created") == [("", {"person": code})]


def test_login_is_recorded_once_and_changes_no_rights(client):
    person = make_user("ada")
    person.set_password(PASSWORD)
    person.save()
    client.post(reverse("login"), {"username": "ada", "password": PASSWORD})

    assert client.session["_auth_user_id"] == str(person.pk)
    assert events("account.logged_in") == [(actor_code(person), {})]
    assert len(events("account.set")) == 1


def test_download_is_recorded_once_with_its_project(client):
    owner = make_member("owner", default_project())
    round = make_round(2, name="pilot", by=owner)
    client.force_login(owner)
    assert client.get(reverse("annotation:round_export", args=[round.path, "csv"])).status_code == 200

    [event] = Event.objects.filter(action="export.made")
    assert (event.actor, event.project_id) == (actor_code(owner), round.project_id)
    assert event.known_facts["file"] == "pilot-judgments.csv"
    client.get("/rounds/")
    assert Event.objects.filter(action="export.made").count() == 1
