"""API of relations and relation sets."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from kgharvest.models import Relation, RelationSet
from tests import factories
from tests.api import JSON, RELATIONS, SETS, WRITTEN, client_of, error_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def api():
    return client_of()


def test_relation_is_created_read_changed_and_deleted(api):
    created = api.post(RELATIONS, WRITTEN, JSON)
    address = created.headers["Location"]
    changed = api.patch(address, {"explanation": "What people go there for."}, JSON)

    assert created.status_code == 201
    assert (created.json()["path"], created.json()["arity"]) == ("places/place_for", 2)
    assert created.json()["initial_prompts"] == [WRITTEN["statement"]]
    assert changed.json() == created.json() | {"explanation": "What people go there for."}
    assert api.get(address).json() == changed.json()
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


def test_negative_seed_tuples_are_kept_by_other_changes(api):
    created = api.post(RELATIONS, WRITTEN | {"negative_seed_tuples": [["kitchen", "kettle"]]}, JSON)
    changed = api.patch(created.headers["Location"], {"explanation": "Typical use."}, JSON)

    assert changed.json()["negative_seed_tuples"] == [["kitchen", "kettle"]]
    assert api.post(RELATIONS, WRITTEN | {"name": "other"}, JSON).json()["negative_seed_tuples"] == []
    seed = WRITTEN["seed_tuples"][:1]
    assert [*error_of(api.patch(created.headers["Location"], {"negative_seed_tuples": seed}, JSON))["fields"]] == [
        "negative_seed_tuples"
    ]


def test_errors_of_a_relation_are_reported_by_field(api):
    refused = api.post(RELATIONS, WRITTEN | {"statement": "no slots", "seed_tuples": [["a"]]}, JSON)

    assert refused.status_code == 400
    assert "has one slot" in str(error_of(refused)["fields"]) or error_of(refused)["fields"]
    assert not Relation.objects.exists()


def test_a_relation_with_tuples_keeps_its_name(api):
    created = api.post(RELATIONS, WRITTEN, JSON)
    factories.make_harvest([["a", "b"]], relation=Relation.objects.get())

    assert [*error_of(api.patch(created.headers["Location"], {"name": "other"}, JSON))["fields"]] == ["name"]
    assert error_of(api.delete(created.headers["Location"]))["code"] == "RelationInUse"


def test_relations_are_found_by_set_name_arity_and_words(api):
    places = factories.make_relation_set("places")
    for name, arity in (("one", 2), ("two", 3), ("three", 3)):
        factories.make_relation(name, arity=arity, relation_set=places)
    factories.make_relation("one")

    def names(**query):
        return [row["path"] for row in api.get(RELATIONS, query).json()["results"]]

    assert names(set="places", arity=3) == ["places/three", "places/two"]
    assert len(names(name="one")) == 2
    assert names(q="TWO") == ["places/two"]


def test_a_set_is_imported_exported_duplicated_renamed_and_deleted(api):
    document = {"name": "places", "relations": [{**WRITTEN, "initial_prompts": [WRITTEN["statement"]]}]}
    file = SimpleUploadedFile("any.json", json.dumps(document).encode())
    created = api.post(f"{SETS}import/", {"file": file})
    copy = api.post(SETS, {"copy_of": created.json()["id"], "name": "copy"}, JSON)
    renamed = api.patch(copy.headers["Location"], {"name": "renamed"}, JSON)

    assert (created.status_code, created.json()["name"], created.json()["n_relations"]) == (201, "places", 1)
    assert (copy.status_code, copy.json()["n_relations"]) == (201, 1)
    assert renamed.json() == copy.json() | {"name": "renamed"}
    exported = [api.get(f"{SETS}{response.json()['id']}/export/").json() for response in (created, copy)]
    assert exported[0]["relations"] == exported[1]["relations"]
    assert api.delete(copy.headers["Location"]).status_code == 204
    assert [*RelationSet.objects.values_list("name", flat=True)] == ["places"]


def test_invalid_relations_in_a_file_are_rejected_with_their_locations(api):
    file = SimpleUploadedFile("bad.json", b'{"name": "bad", "relations": [{"name": "a b"}, 3]}')

    error = error_of(api.post(f"{SETS}import/", {"file": file}))

    assert error["code"] == "ImportRefused"
    assert "line 1, relation 2" in error["fields"]["file"][0]


def test_prompts_are_added_from_a_file(api):
    api.post(RELATIONS, WRITTEN, JSON)
    lines = b'{"template": "[X] is used for [Y] .", "weight": 0.4}\n'

    added = api.post(
        f"{SETS}{RelationSet.objects.get().pk}/prompts/",
        {"file": SimpleUploadedFile("place_for.jsonl", lines), "origin": "mined"},
    )

    assert added.json() == {"message": "place_for: 1 prompt added.", "unknown": []}
    assert len(Relation.objects.get().prompts) == 2


def test_viewers_change_nothing_and_non_members_see_nothing(api):
    address = api.post(RELATIONS, WRITTEN, JSON).headers["Location"]
    viewer = client_of(factories.make_member("viewer"))
    other = client_of(factories.make_researcher(project=factories.make_project()))

    assert viewer.get(address).status_code == 200
    assert error_of(viewer.patch(address, {"explanation": "mine"}, JSON))["code"] == "NotAllowed"
    assert error_of(viewer.delete(address))["code"] == "NotAllowed"
    assert [other.get(address).status_code, other.delete(address).status_code] == [404, 404]
    refused = error_of(other.post(RELATIONS, WRITTEN | {"name": "mine"}, JSON))
    assert refused["code"] == "NotAllowed"
    assert "'places' is used by another project." in refused["message"]  # without the project's name


def test_built_in_sets_are_read_only(api):
    shipped = factories.make_relation_set("demo", is_shipped=True)

    assert error_of(api.patch(f"{SETS}{shipped.pk}/", {"description": "mine"}, JSON))["code"] == "SetIsShipped"


def test_a_list_costs_the_same_for_any_number_of_relations(api, django_assert_max_num_queries):
    for _ in range(20):
        factories.make_relation()
    api.get(RELATIONS)

    with django_assert_max_num_queries(3):  # token, group, relations
        assert len(api.get(RELATIONS).json()["results"]) == 20
