"""Invites in the API."""

from __future__ import annotations

import pytest

from annotation.models import Invite
from kgharvest.models import Role
from tests import factories
from tests.api import JSON, client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def address(db) -> str:
    return f"/api/v1/rounds/{factories.make_round(name='pilot').pk}/invites/"


def test_invites_are_created_listed_and_revoked(address):
    api = client_of()
    headers = {"idempotency-key": "one"}
    created = [api.post(address, {"n": 3, "days": 2}, JSON, headers=headers) for _ in range(2)]

    invites = created[0].json()["invites"]
    assert created[1].json() == created[0].json()
    assert (len(invites), Invite.objects.count()) == (3, 3)
    assert [invite["id"] for invite in api.get(address).json()["results"]] == [row["id"] for row in invites][::-1]
    assert invites[0]["url"].endswith(Invite.objects.get(pk=invites[0]["id"]).get_absolute_url())
    assert api.delete(f"{address}{invites[0]['id']}/").status_code == 204
    statuses = {invite["id"]: invite["status"] for invite in api.get(address).json()["results"]}
    assert statuses == {invites[0]["id"]: "revoked", invites[1]["id"]: "open", invites[2]["id"]: "open"}


@pytest.mark.parametrize("data", [{"n": 0}, {"n": 1001}, {"days": 0}, {"n": "x"}, {"n": 10**30}, {"m": 1}, []])
def test_invalid_invite_requests_are_rejected(address, data):
    assert client_of().post(address, data, JSON).status_code == 400


def test_links_are_shown_to_members_with_edit_permission_only(address):
    other = f"/api/v1/rounds/{factories.make_round(project=factories.make_project()).pk}/invites/"

    assert client_of(factories.make_member(Role.VIEWER)).get(address).status_code == 403
    assert client_of().get(other).status_code == 404
    assert client_of().delete(f"{address}999/").status_code == 404
