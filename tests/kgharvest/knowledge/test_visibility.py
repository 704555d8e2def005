"""Visibility of knowledge: a tuple is visible in the projects that harvested it, and where they publish it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from annotation.exchange.judgment_import import import_judgments
from kgharvest.accounts.projects import publish_knowledge
from kgharvest.bulk import pagination
from kgharvest.events.models import Event
from kgharvest.harvests.language_models import in_words
from kgharvest.models import KnowledgeTuple, LanguageModel, Project, Role
from tests import factories
from tests.api import JSON, client_of
from tests.kgharvest.accounts.test_tokens import client_with, make_token

pytestmark = pytest.mark.django_db

LIST, API = reverse("kgharvest:tuple_list"), "/api/v1/knowledge/"


@pytest.fixture
def it(settings) -> SimpleNamespace:
    """A viewer of one project, and tuples of a built-in and a private relation in another project."""
    own, foreign = factories.make_project("Own"), factories.make_project("Foreign")
    shipped = factories.make_relation("can", relation_set=factories.make_relation_set("demo", is_shipped=True))
    private = factories.make_relation("cures", relation_set=factories.make_relation_set("drugs", project=foreign))
    lm = factories.make_language_model("secret-lm")
    common = {"project": foreign, "language_model": lm}
    factories.make_harvest([("dog", "swim")], relation=shipped, **common)
    factories.make_harvest([("aspirin", "headache")], relation=private, **common)
    user = factories.make_member(Role.VIEWER, own)
    page = Client()
    page.force_login(user)
    return SimpleNamespace(
        own=own, foreign=foreign, shipped=shipped, private=private, lm=lm, user=user, page=page, api=client_of(user)
    )


def heads(it) -> list[str]:
    """Return the first entities on the page and in the API, which must agree."""
    on_page = sorted(row["tuple"].entities[0] for row in it.page.get(LIST).context["rows"])
    assert on_page == sorted(row["entities"][0] for row in it.api.get(API).json()["results"])
    return on_page


def addresses(head: str) -> list[tuple[str, str]]:
    """Return the (page, API) addresses that show the tuple of an entity."""
    pk = KnowledgeTuple.objects.get(key__startswith=head).pk
    return [
        (reverse("kgharvest:tuple_detail", args=[pk]), f"{API}{pk}/"),
        (reverse("kgharvest:entity") + f"?name={head}", f"/api/v1/entity/?name={head}"),
    ]


def statuses(it, head: str) -> set[int]:
    return {
        client.get(url).status_code for page, api in addresses(head) for client, url in ((it.page, page), (it.api, api))
    }


def names(it) -> tuple[set[str], set[str]]:
    """Return the relations and the LMs that the filters of the page offer."""
    fields = it.page.get(LIST).context["search"].fields
    return {relation.path for relation in fields["relation"].queryset}, {str(lm) for lm in fields["model"].queryset}


def test_knowledge_of_private_sets_is_visible_to_members_only(it):
    assert heads(it) == ["dog"]
    assert (statuses(it, "dog"), statuses(it, "aspirin")) == ({200}, {404})
    assert names(it) == ({"demo/can"}, set())
    assert "aspirin" not in it.page.get(reverse("kgharvest:entity_graph"), {"name": "aspirin"}).text.replace(
        ">aspirin<", "", 1
    )

    it.foreign.members.create(user=it.user, role=Role.VIEWER)

    assert heads(it) == ["aspirin", "dog"]
    assert statuses(it, "aspirin") == {200}
    assert names(it) == ({"demo/can", "drugs/cures"}, {"secret-lm"})


@pytest.mark.parametrize(("published", "expected"), [("none", []), ("shipped", ["dog"]), ("all", ["aspirin", "dog"])])
def test_a_project_publishes_nothing_its_built_in_relations_or_everything(it, published, expected):
    publish_knowledge(it.foreign, published)

    assert heads(it) == expected
    for head in ("dog", "aspirin"):
        assert statuses(it, head) == ({200} if head in expected else {404})


def test_owners_publish_knowledge_on_the_page_and_in_the_api(it):
    owner, path = factories.make_member(Role.OWNER, it.foreign), reverse("kgharvest:project", args=[it.foreign.slug])
    it.page.force_login(owner)

    it.page.post(f"{path}publish/", {"published_knowledge": "everything"})
    assert Project.objects.get(pk=it.foreign.pk).published_knowledge == "shipped"
    it.page.post(f"{path}publish/", {"published_knowledge": "all"})
    assert Project.objects.get(pk=it.foreign.pk).published_knowledge == "all"
    project = client_of(owner).patch(f"/api/v1{path}", {"published_knowledge": "none"}, JSON).json()
    assert (project["published_knowledge"], project["name"]) == ("none", "Foreign")
    assert client_of(owner).patch(f"/api/v1{path}", {}, JSON).status_code == 400
    [change, _] = Event.objects.filter(action="project.knowledge_published").order_by("-pk")
    assert (change.project_id, change.known_facts["published"]) == (it.foreign.pk, "none")


def test_published_knowledge_names_no_harvest_and_cannot_be_curated(it):
    publish_knowledge(it.foreign, "all")
    (page, api), _ = addresses("aspirin")
    decision = {"decision": "hide", "reason": "Wrong."}

    assert it.api.get(api).json()["findings"] == []
    assert it.lm.name not in it.page.get(page).text
    assert it.page.post(page, decision).status_code == 403
    assert it.api.post(f"{api}curations/", decision, JSON).status_code == 403


def test_private_knowledge_cannot_be_curated_and_is_not_found(it):
    (page, api), _ = addresses("aspirin")
    decision = {"decision": "hide", "reason": "Wrong."}

    assert it.page.post(page, decision).status_code == 404
    assert it.api.post(f"{api}curations/", decision, JSON).status_code == 404


def test_bound_tokens_read_the_knowledge_of_their_project_only(it):
    publish_knowledge(it.foreign, "all")
    it.foreign.members.create(user=it.user, role=Role.OWNER)
    factories.make_harvest([("cat", "climb")], project=it.own, relation=it.shipped)
    it.api = client_with(make_token("read", user=it.user, project=it.own).secret)

    assert [row["entities"][0] for row in it.api.get(API).json()["results"]] == ["cat"]
    for head, status in (("cat", 200), ("dog", 404), ("aspirin", 404)):
        assert {it.api.get(api).status_code for _, api in addresses(head)} == {status}
    [lm] = it.api.get("/api/v1/language-models/").json()["results"]
    assert lm["name"] != "secret-lm"


@pytest.mark.parametrize("few", [0, 20_000])
def test_numbers_count_only_visible_harvests(it, monkeypatch, few):
    monkeypatch.setattr(pagination, "MOST_LOOKED_UP", few)
    publish_knowledge(it.foreign, "none")
    factories.make_harvest([("cat", "climb"), ("dog", "swim"), ("cat", "purr")], project=it.own, relation=it.shipped)

    [dog] = [row for row in it.api.get(API).json()["results"] if row["entities"][0] == "dog"]

    assert heads(it) == ["cat", "cat", "dog"]
    assert (dog["n_harvests"], dog["best_score"]) == (1, -2.0)
    assert it.api.get(f"{API}{dog['id']}/").json()["n_harvests"] == 1
    assert it.api.get("/api/v1/entity/", {"name": "swim"}).json()["roles"][0]["n"] == 1
    assert it.api.get(API, {"relation": it.shipped.pk, "entity": "swim"}).json()["results"] == [dog]


def test_an_entity_counts_only_visible_tuples(it):
    publish_knowledge(it.foreign, "none")
    factories.make_harvest([("dog", "run")], project=it.own, relation=it.shipped)

    document = it.api.get("/api/v1/entity/", {"name": "dog"}).json()

    assert [role["n"] for role in document["roles"]] == [1]
    assert [row["entities"] for row in document["tuples"]] == [["dog", "run"]]
    assert it.page.get(reverse("kgharvest:entity"), {"name": "dog"}).context["n"] == 1


def test_a_judged_tuple_without_a_harvest_is_visible_to_members_of_the_round(it, tmp_path):
    file = tmp_path / "judgments.csv"
    file.write_text('relation,entities,annotator,label\ndemo/can,"[""cat"", ""purr""]",ann,true\n')
    import_judgments(file, "old", project=it.own, create=True)
    stranger = client_of(factories.make_member(Role.OWNER, it.foreign))
    _, api = addresses("cat")[0]

    assert [client.get(api).status_code for client in (it.api, stranger)] == [200, 404]


def test_lms_are_visible_to_members_of_projects_that_use_them(it):
    factories.make_language_model("built-in", is_demonstrator=True)

    assert {lm.name for lm in LanguageModel.objects.visible_to(it.user)} == {"built-in"}
    assert [row["name"] for row in it.api.get("/api/v1/language-models/").json()["results"]] == ["built-in"]
    it.foreign.members.create(user=it.user, role=Role.VIEWER)
    assert {lm.name for lm in LanguageModel.objects.visible_to(it.user)} == {"built-in", "secret-lm"}


def test_workers_show_only_lms_of_jobs_in_the_projects_of_the_user(it):
    factories.make_harvest([("cat", "climb")], project=it.own, language_model=factories.make_language_model("own-lm"))
    loaded = [in_words(name, "cpu", "float32") for name in ("secret-lm", "own-lm")]
    worker = factories.make_worker(timezone.now(), language_models=loaded)
    root = client_of(factories.make_user(is_superuser=True))

    for api, expected in ((it.api, loaded[1:]), (root, loaded)):
        assert api.get(f"/api/v1/workers/{worker.pk}/").json()["language_models"] == expected
    assert "secret-lm" not in it.page.get("/workers/").text


def test_forms_offer_only_visible_lms(it):
    it.foreign.members.create(user=factories.make_user("member"), role=Role.RESEARCHER)
    researcher, member = factories.make_member(Role.RESEARCHER, it.own), it.foreign.members.get().user

    for user, is_offered in ((researcher, False), (member, True)):
        page = Client()
        page.force_login(user)
        for name in ("kgharvest:harvest_new", "evaluation:score_new"):
            assert ("secret-lm" in page.get(reverse(name)).text) is is_offered, name
