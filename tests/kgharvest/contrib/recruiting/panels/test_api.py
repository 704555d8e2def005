"""API of panels."""

import pytest
from django.utils import timezone

from kgharvest.accounts.tokens import create_token
from kgharvest.client import Client
from kgharvest.contrib.recruiting.models import Panel
from kgharvest.contrib.recruiting.panels.services import enter
from kgharvest.models import Role
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def address(db) -> str:
    return f"/api/v1/rounds/{factories.make_round(4, name='pilot').pk}/panels/"


def test_panel_lifecycle_from_draft_to_stop(address):
    api = client_of()
    headers = {"idempotency-key": "one"}
    created = [api.post(address, {"name": "main", "platform": "sona"}, JSON, headers=headers) for _ in range(2)]
    panel_url = f"{address}main/"

    edited = api.patch(panel_url, {"places": 7}, JSON).json()
    cost = api.get(f"{panel_url}cost/").json()["cost"]
    statuses = [api.post(f"{panel_url}{verb}/", {}, JSON).json()["status"] for verb in ("publish", "pause", "resume")]
    api.post(f"{panel_url}pause/", {"reason": "For lunch."}, JSON)
    paused = api.get(panel_url).json()
    stopped = api.post(f"{panel_url}stop/", {}, JSON).json()

    assert [answer.status_code for answer in created] == [201, 201]
    assert created[0].headers["location"].endswith(panel_url)
    assert created[0].json()["participant_parameter"] == "survey_code"
    assert created[0].json()["statements_per_place"] == 4
    assert (edited["places"], edited["taken_places"]["free"]) == (7, 7)
    assert cost == "7 places without a reward. The platform states its own fees."
    assert statuses == ["published", "paused", "published"]
    assert (paused["status"], paused["ended_reason"]) == ("paused", "For lunch.")
    assert stopped["status"] == "stopped"
    assert stopped["entry_link"].endswith(f"/enter/{Panel.objects.get().token}/?survey_code=%SURVEY_CODE%")
    assert [panel["name"] for panel in api.get(address).json()["results"]] == ["main"]


def test_only_drafts_can_be_deleted(address):
    api = client_of()
    api.post(address, {"name": "draft"}, JSON)
    api.post(address, {"name": "main"}, JSON)
    api.post(f"{address}main/publish/", {}, JSON)

    assert api.delete(f"{address}draft/").status_code == 204
    assert error_of(api.delete(f"{address}main/"))["code"] == "WrongPanelStatus"
    assert error_of(api.patch(f"{address}main/", {"reward": 1}, JSON))["code"] == "WrongPanelStatus"


@pytest.mark.parametrize(
    "body",
    [{"places": 0}, {"reward": -1}, {"rewards": 1}, {"platform": "radio"}, {"completion_url": "javascript:0"}, []],
)
def test_invalid_options_are_rejected(address, body):
    assert client_of().post(address, body, JSON).status_code == 400


def test_duplicate_and_reserved_names_are_rejected_with_codes(address):
    api = client_of()
    api.post(address, {"name": "main"}, JSON)

    assert error_of(api.post(address, {"name": "main"}, JSON))["code"] == "PanelNameTaken"
    assert error_of(api.post(address, {"name": "new"}, JSON))["code"] == "BadPanel"


def test_participants_are_visible_only_to_working_members(address):
    api = client_of()
    api.post(address, {"name": "main"}, JSON)
    api.post(f"{address}main/publish/", {}, JSON)
    enter(Panel.objects.get(), "p1", "s1", timezone.now())
    people = f"{address}main/participants/"

    [person] = api.get(people).json()["results"]

    assert (person["participant"], person["session"], person["status"]) == ("p1", "s1", "active")
    assert (person["annotator"], person["n_judged"], person["owed"], person["active_s"]) == ("", 0, 0, None)
    assert api.get(f"{people}?status=completed").json()["results"] == []
    assert client_of(factories.make_member(Role.VIEWER)).get(people).status_code == 403
    assert client_of(factories.make_member(project=factories.make_project())).get(people).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_python_client_creates_and_publishes_panels(live_server):
    round = factories.make_round(4)
    secret = create_token(factories.make_researcher(), "study", "write", 1, timezone.now()).secret
    with Client(live_server.url, secret) as client:
        panels = client.rounds.panels(round.pk)

        panel = panels.create(platform="connect", completion_code="A1B2C3")
        panels.act(panel["name"], "publish")
        enter(round.panels.get(), "p1", "s1", timezone.now())

        assert [person["participant"] for person in panels.rows(panel["name"], "participants")] == ["p1"]
