"""Projects, members, and invites in the API."""

from __future__ import annotations

import pytest

from kgharvest.models import Project, ProjectMember
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

PROJECTS = "/api/v1/projects/"


def test_the_creator_owns_the_project():
    api = client_of()

    made = api.post(PROJECTS, {"name": "Animal facts"}, JSON)
    renamed = api.patch(made.headers["Location"], {"name": "Animals"}, JSON)

    assert (made.status_code, made.json()["slug"], made.json()["role"]) == (201, "animal-facts", "owner")
    assert renamed.json() == made.json() | {"name": "Animals"}
    assert error_of(api.post(PROJECTS, {"name": "Animals"}, JSON))["code"] == "NameTaken"


def test_other_projects_return_404():
    other, api = factories.make_project(), client_of()

    assert other.slug not in [row["slug"] for row in api.get(PROJECTS).json()["results"]]
    for part in ("", "members/", "invites/", "members/ann/"):
        assert api.get(f"{PROJECTS}{other.slug}/{part}").status_code == 404


def test_owners_change_roles_and_remove_members():
    project = factories.make_project()
    api = client_of(factories.make_member("owner", project, "olga"))
    factories.make_member("viewer", project, "ann")
    ann = f"{PROJECTS}{project.slug}/members/ann/"

    assert api.get(f"{PROJECTS}{project.slug}/members/").json()["results"][::-1] == [
        {"user": "olga", "role": "owner"},
        {"user": "ann", "role": "viewer"},
    ]
    assert api.patch(ann, {"role": "adjudicator"}, JSON).json() == {"user": "ann", "role": "adjudicator"}
    assert api.delete(ann).status_code == 204
    assert api.get(ann).status_code == 404
    assert error_of(api.delete(f"{PROJECTS}{project.slug}/members/olga/"))["code"] == "LastOwner"


def test_other_roles_cannot_manage_members():
    project = factories.make_project()
    factories.make_member("owner", project, "olga")
    api = client_of(factories.make_member("researcher", project, "rosa"))
    olga = f"{PROJECTS}{project.slug}/members/olga/"

    refused = [api.patch(olga, {"role": "viewer"}, JSON), api.delete(olga)]
    refused += [api.patch(f"{PROJECTS}{project.slug}/", {"name": "Mine"}, JSON)]
    refused += [api.get(f"{PROJECTS}{project.slug}/invites/")]
    refused += [api.post(f"{PROJECTS}{project.slug}/invites/", {"role": "owner"}, JSON)]

    assert [error_of(response)["code"] for response in refused] == ["NotAllowed"] * 5
    assert ProjectMember.objects.get(user__username="olga").role == "owner"


def test_invite_link_works_once_and_is_shown_once(client):
    project = factories.make_project()
    api = client_of(factories.make_member("owner", project))
    invites = f"{PROJECTS}{project.slug}/invites/"

    made = api.post(invites, {"role": "researcher", "days": 2}, JSON).json()
    client.force_login(factories.make_user("ann"))
    client.post(made["link"])

    [listed] = api.get(invites).json()["results"]
    assert listed == {name: value for name, value in made.items() if name != "link"} | {
        "used_by": "ann",
        "used_at": listed["used_at"],
    }
    assert Project.objects.get(members__user__username="ann") == project


def test_a_revoked_invite_is_rejected(client):
    project = factories.make_project()
    api = client_of(factories.make_member("owner", project))
    made = api.post(f"{PROJECTS}{project.slug}/invites/", {"role": "owner"}, JSON)

    assert api.delete(made.headers["Location"]).status_code == 204
    client.force_login(factories.make_user("ann"))
    client.post(made.json()["link"])

    assert not ProjectMember.objects.filter(user__username="ann").exists()
