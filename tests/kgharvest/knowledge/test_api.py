"""API of the knowledge base."""

from __future__ import annotations

import pytest

from kgharvest.api.pagination import cursor_of
from kgharvest.knowledge.sensitive_words import read_words
from kgharvest.models import Curation, KnowledgeTuple
from tests import factories
from tests.api import JSON, client_of, error_of

pytestmark = pytest.mark.django_db

KNOWLEDGE = "/api/v1/knowledge/"
WORDS = "/api/v1/sensitive-words/"
PAIRS = [["dog", "run"], ["fish", "swim"], ["dog", "swim"], ["bird", "fly"]]


@pytest.fixture
def api():
    return client_of()


def entities(response) -> list[list[str]]:
    return [row["entities"] for row in response.json()["results"]]


def test_tuples_are_found_by_entity_relation_and_score(api):
    job = factories.make_harvest(PAIRS)

    assert entities(api.get(KNOWLEDGE)) == PAIRS
    assert entities(api.get(KNOWLEDGE, {"entity": "DO"})) == [PAIRS[0], PAIRS[2]]
    assert entities(api.get(KNOWLEDGE, {"entity": "do", "match": "whole"})) == []
    assert entities(api.get(KNOWLEDGE, {"entity": "swim", "slot": 1, "sort": "score"})) == [PAIRS[2], PAIRS[1]]
    assert entities(api.get(KNOWLEDGE, {"score_from": -2, "relation": job.relation.pk})) == PAIRS[:2]


def test_an_unscored_harvest_has_no_scores(api):
    found = factories.make_harvest(PAIRS[:1], score_scale="order").tuples.get()

    [finding] = api.get(f"{KNOWLEDGE}{found.knowledge_tuple_id}/").json()["findings"]

    assert (finding["rank"], finding["score"]) == (1, None)


def test_search_results_are_paginated(api):
    factories.make_harvest([[f"a{number}", "b"] for number in range(7)])

    page = api.get(KNOWLEDGE, {"limit": 3, "entity": "a"})
    found = entities(page)
    while page.json()["next"]:
        page = api.get(page.json()["next"])
        found += entities(page)

    assert [first for first, _ in found] == [f"a{number}" for number in range(7)]


@pytest.mark.parametrize(
    "query",
    [
        {"relation": 10**30}, {"relation": 5}, {"slot": -1}, {"score_from": "nan"}, {"score_to": "1e999"},
        {"sort": "beauty"}, {"after": "a"}, {"after": cursor_of(["a", 1])}, {"after": cursor_of([1.5, "a"])},
        {"limit": 0}, {"entity": "x" * 10_000}, {"verdict": "perhaps"}, {"colour": "blue"},
    ],
)  # fmt: skip
def test_invalid_search_parameters_are_400(api, query):
    assert api.get(KNOWLEDGE, query).status_code == 400


def test_tuple_shows_visible_findings_verdicts_and_decisions(api):
    relation = factories.make_relation()
    job = factories.make_harvest(PAIRS[:1], relation=relation)
    factories.make_harvest(PAIRS[:1], relation=relation, project=factories.make_project())
    knowledge_tuple = KnowledgeTuple.objects.get()

    document = api.get(f"{KNOWLEDGE}{knowledge_tuple.pk}/").json()

    assert document["n_harvests"] == 1
    assert [(row["harvest"], row["rank"], row["score"]) for row in document["findings"]] == [(job.pk, 1, -1.0)]
    assert (document["verdicts"], document["curations"]) == ([], [])


def test_a_tuple_is_hidden_corrected_and_restored(api):
    factories.make_harvest(PAIRS[:1])
    knowledge_tuple = KnowledgeTuple.objects.get()

    def decide(**fields):
        return api.post(f"{KNOWLEDGE}{knowledge_tuple.pk}/curations/", {"reason": "I know.", **fields}, JSON)

    assert decide(decision="hide").status_code == 201
    assert decide(decision="correct", entities=["Dog", "swim"]).json()["entities"] == ["Dog", "swim"]
    assert api.get(f"{KNOWLEDGE}{knowledge_tuple.pk}/").json()["corrected_entities"] == ["Dog", "swim"]
    assert decide(decision="restore").status_code == 201
    assert error_of(decide(decision="restore"))["code"] == "BadCuration"
    assert [*error_of(decide(decision="correct"))["fields"]] == ["entities"]
    assert [*error_of(decide(decision="hide", reason=""))["fields"]] == ["reason"]
    assert Curation.objects.count() == 3


def test_tuples_of_several_projects_cannot_be_curated_in_one(api):
    relation = factories.make_relation()
    for project in (None, factories.make_project()):
        factories.make_harvest(PAIRS[:1], relation=relation, project=project)
    knowledge_tuple = KnowledgeTuple.objects.get()

    refused = api.post(f"{KNOWLEDGE}{knowledge_tuple.pk}/curations/", {"decision": "hide", "reason": "No."}, JSON)

    assert (refused.status_code, error_of(refused)["code"]) == (403, "NotAllowed")


def test_an_entity_has_roles(api):
    job = factories.make_harvest(PAIRS)

    document = api.get("/api/v1/entity/", {"name": "Dog"}).json()

    assert document["roles"] == [{"relation": job.relation.path, "slot": 0, "n": 2}]
    assert [row["entities"] for row in document["tuples"]] == [PAIRS[0], PAIRS[2]]
    assert api.get("/api/v1/entity/", {"name": "cat"}).status_code == 404
    assert api.get("/api/v1/entity/").status_code == 400


def test_superusers_replace_the_list_of_sensitive_words(api, enqueued):
    owner = client_of(factories.make_user(is_superuser=True))

    changed = owner.put(WORDS, {"words": ["Swim", "fly"]}, JSON)
    same = owner.put(WORDS, {"words": ["fly", "swim"]}, JSON)

    assert (changed.status_code, changed.json()["words"]) == (202, read_words("fly\nswim"))
    assert changed.json()["job"]["kind"] == "mark_sensitive"
    assert (same.status_code, same.json()["job"]) == (200, None)
    assert error_of(api.put(WORDS, {"words": []}, JSON))["code"] == "NotAllowed"
    assert api.get(WORDS).json()["words"] == ["fly", "swim"]
