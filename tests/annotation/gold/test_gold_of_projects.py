"""Gold on built-in relations belongs to the project that decided: only its members read it, only its rounds use it."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.test import Client

from annotation.gold.candidates import confirmed_counts, decide_on_gold, gold_candidates
from annotation.gold.selection import known_answers
from annotation.models import GoldDecision
from kgharvest.accounts.projects import publish_knowledge
from kgharvest.models import ProjectMember, Role
from tests import factories
from tests.api import JSON, client_of, error_of
from tests.refusals import refused

pytestmark = pytest.mark.django_db

GOLD = "/api/v1/gold/"


@pytest.fixture
def it() -> SimpleNamespace:
    """A built-in relation, and a researcher in each of two projects. The first has confirmed a false statement."""
    ours, theirs = factories.make_project("Ours"), factories.make_project("Theirs")
    shipped = factories.make_relation(
        relation_set=factories.make_relation_set(is_shipped=True),
        seed_tuples=[["dog", "bone"], ["cat", "fish"], ["cow", "grass"]],
    )
    ada, bob = factories.make_researcher("ada", ours), factories.make_researcher("bob", theirs)
    all_codes = [candidate.code for candidate in gold_candidates(shipped)]
    decide_on_gold(shipped, {all_codes[0]: True}, ada)
    factories.make_harvest([("hen", "corn")], relation=shipped, project=ours)
    return SimpleNamespace(ours=ours, theirs=theirs, relation=shipped, ada=ada, bob=bob, codes=all_codes)


def page_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_decisions_are_read_by_members_of_their_project_only(it):
    decision = it.relation.gold_decisions.get()
    for user, n in ((it.ada, 1), (factories.make_member(Role.VIEWER, it.ours), 1), (it.bob, 0)):
        api, page = client_of(user), page_of(user)
        assert len(api.get(f"{GOLD}decisions/").json()["results"]) == n
        assert len(page.get(f"/rounds/gold/{it.relation.pk}/").context["decided"]) == n
        assert [row.n_false for row in page.get("/rounds/gold/").context["page_obj"]] == [n]
    path = f"{GOLD}decisions/{decision.pk}/withdraw/"
    assert client_of(it.bob).post(path, {"reason": "No."}, JSON).status_code == 404
    assert page_of(it.bob).post(f"/rounds/gold/{it.relation.pk}/withdraw/{decision.pk}/").status_code == 404
    colleague = factories.make_researcher(project=it.ours)
    assert client_of(colleague).post(path, {"reason": "No."}, JSON).status_code == 200


def test_candidates_do_not_disclose_decisions_of_other_projects(it):
    publish_knowledge(it.ours, "none")
    listed = client_of(it.bob).get(f"{GOLD}candidates/{it.relation.pk}/").json()["candidates"]

    assert {candidate["code"] for candidate in listed} == set(it.codes)
    assert decide_on_gold(it.relation, {it.codes[0]: True}, it.bob) == 1
    assert decide_on_gold(it.relation, {it.codes[0]: True}, it.ada) == 0


def test_candidates_contain_no_entities_of_unknown_harvests(it):
    def entities(user) -> set[str]:
        rows = client_of(user).get(f"{GOLD}candidates/{it.relation.pk}/").json()["candidates"]
        return {entity for row in rows for entity in row["entities"]}

    assert "hen" in entities(it.ada) & entities(it.bob)
    publish_knowledge(it.ours, "none")
    assert ("hen" in entities(it.ada), "hen" in entities(it.bob)) == (True, False)


def test_rounds_use_the_decisions_of_their_project_only(it):
    for project, n in ((it.ours, 1), (it.theirs, 0)):
        _, false = known_answers([it.relation], project)[it.relation.pk]
        assert len(false) == n
        assert confirmed_counts([it.relation], project).get(it.relation.pk, 0) == n


def test_researchers_of_several_projects_choose_one(it):
    ProjectMember.objects.create(project=it.theirs, user=it.ada, role=Role.RESEARCHER)
    api, path = client_of(it.ada), f"{GOLD}candidates/{it.relation.pk}/"
    sent = {"decisions": {it.codes[1]: True}}

    with refused("ProjectNotNamed"):
        decide_on_gold(it.relation, sent["decisions"], it.ada)
    assert error_of(api.post(path, sent, JSON))["code"] == "ProjectNotNamed"
    assert api.post(path, {**sent, "project": it.theirs.slug}, JSON).json() == {"n_stored": 1}
    page = page_of(it.ada)
    address = f"/rounds/gold/{it.relation.pk}/?project={it.theirs.slug}"
    assert page.get(address).context["project"] == it.theirs
    page.post(address, {it.codes[2]: "false"})
    decided = it.theirs.gold_decisions.order_by("pk")
    assert [decision.entities for decision in decided] == [
        candidate.entities
        for code in it.codes[1:3]
        for candidate in gold_candidates(it.relation)
        if candidate.code == code
    ]
    assert page.post(address.replace("theirs", "elsewhere"), {it.codes[3]: "false"}).status_code == 404


def test_decisions_on_relations_of_a_project_need_no_project(it):
    relation = factories.make_relation(
        relation_set=factories.make_relation_set(project=it.ours), seed_tuples=[["dog", "bone"], ["cat", "fish"]]
    )
    decide_on_gold(relation, {gold_candidates(relation)[0].code: True}, it.ada)

    assert relation.gold_decisions.get().project is None
    assert GoldDecision.objects.visible_to(it.bob).count() == 0
    assert GoldDecision.objects.visible_to(it.ada).count() == 2


def test_migration_assigns_decisions_to_the_only_project_of_their_author(it):
    ProjectMember.objects.create(project=it.theirs, user=it.ada, role=Role.VIEWER)
    GoldDecision.objects.update(project=None)
    decide_on_gold(it.relation, {it.codes[1]: True})
    migration = import_module("annotation.migrations.0046_gold_of_projects")

    migration.assign_projects(apps, None)

    assert list(GoldDecision.objects.order_by("pk").values_list("project", flat=True)) == [it.ours.pk, None]
