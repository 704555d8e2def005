"""Audit log in the API."""

from __future__ import annotations

import pytest
from django.utils import timezone

from kgharvest.accounts.projects import set_role
from kgharvest.events.chain import seal_events
from kgharvest.models import Event, Role
from tests import factories
from tests.api import client_of

pytestmark = pytest.mark.django_db


def test_owners_read_project_log_and_superusers_full_log():
    project, other = factories.make_project("Birds"), factories.make_project()
    owner, ann = factories.make_member(Role.OWNER, project, "ada"), factories.make_user("ann")
    set_role(project, ann, Role.VIEWER, owner)
    address = "/api/v1/projects/birds/audit/"
    assert client_of(owner, "read").get(address).json()["results"] == []  # nothing is sealed yet
    seal_events()

    [newest, *_] = client_of(owner, "read").get(address).json()["results"]
    stored = Event.objects.get(number=newest["number"])
    assert (newest["who"], newest["action"], newest["project"]) == ("ada", "member.role_set", "birds")
    assert newest["facts"]["role"] == "viewer"
    assert (newest["hash"], newest["previous_hash"]) == (stored.hash, stored.previous_hash)
    whole = client_of(factories.make_user(is_superuser=True)).get("/api/v1/audit/", {"limit": 500}).json()["results"]
    assert {row["project"] for row in whole} >= {"birds", other.slug}
    assert [row["number"] for row in whole] == sorted((row["number"] for row in whole), reverse=True)


def test_entries_are_filtered_by_action_user_and_date():
    project = factories.make_project("Birds")
    owner = factories.make_member(Role.OWNER, project, "ada")
    for name in ("ann", "bob"):
        set_role(project, factories.make_user(name), Role.VIEWER, owner)
    seal_events()
    api, address = client_of(owner), "/api/v1/projects/birds/audit/"
    today = timezone.now().date().isoformat()

    def n(**filters: str) -> int:
        return len(api.get(address, filters).json()["results"])

    assert n(action="member.role_set", who="ada", since=today, until=today) == 2
    assert n(who="system") == 1  # the creation of the project
    assert n(who="nobody") == n(until="2020-01-01") == 0
    assert api.get(address, {"action": "made-up"}).status_code == 400
