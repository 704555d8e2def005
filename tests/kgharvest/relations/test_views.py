"""The pages on which relations and their sets are written, imported, duplicated, exported and deleted."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from kgharvest.models import Relation, RelationSet
from kgharvest.relations.forms import RelationForm, initial_values, parse_seed_tuples
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

NEW = "kgharvest:relation_new"
PREVENT = {
    "name": "prevent",
    "set_name": "mine",
    "statement": "<ENT0> prevents <ENT1>.",
    "seed_tuples": "vaccine | measles\nseat belt | injury",
}


def address(name: str, *arguments) -> str:
    return reverse(f"kgharvest:{name}", args=arguments)


def test_a_relation_is_written_into_a_new_set(researcher_client):
    researcher_client.post(reverse(NEW), PREVENT)

    relation = Relation.objects.get()
    assert (relation.path, relation.arity, relation.statement) == ("mine/prevent", 2, "<ENT0> prevents <ENT1>.")
    assert relation.seed_tuples == [["vaccine", "measles"], ["seat belt", "injury"]]
    assert relation.initial_prompts == ["<ENT0> prevents <ENT1>."]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"statement": "<ENT0> prevents."}, "has one slot; a relation has at least two"),
        ({"statement": "<ENT0> prevents <ENT0>."}, "the slot &lt;ENT0&gt; twice"),
        ({"statement": "<ENT0> prevents <ENT2>."}, "lacks the slot &lt;ENT1&gt;"),
        ({"statement": "What does <ENT0> do to <ENT1>?"}, "This is a question"),
        ({"statement": "<ENT0> <ENT1>."}, "There are no words around the slots"),
        ({"statement": "<ENT0> prevents <ENT1>, not [Y]."}, "instead of &#x27;[Y]&#x27;"),
        ({"seed_tuples": "vaccine | measles"}, "eeds at least two seed tuples"),
        ({"seed_tuples": "a | b\nc | d | e"}, "Seed tuple 2 has 3 entities for 2 slots"),
        ({"seed_tuples": "Dam | flood\nx | y\ndam | FLOOD"}, "Seed tuple 3 says the same as seed tuple 1"),
        ({"initial_prompts": "<ENT0> stops <ENT1> in <ENT2>"}, "slots, the first prompt has"),
        ({"seed_tuples": "vaccine, measles\nseat belt, injury"}, "Seed tuple 1 has no | between its entities"),
        ({"name": "two words"}, "no relation name"),
        ({"name": "taken"}, "has a relation &#x27;taken&#x27; already"),
        ({"set_name": "a/b"}, "is no set name"),
        ({"set_name": "shipped"}, "comes with the project"),
    ],
)
def test_what_is_wrong_is_explained_and_nothing_stored(researcher_client, fields, sentence):
    factories.make_relation("taken", relation_set=factories.make_relation_set("mine"))
    factories.make_relation_set("shipped", is_shipped=True)

    page = researcher_client.post(reverse(NEW), {**PREVENT, **fields}).content.decode()

    assert sentence in page
    assert Relation.objects.count() == 1


def test_what_is_wrong_stands_beside_the_field_to_mend():
    prompts = "<ENT0> stops\n<ENT0> <ENT0> stop <ENT1>"

    form = RelationForm({**PREVENT, "initial_prompts": prompts})

    assert list(form.errors) == ["initial_prompts"]  # the statement and seed tuples are not measured by a broken one
    assert form.errors["initial_prompts"] == [
        "'<ENT0> <ENT0> stop <ENT1>' contains the slot <ENT0> twice. Use each slot once.",
        "'<ENT0> stops' has one slot; a relation has at least two.",
    ]


def test_a_preview_fills_the_statement_and_stores_nothing(researcher_client):
    form = {**PREVENT, "statement": "the <ENT0> prevents <ENT1>", "preview": "1"}

    page = researcher_client.post(reverse(NEW), form).content.decode()

    assert "the <b><bdi>seat belt</bdi></b> prevents <b><bdi>injury</bdi></b>" in page
    assert "without a full stop" in page
    assert "begins in lower case" in page
    assert not Relation.objects.exists()


def test_what_a_form_shows_reads_as_the_same_relation():
    seeds = [["a|b", "c, d"], ['"e"', "=1+1"], ["שלום", "f"]]
    relation = factories.make_relation(seed_tuples=seeds)

    assert parse_seed_tuples(initial_values(relation)["seed_tuples"]) == seeds


def test_a_seed_tuple_ends_where_its_line_ends_and_nowhere_else():
    assert parse_seed_tuples("a\u2028b | c\r\nd | e") == [["a\u2028b", "c"], ["d", "e"]]


def test_a_relation_is_edited(researcher_client):
    relation = factories.make_relation("prevent", relation_set=factories.make_relation_set("mine"))
    ternary = {
        "statement": "<ENT0> prevents <ENT1> in <ENT2>.",
        "seed_tuples": "a | b | c\nd | e | f",
        "initial_prompts": "",
    }

    researcher_client.post(address("relation_edit", relation.pk), {**PREVENT, **ternary, "name": "avert"})

    relation.refresh_from_db()
    assert (relation.name, relation.arity) == ("avert", 3)


@pytest.mark.parametrize(
    "use", [factories.make_harvest_job, lambda **fields: factories.make_harvest([["a", "b"]], **fields)]
)
def test_name_set_and_arity_of_a_relation_in_use_stay(researcher_client, use):
    relation = factories.make_relation("prevent", relation_set=factories.make_relation_set("mine"))
    use(relation=relation)
    ternary = {"statement": "<ENT0> <ENT1> x <ENT2>.", "seed_tuples": "a | b | c\nd | e | f"}

    page = researcher_client.post(address("relation_edit", relation.pk), {**PREVENT, **ternary}).content.decode()
    researcher_client.post(address("relation_edit", relation.pk), {**PREVENT, "name": "other", "set_name": "else"})

    assert "Its name, set and number of slots stay" in page
    relation.refresh_from_db()
    assert (relation.path, relation.arity, relation.statement) == ("mine/prevent", 2, "<ENT0> prevents <ENT1>.")


def test_a_shipped_relation_is_read_only_and_offers_a_copy(researcher_client):
    shipped = factories.make_relation_set(is_shipped=True)
    relation = factories.make_relation("prevent", relation_set=shipped)

    page = researcher_client.get(relation.get_absolute_url()).content.decode()
    assert "Duplicate to edit" in page
    assert researcher_client.post(address("relation_edit", relation.pk), PREVENT).status_code == 404
    researcher_client.post(address("relation_delete", relation.pk))
    assert Relation.objects.filter(pk=relation.pk).exists()

    copy = researcher_client.get(reverse(NEW), {"copy": relation.pk}).content.decode()
    assert 'value="prevent"' in copy
    assert "seed 0 0 | seed 0 1" in copy


def test_only_an_unused_relation_is_deleted(researcher_client):
    unused, used = factories.make_relation(), factories.make_harvest([["a", "b"]]).relation

    researcher_client.post(address("relation_delete", unused.pk))
    page = researcher_client.post(address("relation_delete", used.pk), follow=True).content.decode()

    assert list(Relation.objects.all()) == [used]
    assert "has harvests or tuples, which keep it" in page
    assert researcher_client.get(address("relation_delete", used.pk)).status_code == 200


# -- sets --------------------------------------------------------------------------------------------------------------


def upload(client, content, name: str = "mine.json", **fields):
    text = content if isinstance(content, str) else json.dumps(content)
    return client.post(address("relation_import"), {"file": SimpleUploadedFile(name, text.encode()), **fields})


def test_a_file_is_imported_with_its_explanations(researcher_client):
    entry = {"init_prompts": ["<ENT0> x <ENT1>"], "seed_ent_tuples": [["a", "b"], ["c", "d"]], "explanation": "Why."}

    response = upload(researcher_client, {"EKAR_1": entry}, "ekar.json")

    assert response.url == RelationSet.objects.get().get_absolute_url()
    assert Relation.objects.get().explanation == "Why."


def test_bad_rows_are_listed_the_first_twenty_and_the_total(researcher_client):
    bad = [{"name": f"r{number}", "initial_prompts": ["no slots"]} for number in range(60)]

    page = upload(researcher_client, {"name": "mine", "relations": bad}).content.decode()

    assert "60 things are wrong; these are the first 20" in page
    assert "relation 20 (&#x27;r19&#x27;)" in page
    assert "relation 21 (" not in page
    assert not RelationSet.objects.exists()


def test_importing_into_a_shipped_set_is_refused(researcher_client):
    factories.make_relation_set("shipped", is_shipped=True)
    entry = {"init_prompts": ["<ENT0> x <ENT1>"], "seed_ent_tuples": [["a", "b"], ["c", "d"]]}

    page = upload(researcher_client, {"one": entry}, set_name="shipped").content.decode()

    assert "comes with the project" in page
    assert not Relation.objects.exists()


def test_a_set_goes_out_and_comes_in_again_unchanged(researcher_client):
    relation_set = factories.make_relation_set("mine", description="Zwei, “drei”.")
    factories.make_relation(
        "b", relation_set=relation_set, arity=3, explanation="=1+1", prompts=["<ENT2> <ENT1> <ENT0>"]
    )
    factories.make_relation("a", relation_set=relation_set, seed_tuples=[["قطة", "a, b"], ['"c"', "d|e"]])
    exported = researcher_client.get(address("set_export", relation_set.pk)).content.decode()

    upload(researcher_client, exported, set_name="again")

    again = RelationSet.objects.get(name="again")
    second = json.loads(researcher_client.get(address("set_export", again.pk)).content)
    assert second == {**json.loads(exported), "name": "again"}
    assert again.description == "Zwei, “drei”."


def test_a_set_is_duplicated_renamed_and_deleted(researcher_client):
    relation_set = factories.make_relation_set("shipped", is_shipped=True, description="Theirs.")
    factories.make_relation("prevent", relation_set=relation_set)

    researcher_client.post(address("set_duplicate", relation_set.pk), {"name": "mine"})
    copy = RelationSet.objects.get(name="mine")
    assert (copy.is_shipped, copy.description, copy.relations.get().name) == (False, "Theirs.", "prevent")

    researcher_client.post(address("set_edit", copy.pk), {"name": "ours", "description": "Ours."})
    copy.refresh_from_db()
    assert (copy.name, copy.description) == ("ours", "Ours.")

    researcher_client.post(address("set_delete", copy.pk))
    assert list(RelationSet.objects.all()) == [relation_set]


def test_a_set_in_use_is_neither_renamed_nor_deleted(researcher_client):
    used = factories.make_harvest([["a", "b"]]).relation.relation_set

    page = researcher_client.post(address("set_edit", used.pk), {"name": "other"}).content.decode()
    researcher_client.post(address("set_delete", used.pk))

    assert "so the set keeps its name" in page
    assert RelationSet.objects.get().name == used.name


@pytest.mark.parametrize("name", ["relation_new", "relation_import"])
def test_annotators_write_no_relations(client, name):
    client.force_login(factories.make_user())

    assert client.post(address(name), PREVENT).status_code == 403
    assert not Relation.objects.exists()


def test_a_relations_pages_cost_a_bounded_number_of_queries(researcher_client, django_assert_max_num_queries):
    relation = factories.make_relation()
    for _ in range(20):
        factories.make_harvest_job(relation=relation)

    for page in (
        relation.get_absolute_url(),
        address("relation_edit", relation.pk),
        address("relation_delete", relation.pk),
    ):
        with django_assert_max_num_queries(7):
            assert researcher_client.get(page).status_code == 200
