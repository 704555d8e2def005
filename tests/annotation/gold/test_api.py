"""Gold candidates and decisions in the API."""

from __future__ import annotations

import pytest
from django.test import Client

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.models import GoldDecision
from kgharvest.models import Role
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

GOLD = "/api/v1/gold/"


@pytest.fixture
def relation(db):
    return factories.make_relation(seed_tuples=[["dog", "bone"], ["cat", "fish"], ["cow", "grass"]])


def test_candidates_can_be_decided_listed_and_withdrawn(relation):
    api, address = client_of(factories.make_researcher("ada")), f"{GOLD}candidates/{relation.pk}/"
    candidates = api.get(address).json()["candidates"]
    first, second = (candidate["code"] for candidate in candidates[:2])

    assert [candidate["code"] for candidate in candidates] == [one.code for one in gold_candidates(relation)]
    assert candidates[0]["entities"] != candidates[0]["seed"]
    decisions = {"decisions": {first: True, second: False, "nobody": True}}
    assert api.post(address, decisions, JSON).json() == {"n_stored": 2}
    assert api.post(address, decisions, JSON).json() == {"n_stored": 0}
    assert len(api.get(address).json()["candidates"]) == len(candidates) - 2
    [confirmed] = api.get(f"{GOLD}decisions/", {"is_confirmed": "true", "relation": relation.pk}).json()["results"]
    assert (confirmed["decided_by"], confirmed["withdrawn_at"]) == ("ada", None)
    assert len(api.get(f"{GOLD}decisions/").json()["results"]) == 2
    withdrawn = api.post(f"{GOLD}decisions/{confirmed['id']}/withdraw/", {"reason": "It is true."}, JSON)
    assert (withdrawn.json()["reason"], withdrawn.json()["withdrawn_at"] is None) == ("It is true.", False)
    assert not GoldDecision.objects.in_force().filter(is_confirmed=True).exists()


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"decisions": []},
        {"decisions": {"a": "perhaps"}},
        {"decisions": dict.fromkeys(map(str, range(401)), True)},
    ],
)
def test_invalid_decisions_are_rejected(relation, data):
    assert client_of().post(f"{GOLD}candidates/{relation.pk}/", data, JSON).status_code == 400


def test_viewer_cannot_decide_on_candidates(relation):
    viewer = client_of(factories.make_member(Role.VIEWER))
    stranger = client_of(factories.make_researcher(project=factories.make_project()))
    address = f"{GOLD}candidates/{relation.pk}/"
    code = client_of().get(address).json()["candidates"][0]["code"]

    assert viewer.get(address).status_code == 200
    refused = viewer.post(address, {"decisions": {code: True}}, JSON)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "NotAllowed")
    assert stranger.get(address).status_code == 404
    assert not GoldDecision.objects.exists()


def test_decision_author_is_visible_to_project_members_only():
    shipped = factories.make_relation(
        relation_set=factories.make_relation_set(is_shipped=True), seed_tuples=[["dog", "bone"], ["cat", "fish"]]
    )
    ada, colleague = factories.make_researcher("ada"), factories.make_researcher()
    stranger = factories.make_member(Role.OWNER, factories.make_project())
    decide_on_gold(shipped, {gold_candidates(shipped)[0].code: True}, ada)

    for person, named in ((ada, ["ada"]), (colleague, ["ada"]), (stranger, [])):
        decisions = client_of(person).get(f"{GOLD}decisions/").json()["results"]
        assert [decision["decided_by"] for decision in decisions] == named
        page = Client()
        page.force_login(person)
        assert ("ada," in page.get(f"/rounds/gold/{shipped.pk}/").text) == bool(named)
