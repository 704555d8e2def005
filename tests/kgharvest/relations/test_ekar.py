"""Relations from E-KAR analogies. The analogies below are made up; their format is that of the public files."""

import json

import pytest

from kgharvest.errors import ImportRefused
from kgharvest.relations.ekar import prompt_of
from kgharvest.relations.services import import_relations

pytestmark = pytest.mark.django_db


def analogy(question, choices, answer, explanations, **others):
    labels = [chr(ord("A") + index) for index in range(len(choices))]
    fields = {"question": question, "choices": {"label": labels, "text": choices}, "answerKey": answer}
    return json.dumps({**fields, "explanation": explanations, **others}) + "\n"


@pytest.mark.parametrize(
    ("explanation", "entities", "prompt"),
    [
        ('the "army" follows "order", and "army" is collective.', ["army", "order"], "The <ENT0> follows <ENT1> ."),
        ('"Laws" include "civil law".', ["civil law", "law"], "<ENT1>s include <ENT0> ."),
        (
            'both "cup" and "plate", in a kitchen, are dishes.',
            ["cup", "plate"],
            "Both <ENT0> and <ENT1>, in a kitchen .",
        ),
        ('a "dog" is a "dog" and a "pet".', ["dog", "pet"], None),
        ('a "dog" barks.', ["dog", "pet"], None),
    ],
)
def test_prompt_is_the_first_clause_with_both_entities(explanation, entities, prompt):
    assert prompt_of(explanation, entities) == prompt


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_analogies_are_imported_as_relations(tmp_path, ending):
    path = tmp_path / f"ekar.{ending}"
    path.write_text(
        analogy("oven:bread", ["kiln:cup", "sea:fish"], "A", ['"oven" bakes "bread".', "", ""], id="1f-en")
        + analogy("oak:tree", ["rose:leaf", "cod:fish"], "B", ["It grows.", "", 'A "cod" is a "fish".'], id="2f-en")
        + analogy("a:b:c", ["d:e:f", "g:h:i"], "A", ["a b c", "", ""])
        + analogy("oak:tree", ["rose:leaf", "cod:fish"], "", ["It grows."])
        + analogy("oak:tree", ["rose:leaf", "cod:fish"], "A", ["It grows."])
    )

    relation_set = import_relations(path)

    relations = {relation.name: relation for relation in relation_set.relations.all()}
    assert {name: relation.initial_prompts for name, relation in relations.items()} == {
        "EKAR_1f-en": ["<ENT0> bakes <ENT1> ."],
        "EKAR_2f-en": ["A <ENT0> is a <ENT1> ."],
    }
    assert relations["EKAR_1f-en"].seed_tuples == [["oven", "bread"], ["kiln", "cup"]]
    assert relations["EKAR_2f-en"].seed_tuples == [["oak", "tree"], ["cod", "fish"]]
    assert relation_set.description == (
        "Relations from 2 of 5 analogies of E-KAR. Skipped: 1 not of two different pairs. "
        "Skipped: 1 whose explanations do not name both entities once. Skipped: 1 without an answer."
    )


def test_analogies_with_empty_parts_are_skipped_and_counted(tmp_path):
    path = tmp_path / "ekar.jsonl"
    short = json.loads(analogy("oak:tree", ["cod:fish", "rose:leaf"], "B", ['An "oak" is a "tree".', "", ""]))
    short["choices"]["text"].pop()
    path.write_text(
        analogy("oven:bread", ["kiln:cup"], "A", ['"oven" bakes "bread".', ""])
        + analogy("oak:tree", ["cod:fish"], "A", [])
        + analogy(":tree", ["cod:fish"], "A", ['A "tree" grows.', ""])
        + analogy("oak:tree", ["cod: "], "A", ['An "oak" is a "tree".', ""])
        + json.dumps(short)
    )

    relation_set = import_relations(path)

    assert relation_set.relations.get().seed_tuples == [["oven", "bread"], ["kiln", "cup"]]
    assert relation_set.description == (
        "Relations from 1 of 5 analogies of E-KAR. Skipped: 2 not of two different pairs. "
        "Skipped: 1 whose explanations do not name both entities once. Skipped: 1 without an answer."
    )


def test_lines_of_another_shape_are_refused_with_their_numbers(tmp_path):
    path = tmp_path / "ekar.jsonl"
    path.write_text(analogy("a:b", ["c:d"], "A", ["a b", ""]) + '{"question": "a:b", "choices": []}\n[]\n')

    with pytest.raises(ImportRefused) as refusal:
        import_relations(path)

    assert [entry.where for entry in refusal.value.entries] == ["line 2", "line 3"]
    assert "is not an analogy of E-KAR" in str(refusal.value)
