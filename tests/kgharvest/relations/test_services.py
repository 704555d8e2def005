"""Import of relation files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgharvest.errors import ImportRefused
from kgharvest.models import KnowledgeTuple, Relation, RelationSet, tuple_key
from kgharvest.relations import services
from kgharvest.relations.files import export_relations
from kgharvest.relations.services import import_relations
from tests import factories
from tests.refusals import refused

pytestmark = pytest.mark.django_db

PREVENT = {
    "name": "prevent",
    "statement": "<ENT0> prevents <ENT1>.",
    "initial_prompts": ["<ENT0> prevents <ENT1> ."],
    "seed_tuples": [["vaccine", "measles"], ["seat belt", "injury"]],
}


def write(folder: Path, content, name: str = "mine.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def own_file(folder: Path, *entries: dict) -> Path:
    return write(folder, {"name": "mine", "description": "Two of them.", "relations": list(entries)})


def test_file_in_kgharvest_format_is_imported(tmp_path):
    relation_set = import_relations(own_file(tmp_path, PREVENT))

    relation = relation_set.relations.get()
    assert (relation_set.name, relation_set.description, relation_set.is_shipped) == ("mine", "Two of them.", False)
    assert (relation.path, relation.arity, relation.statement) == ("mine/prevent", 2, "<ENT0> prevents <ENT1>.")
    assert relation.seed_tuples == PREVENT["seed_tuples"]


NEGATIVES = [["umbrella", "rain"]]


def test_negative_seed_tuples_are_imported_and_exported(tmp_path):
    mine = import_relations(own_file(tmp_path, {**PREVENT, "negative_seed_tuples": NEGATIVES}))

    again = import_relations(write(tmp_path, export_relations(mine)), "again")

    assert [relation_set.relations.get().negative_seed_tuples for relation_set in (mine, again)] == [NEGATIVES] * 2
    assert import_relations(own_file(tmp_path, PREVENT)).relations.get().negative_seed_tuples == []


@pytest.mark.parametrize(
    ("negatives", "where", "reason"),
    [
        ("umbrella", "", "negative seed tuples must be a list of lists"),
        ([["umbrella"]], ", negative seed tuple 1", "has 1 entity for 2 slots"),
        ([["a", "b"], ["a", "b\nc"]], ", negative seed tuple 2", "has an entity with a line break"),
        ([["Seat belt", "injury"]], ", negative seed tuple 1", "is also a seed tuple; remove one of them"),
    ],
)
def test_errors_in_negative_seed_tuples(tmp_path, negatives, where, reason):
    with pytest.raises(ImportRefused) as refusal:
        import_relations(own_file(tmp_path, {**PREVENT, "negative_seed_tuples": negatives}))

    [entry] = refusal.value.entries
    assert (entry.where, entry.reason) == (f"line 1, relation 1 ('prevent'){where}", reason)


def test_importing_again_updates(tmp_path):
    import_relations(own_file(tmp_path, PREVENT))
    before = Relation.objects.get().pk

    import_relations(own_file(tmp_path, {**PREVENT, "statement": "<ENT0> keeps <ENT1> away."}))

    relation = Relation.objects.get()
    assert (relation.pk, relation.statement) == (before, "<ENT0> keeps <ENT1> away.")


def test_set_in_reference_format_is_named_after_its_file(tmp_path):
    reference = {
        "can": {
            "init_prompts": ["<ENT0> can <ENT1> in <ENT2> ."],
            "seed_ent_tuples": [["bird", "fly", "sky"], ["fish", "swim", "sea"]],
            "prompts": ["In <ENT2>, <ENT0> can <ENT1> ."],
        }
    }

    relation = import_relations(write(tmp_path, reference, "human.json")).relations.get()

    assert (relation.path, relation.arity) == ("human/can", 3)
    assert relation.statement == "<ENT0> can <ENT1> in <ENT2> ."
    assert relation.prompts == ["In <ENT2>, <ENT0> can <ENT1> ."]


def test_lama_lines_of_one_relation_are_its_initial_prompts(tmp_path):
    lines = [
        {"relation": "P19", "template": "[X] was born in [Y] ."},
        {"relation": "P19", "template": "[Y] is where [X] was born ."},
        {"relation": "P36", "template": "The capital of [X] is [Y] ."},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, lines)), "lama.jsonl")

    relation_set = import_relations(path, "lama-mine")

    assert relation_set.relations.get(name="P19").initial_prompts == [
        "<ENT0> was born in <ENT1> .",
        "<ENT1> is where <ENT0> was born .",
    ]
    assert relation_set.relations.count() == 2


@pytest.mark.parametrize(("name", "n_relations"), [("human", 14), ("lama", 41), ("ekar_aggr", 487)])
def test_the_published_relation_sets_are_imported(public_data, name, n_relations):
    relation_set = import_relations(public_data / "bertnet" / "relation_info" / f"{name}.json")

    assert relation_set.relations.count() == n_relations


def test_all_errors_are_reported_at_once_and_nothing_is_stored(tmp_path):
    path = own_file(
        tmp_path,
        PREVENT,
        {**PREVENT, "name": "has space"},
        {**PREVENT, "name": "one-slot", "initial_prompts": ["<ENT0> prevents"]},
        {**PREVENT, "name": "twice", "initial_prompts": ["<ENT0> prevents <ENT0>"]},
        {**PREVENT, "name": "seeds", "seed_tuples": [["a", "b"], ["c"], ["d", " "]]},
        {**PREVENT, "name": "none", "initial_prompts": []},
        PREVENT,
    )

    with pytest.raises(ImportRefused) as refusal:
        import_relations(path)

    assert {entry.where for entry in refusal.value.entries} >= {
        "line 1, relation 2 ('has space')",
        "line 1, relation 3 ('one-slot')",
        "line 1, relation 4 ('twice')",
        "line 1, relation 5 ('seeds'), seed tuple 2",
        "line 1, relation 5 ('seeds'), seed tuple 3",
        "line 1, relation 6 ('none')",
        "line 1, relation 7 ('prevent')",
    }
    assert not RelationSet.objects.exists()


@pytest.mark.parametrize("column", ["name", "statement", "explanation", "initial_prompts", "prompts"])
@pytest.mark.parametrize("control", ["\0", "\ud800"])
def test_control_characters_in_texts_are_rejected(tmp_path, column, control):
    text = f"<ENT0>{control}prevents<ENT1>"
    path = own_file(tmp_path, {**PREVENT, column: [text] if column.endswith("prompts") else text})

    with pytest.raises(ImportRefused, match=r"relation 1 .*has a control character"):
        import_relations(path)


def test_control_characters_in_a_description_are_rejected(tmp_path):
    document = {"name": "mine", "description": "\0", "relations": [PREVENT]}

    with pytest.raises(ImportRefused, match=r"description: .*has a control character"):
        import_relations(write(tmp_path, document))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("statement", "<ENT0> prevents <ENT1>" + "!" * 1_000, "has 1,022 characters; shorten it to 1,000"),
        ("initial_prompts", ["<ENT0> prevents <ENT1>" + "!" * 1_000], "shorten it to 1,000"),
        ("prompts", ["<ENT0> prevents <ENT1>" + "!" * 1_000], "shorten it to 1,000"),
        ("prompts", ["<ENT0> prevents <ENT1>"] * 2_001, "a list of up to 2,000 texts"),
        ("explanation", "!" * 2_001, "shorten it to 2,000"),
        ("seed_tuples", [["a", "b"]] * 2_001, "2,001 seed tuples; the maximum is 2,000"),
        ("initial_prompts", [" ".join(f"<ENT{slot}>" for slot in range(10))], "has 10 slots; use 2 to 9"),
    ],
)
def test_every_text_and_list_of_a_relation_has_a_limit(tmp_path, column, value, reason):
    with pytest.raises(ImportRefused, match=reason):
        import_relations(own_file(tmp_path, {**PREVENT, column: value}))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"statement": "<ENT0> . <ENT1>"}, "contains only slots"),
        ({"statement": None, "initial_prompts": ["<ENT0> <ENT1> ."]}, "contains only slots"),
        ({"statement": "Does <ENT0> prevent <ENT1>?"}, "is a question"),
        ({"statement": "<ENT0> prevents <ENT1>, not [Y]."}, r"'\[Y\]' is not a slot; use <ENT0>, <ENT1>"),
    ],
)
def test_unjudgeable_statement_in_a_file_is_rejected(tmp_path, fields, reason):
    with pytest.raises(ImportRefused, match=reason):
        import_relations(own_file(tmp_path, {**PREVENT, **fields}))


def test_a_description_has_a_limit(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"description": "!" * 2_001, "relations": [PREVENT]}))

    with pytest.raises(ImportRefused, match=r"description: .* shorten it to 2,000"):
        import_relations(path)


def test_the_first_errors_are_shown_and_all_are_counted(tmp_path):
    with pytest.raises(ImportRefused) as refusal:
        import_relations(own_file(tmp_path, *[{**PREVENT, "name": f"{n} {'x' * 2_000}"} for n in range(60)]))

    assert (len(refusal.value.entries), refusal.value.n_entries) == (20, 60)
    assert max(len(entry.reason) for entry in refusal.value.entries) <= 501


def test_at_most_twenty_errors_are_listed_one_per_line(tmp_path):
    with pytest.raises(ImportRefused) as refusal:
        import_relations(own_file(tmp_path, *[{**PREVENT, "name": f"no {n}"} for n in range(60)]))

    lines = str(refusal.value).splitlines()
    assert lines[0].endswith("rejected because of 60 errors:")
    assert [line.split(": ")[0].split(", ")[1] for line in lines[1:21]] == [
        f"relation {n + 1} ('no {n}')" for n in range(20)
    ]
    assert lines[21:] == ["  and 40 more"]


def test_a_statement_alone_is_the_initial_prompt(tmp_path):
    [alone] = [{key: value for key, value in PREVENT.items() if key != "initial_prompts"}]

    import_relations(own_file(tmp_path, {**alone, "statement": "<ENT0> prevents <ENT1>."}))

    assert Relation.objects.get().initial_prompts == ["<ENT0> prevents <ENT1>."]
    with pytest.raises(ImportRefused, match="initial prompts is required"):
        import_relations(own_file(tmp_path, {**alone, "statement": None, "name": "none"}))


def test_non_relation_entry_is_located(tmp_path):
    with pytest.raises(ImportRefused, match=r"line 1, relation 2: is not a relation; write"):
        import_relations(own_file(tmp_path, PREVENT, None))


def test_a_bad_relation_is_located_by_its_line(tmp_path):
    document = {"note": {"relations": [1]}, "relations": [PREVENT, {**PREVENT, "name": "no name"}], "name": "mine"}
    text = json.dumps(document, indent=1).replace("\n", "\r\n")

    with pytest.raises(ImportRefused) as refusal:
        import_relations(write(tmp_path, text))

    [entry] = refusal.value.entries
    assert entry.where == f"line {1 + text[: text.rindex('{')].count(chr(10))}, relation 2 ('no name')"


def test_bad_relation_in_reference_format_is_located_by_its_line(tmp_path):
    fine = '{"init_prompts": ["<ENT0> prevents <ENT1>"], "seed_ent_tuples": [["a", "b"], ["c", "d"]]}'
    bad = fine.replace("<ENT1>", "")

    with pytest.raises(ImportRefused, match=r"errors:\n  line 3, relation 'bad': .*\n  line 4, relation 'fine': has"):
        import_relations(write(tmp_path, f'{{"fine": {fine},\n\n"bad": {bad}, \n"fine":{fine}}}'))


def test_sentences_of_several_lines_are_stored_as_one(tmp_path):
    fields = {
        "initial_prompts": ["<ENT0> prevents\n\n<ENT1> ."],
        "prompts": ["## \r\n<ENT0> stops <ENT1> .", "<ENT0>\u2028keeps\u2029 <ENT1> away .\n"],
    }

    import_relations(own_file(tmp_path, {**PREVENT, **fields, "statement": "<ENT0>\nprevents <ENT1>."}))

    relation = Relation.objects.get()
    assert (relation.statement, relation.initial_prompts) == ("<ENT0> prevents <ENT1>.", ["<ENT0> prevents <ENT1> ."])
    assert relation.prompts == ["## <ENT0> stops <ENT1> .", "<ENT0> keeps <ENT1> away ."]


def test_a_lama_line_with_an_invalid_relation_name_is_located(tmp_path):
    lines = json.dumps({"relation": ["P19"], "template": "[X] was born in [Y] ."})

    with pytest.raises(ImportRefused, match=r"line 1: invalid relation name \['P19'\]"):
        import_relations(write(tmp_path, lines, "lama.jsonl"))


def test_broken_json_is_located(tmp_path):
    with pytest.raises(ImportRefused, match=r"mine.json: rejected because of an error in line 2, column 15"):
        import_relations(write(tmp_path, '{"name": "x",\n "relations": }'))


def test_a_file_in_another_encoding_is_located(tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(b'{"name":\n"caf\xe9"}')

    with pytest.raises(ImportRefused, match="line 2: is not UTF-8"):
        import_relations(path)


def test_a_built_in_set_is_not_overwritten(tmp_path):
    RelationSet.objects.create(name="mine", is_shipped=True)

    with refused("SetIsShipped", match="built-in"):
        import_relations(own_file(tmp_path, PREVENT))


def test_files_in_the_built_in_folder_become_built_in_sets(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "SHIPPED", tmp_path)

    assert import_relations(own_file(tmp_path, PREVENT)).is_shipped


def test_every_built_in_set_can_be_imported():
    files = sorted(services.SHIPPED.glob("*.json"))

    assert files
    assert all(import_relations(file).is_shipped for file in files)


def test_import_cannot_change_the_arity_of_a_harvested_relation(tmp_path):
    import_relations(own_file(tmp_path, PREVENT))
    factories.make_harvest_job(relation=Relation.objects.get())
    ternary = {
        "name": "prevent",
        "initial_prompts": ["<ENT0> prevents <ENT1> in <ENT2> ."],
        "seed_tuples": [["a", "b", "c"], ["d", "e", "f"]],
    }

    with pytest.raises(ImportRefused, match=r"has 3 slots, but the existing relation has .* with 2"):
        import_relations(own_file(tmp_path, ternary))

    assert Relation.objects.get().arity == 2


def test_import_cannot_change_the_arity_of_a_relation_with_tuples(tmp_path):
    import_relations(own_file(tmp_path, PREVENT))
    KnowledgeTuple.objects.create(relation=Relation.objects.get(), entities=["a", "b"], key=tuple_key(["a", "b"]))
    ternary = {
        "name": "prevent",
        "initial_prompts": ["<ENT0> prevents <ENT1> in <ENT2> ."],
        "seed_tuples": [["a", "b", "c"], ["d", "e", "f"]],
    }

    with pytest.raises(ImportRefused, match="has 3 slots"):
        import_relations(own_file(tmp_path, ternary))


def test_importing_costs_the_same_for_any_number_of_relations(tmp_path, django_assert_max_num_queries):
    path = own_file(tmp_path, *[{**PREVENT, "name": f"prevent-{number}"} for number in range(90)])

    for _ in range(2):  # to create, and to update
        with django_assert_max_num_queries(21):
            import_relations(path)

    assert Relation.objects.count() == 90


def test_export_and_import_preserve_a_set(public_data, tmp_path):
    published = import_relations(public_data / "bertnet" / "relation_info" / "ekar_aggr.json")

    again = import_relations(write(tmp_path, export_relations(published)), "again")

    columns = ["name", *services.COLUMNS]
    assert list(again.relations.order_by("name").values(*columns)) == list(
        published.relations.order_by("name").values(*columns)
    )
    assert again.relations.exclude(explanation="").count() == 327
