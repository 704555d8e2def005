"""Built-in relation sets: completeness, format, and unique names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.models import Relation, RelationSet
from kgharvest.relations.names import DEMO_SET, resolve_relation
from kgharvest.relations.services import SHIPPED, import_relations, load_shipped_sets

SIZES = {"human": 14, "commonsense": 20, "lama": 41}  # files and their numbers of relations
TERNARY = {"featured_thing", "need_a_to_do_b", "a_do_b_at"}


def relations_in(file: str) -> list[dict[str, Any]]:
    return json.loads((SHIPPED / f"{file}.json").read_text(encoding="utf-8"))["relations"]


RELATIONS = {f"{file}/{relation['name']}": relation for file in SIZES for relation in relations_in(file)}


def templates_of(relation: dict[str, Any]) -> list[PromptTemplate]:
    return [PromptTemplate.parse(text) for text in [relation["statement"], *relation["initial_prompts"]]]


@pytest.mark.django_db
@pytest.mark.parametrize(("file", "n_relations"), SIZES.items())
def test_a_built_in_set_is_imported_completely_without_predefined_prompts(file, n_relations):
    relation_set = import_relations(SHIPPED / f"{file}.json")

    relations = list(relation_set.relations.all())
    assert (relation_set.name, relation_set.is_shipped) == (f"kgharvest-{file}", True)
    assert len(relations) == n_relations
    assert not any(relation.prompts for relation in relations)
    assert {relation.name for relation in relations if relation.arity == 3} == (TERNARY if file == "human" else set())


@pytest.mark.django_db
def test_published_sets_can_be_imported_in_addition_to_built_in_sets(public_data):
    load_shipped_sets()

    for file in ("human", "lama"):
        relation_set = import_relations(public_data / "bertnet" / "relation_info" / f"{file}.json")
        assert (relation_set.name, relation_set.is_shipped) == (file, False)


def faulty(check: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Return the relations that fail the check."""
    return [name for name, relation in RELATIONS.items() if not check(relation)]


def test_statement_and_prompts_have_a_slot_for_each_entity():
    def is_consistent(relation) -> bool:
        arities = {template.arity for template in templates_of(relation)}
        return len(arities) == 1 and {len(entities) for entities in relation["seed_tuples"]} == arities

    assert faulty(is_consistent) == []


def test_statements_are_typeset_as_sentences_and_prompts_as_tokens():
    def is_typeset(relation) -> bool:
        sentences = [relation["statement"], relation["explanation"]]
        prompts = relation["initial_prompts"]
        return all(
            re.fullmatch(r"[A-Z<].*[^ ]\.", text) and not re.search("  | [,.]", text) for text in sentences
        ) and all(prompt.endswith(" .") and not re.search(r"  |\S[,.]", prompt) for prompt in prompts)

    assert faulty(is_typeset) == []


def test_no_article_depends_on_the_entity():
    def has_no_article(relation) -> bool:
        texts = [template.text for template in templates_of(relation)]
        return not any(re.search(r"\b(a|an) <ENT", text, re.IGNORECASE) for text in texts)

    assert faulty(has_no_article) == []


def test_relations_have_at_least_five_distinct_seed_tuples():
    def has_good_seeds(relation) -> bool:
        seeds = [tuple(entity.casefold() for entity in entities) for entities in relation["seed_tuples"]]
        is_stripped = all(entity == entity.strip() for entities in seeds for entity in entities)
        return len(seeds) >= 5 and len(set(seeds)) == len(seeds) and is_stripped

    assert faulty(has_good_seeds) == []


def test_entities_are_distinguishable_from_the_surrounding_words():
    found = [
        (name, template.text, entity)
        for name, relation in RELATIONS.items()
        for template in templates_of(relation)
        for entities in relation["seed_tuples"]
        for entity in entities
        if re.search(rf"\b{re.escape(entity.casefold())}\b", " ".join(template.segments).casefold())
    ]

    assert found == []


def test_no_seed_tuple_serves_two_relations_of_a_set():
    for file in SIZES:
        seeds = Counter(tuple(entities) for relation in relations_in(file) for entities in relation["seed_tuples"])
        assert [entities for entities, n in seeds.items() if n > 1] == []


def test_lama_relations_name_their_wikidata_property():
    ids = [re.match(r"Wikidata (P\d+): ", relation["explanation"])[1] for relation in relations_in("lama")]

    assert len(set(ids)) == SIZES["lama"]


def test_lama_has_the_published_properties(public_data):
    published = json.loads((public_data / "bertnet" / "relation_info" / "lama.json").read_text(encoding="utf-8"))

    ids = {re.match(r"Wikidata (P\d+)", relation["explanation"])[1] for relation in relations_in("lama")}
    assert ids == {name.split("_")[0] for name in published}


def test_seed_tuples_differ_from_the_reference_code(public_data):
    for file in ("human", "lama"):
        published = json.loads((public_data / "bertnet" / "relation_info" / f"{file}.json").read_text(encoding="utf-8"))
        published_seeds = {
            tuple(entity.casefold() for entity in entities)
            for fields in published.values()
            for entities in fields["seed_ent_tuples"]
        }
        built_in_seeds = {
            tuple(entity.casefold() for entity in entities)
            for relation in relations_in(file)
            for entities in relation["seed_tuples"]
        }
        assert not built_in_seeds & published_seeds


# Names


@pytest.mark.django_db
def test_bare_names_of_built_in_relations_are_unambiguous():
    load_shipped_sets()

    for name in set(Relation.objects.values_list("name", flat=True)):
        relation = resolve_relation(name)
        in_demo = Relation.objects.filter(name=name, relation_set__name=DEMO_SET).exists()
        assert (relation.relation_set.name == DEMO_SET) == in_demo


@pytest.mark.django_db
def test_all_built_in_sets_are_loaded_for_the_demo():
    load_shipped_sets()

    names = set(RelationSet.objects.filter(is_shipped=True).values_list("name", flat=True))
    assert names == {DEMO_SET, *(f"kgharvest-{file}" for file in SIZES)}
