"""Pages to create, edit, import, duplicate, export, and delete relations and relation sets."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from kgharvest.models import HarvestJob, Relation, RelationSet
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


def test_relation_is_created_in_a_new_set(researcher_client):
    researcher_client.post(reverse(NEW), PREVENT)

    relation = Relation.objects.get()
    assert (relation.path, relation.arity, relation.statement) == ("mine/prevent", 2, "<ENT0> prevents <ENT1>.")
    assert relation.seed_tuples == [["vaccine", "measles"], ["seat belt", "injury"]]
    assert relation.initial_prompts == ["<ENT0> prevents <ENT1>."]


def test_new_relation_is_saved_and_harvested(researcher_client, enqueued):
    harvest = {"harvest": "1", "models": "embedded", "settings": "human", "max_tuples": "8", "max_entity_tokens": "3"}
    form = researcher_client.get(reverse(NEW)).context["harvest"]
    assert [form[name].html_name for name in ("models", "settings", "max_tuples", "max_entity_tokens")] == [*harvest][
        1:
    ]

    response = researcher_client.post(reverse(NEW), PREVENT | harvest)

    job = HarvestJob.objects.get()
    assert (job.relation.path, job.setting, str(job.language_model)) == ("mine/prevent", "human", "embedded")
    assert job.payload["spec"]["params"]["max_tuples"] == 8
    assert response.url == job.get_absolute_url()


def test_invalid_harvest_of_new_relation_is_corrected_in_the_launch_form(researcher_client):
    harvest = {"harvest": "1", "models": "embedded", "settings": "human", "max_tuples": "0", "max_entity_tokens": "3"}
    page = researcher_client.post(reverse(NEW), PREVENT | harvest)

    relation = Relation.objects.get()
    assert "max_tuples" in page.context["form"].errors
    assert page.context["form"]["relations"].value() == [str(relation.pk)]
    assert f'action="{reverse("kgharvest:harvest_new")}"' in page.text
    assert not HarvestJob.objects.exists()


def test_only_new_relations_offer_a_harvest(researcher_client, researcher):
    relation = factories.make_relation(relation_set=factories.make_relation_set("mine"))

    assert researcher_client.get(address("relation_edit", relation.pk)).context["harvest"] is None


def test_negative_seed_tuples_are_entered_shown_and_edited(researcher_client):
    researcher_client.post(reverse(NEW), {**PREVENT, "negative_seed_tuples": "umbrella | rain"})

    relation = Relation.objects.get()
    assert relation.negative_seed_tuples == [["umbrella", "rain"]]
    assert "Negative seed tuples" in researcher_client.get(relation.get_absolute_url()).content.decode()
    assert initial_values(relation)["negative_seed_tuples"] == "umbrella | rain"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"statement": "<ENT0> prevents."}, "has 1 slot; use 2 to 9 slots"),
        ({"statement": "<ENT0> prevents <ENT0>."}, "the slot &lt;ENT0&gt; twice"),
        ({"statement": "<ENT0> prevents <ENT2>."}, "lacks the slot &lt;ENT1&gt;"),
        ({"statement": "What does <ENT0> do to <ENT1>?"}, "is a question"),
        ({"statement": "<ENT0> <ENT1>."}, "contains only slots"),
        ({"statement": "<ENT0> prevents <ENT1>, not [Y]."}, "&#x27;[Y]&#x27; is not a slot"),
        ({"seed_tuples": "vaccine | measles"}, "At least two seed tuples"),
        ({"seed_tuples": "a | b\nc | d | e"}, "Seed tuple 2 has 3 entities for 2 slots"),
        ({"seed_tuples": "Dam | flood\nx | y\ndam | FLOOD"}, "Seed tuple 3 is a duplicate of seed tuple 1"),
        ({"negative_seed_tuples": "vaccine"}, "Seed tuple 1 has no | between its entities"),
        ({"negative_seed_tuples": "a | b\nA | b"}, "Negative seed tuple 2 is a duplicate of negative seed tuple 1"),
        ({"initial_prompts": "<ENT0> stops <ENT1> in <ENT2>"}, "slots, but the first prompt has"),
        ({"seed_tuples": "vaccine, measles\nseat belt, injury"}, "Seed tuple 1 has no | between its entities"),
        ({"name": "two words"}, "nvalid relation name"),
        ({"name": "taken"}, "contains a relation &#x27;taken&#x27;"),
        ({"set_name": "a/b"}, "nvalid set name"),
        ({"set_name": "shipped"}, "is built-in"),
    ],
)
def test_errors_are_explained_and_nothing_is_stored(researcher_client, fields, sentence):
    factories.make_relation("taken", relation_set=factories.make_relation_set("mine"))
    factories.make_relation_set("shipped", is_shipped=True)

    page = researcher_client.post(reverse(NEW), {**PREVENT, **fields}).content.decode()

    assert sentence in page
    assert Relation.objects.count() == 1


def test_errors_are_shown_next_to_their_field():
    prompts = "<ENT0> stops\n<ENT0> <ENT0> stop <ENT1>"

    form = RelationForm({**PREVENT, "initial_prompts": prompts})

    assert list(form.errors) == ["initial_prompts"]  # the arity of an invalid prompt raises no errors in other fields
    assert form.errors["initial_prompts"] == [
        "'<ENT0> <ENT0> stop <ENT1>' contains the slot <ENT0> twice. Use each slot once.",
        "'<ENT0> stops' has 1 slot; use 2 to 9 slots.",
    ]


def test_all_errors_are_shown_at_once():
    seeds = "vaccine | measles\nseat belt\na | b | c"

    form = RelationForm({**PREVENT, "name": "two words", "set_name": "a/b", "seed_tuples": seeds})
    incomplete = RelationForm({"name": "two words", "set_name": "a/b", "seed_tuples": "x | y\nvaccine"})

    assert {field: len(errors) for field, errors in form.errors.items()} == {"name": 1, "set_name": 1, "seed_tuples": 2}
    assert incomplete.errors.keys() == {"statement", "name", "set_name", "seed_tuples"}


@pytest.mark.parametrize(
    ("existing", "suggested"), [([], "mine"), ([("mine", True)], ""), ([("old", False), ("new", False)], "new")]
)
def test_new_relation_suggests_the_newest_set_or_an_unused_name(researcher_client, existing, suggested):
    for name, is_shipped in existing:
        factories.make_relation_set(name, is_shipped=is_shipped)

    assert researcher_client.get(reverse(NEW)).context["form"]["set_name"].value() == suggested


def test_a_preview_fills_the_statement_and_stores_nothing(researcher_client):
    form = {**PREVENT, "statement": "the <ENT0> prevents <ENT1>", "preview": "1"}

    page = researcher_client.post(reverse(NEW), form).content.decode()

    assert "the <b><bdi>seat belt</bdi></b> prevents <b><bdi>injury</bdi></b>" in page
    assert "full stop" in page
    assert "lower-case letter" in page
    assert not Relation.objects.exists()


def test_form_values_of_seed_tuples_parse_to_the_same_tuples():
    seeds = [["a|b", "c, d"], ['"e"', "=1+1"], ["שלום", "f"]]
    relation = factories.make_relation(seed_tuples=seeds)

    assert parse_seed_tuples(initial_values(relation)["seed_tuples"]) == seeds


def test_only_newlines_separate_seed_tuples():
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
def test_name_set_and_arity_of_a_relation_in_use_cannot_change(researcher_client, use):
    relation = factories.make_relation("prevent", relation_set=factories.make_relation_set("mine"))
    use(relation=relation)
    ternary = {"statement": "<ENT0> <ENT1> x <ENT2>.", "seed_tuples": "a | b | c\nd | e | f"}

    page = researcher_client.post(address("relation_edit", relation.pk), {**PREVENT, **ternary}).content.decode()
    researcher_client.post(address("relation_edit", relation.pk), {**PREVENT, "name": "other", "set_name": "else"})

    assert "name, set, and number of slots cannot change" in page
    relation.refresh_from_db()
    assert (relation.path, relation.arity, relation.statement) == ("mine/prevent", 2, "<ENT0> prevents <ENT1>.")


def test_a_built_in_relation_is_read_only_and_can_be_duplicated(researcher_client):
    shipped = factories.make_relation_set(is_shipped=True)
    relation = factories.make_relation("prevent", relation_set=shipped)

    page = researcher_client.get(relation.get_absolute_url()).content.decode()
    assert "Duplicate</a>" in page
    assert "Edit</a>" not in page
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
    assert f"Cannot delete {used.path}" in page
    assert researcher_client.get(address("relation_delete", used.pk)).status_code == 200


# Relation sets


def upload(client, content, name: str = "mine.json", **fields):
    text = content if isinstance(content, str) else json.dumps(content)
    return client.post(address("relation_import"), {"file": SimpleUploadedFile(name, text.encode()), **fields})


def test_a_file_is_imported_with_its_explanations(researcher_client):
    entry = {"init_prompts": ["<ENT0> x <ENT1>"], "seed_ent_tuples": [["a", "b"], ["c", "d"]], "explanation": "Why."}

    response = upload(researcher_client, {"EKAR_1": entry}, "ekar.json")

    assert response.url == RelationSet.objects.get().get_absolute_url()
    assert Relation.objects.get().explanation == "Why."


def test_first_twenty_bad_rows_are_listed_with_the_total(researcher_client):
    bad = [{"name": f"r{number}", "initial_prompts": ["no slots"]} for number in range(60)]

    page = upload(researcher_client, {"name": "mine", "relations": bad}).content.decode()

    assert "60 errors, of which the first 20 are shown" in page
    assert "relation 20 (&#x27;r19&#x27;)" in page
    assert "relation 21 (" not in page
    assert not RelationSet.objects.exists()


def test_importing_into_a_built_in_set_is_rejected(researcher_client):
    factories.make_relation_set("shipped", is_shipped=True)
    entry = {"init_prompts": ["<ENT0> x <ENT1>"], "seed_ent_tuples": [["a", "b"], ["c", "d"]]}

    page = upload(researcher_client, {"one": entry}, set_name="shipped").content.decode()

    assert "is built-in" in page
    assert not Relation.objects.exists()


def test_an_exported_set_is_imported_unchanged(researcher_client):
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

    assert f"Cannot rename {used.name}" in page
    assert RelationSet.objects.get().name == used.name


@pytest.mark.parametrize("name", ["relation_new", "relation_import"])
def test_annotators_cannot_create_relations(client, name):
    client.force_login(factories.make_user())

    assert client.post(address(name), PREVENT).status_code == 403
    assert not Relation.objects.exists()


def test_relation_pages_have_a_query_budget(researcher_client, django_assert_max_num_queries):
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
