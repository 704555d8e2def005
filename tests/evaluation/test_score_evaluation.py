"""Known facts against corrupted ones, with scorers whose worth is known."""

import io
import json

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from evaluation.corruption import with_corruptions
from evaluation.services.score_evaluation import BadFacts, ScoredRelation, built_in_facts, evaluate_scores
from tests.factories import make_relation

CAPITALS = [("paris", "france"), ("rome", "italy"), ("oslo", "norway"), ("bern", "switzerland"), ("lima", "peru")]
FOOD = [("cow", "grass"), ("cat", "mice"), ("owl", "Mice"), ("goat", "grass")]
DOES = [("student", "study", "library"), ("actor", "act", "theatre"), ("chef", "cook", "kitchen")]
FACTS = {"capital": CAPITALS, "eats": FOOD, "does": DOES}


def samples():
    return with_corruptions(FACTS, np.random.default_rng(1))


def relations() -> list[ScoredRelation]:
    return [ScoredRelation(name, ["<ENT0> <ENT1>"], [], facts[:2], facts) for name, facts in FACTS.items()]


def knows_all(relation, tuples):
    return np.array([float(entities in FACTS[relation.name]) for entities in tuples])


def knows_nothing(relation, tuples):
    return np.zeros(len(tuples))


def test_a_corruption_is_never_a_fact_and_never_made_twice():
    folded = [(each.relation, tuple(map(str.casefold, each.entities))) for each in samples()]

    assert len(folded) == len(set(folded)) == 2 * sum(map(len, FACTS.values()))


@pytest.mark.parametrize(
    ("relation", "kinds"), [("capital", {"head", "tail", "relation"}), ("does", {"head", "tail", "slot 1"})]
)
def test_entities_and_relations_are_replaced_alike(relation, kinds):
    seen = set()
    for seed in range(20):
        corrupted = with_corruptions(FACTS, np.random.default_rng(seed))
        seen |= {each.corruption for each in corrupted if each.relation == relation}

    assert seen == {None, *kinds}  # no other relation has three entities


def test_a_replaced_entity_comes_from_the_same_slot():
    heads = {head for head, _ in CAPITALS}

    assert all(
        each.entities[0] in heads for each in samples() if each.relation == "capital" and each.corruption == "head"
    )


def test_who_knows_all_has_all_and_who_knows_nothing_has_chance():
    found = evaluate_scores(relations(), {"all": knows_all, "nothing": knows_nothing}, seed=0)

    by_name = {scorer["scorer"]: scorer for scorer in found["scorers"]}
    assert (found["n_positive"], found["n_negative"]) == (12, 12)
    assert by_name["all"]["average_precision"] == by_name["all"]["macro_average_precision"] == 1
    assert 0.5 < by_name["nothing"]["average_precision"] < 0.65  # expected of a random order, a little above a half
    assert {each["average_precision"] for each in found["by_corruption"] if each["scorer"] == "all"} == {1}


def test_the_same_seed_gives_the_same_figures():
    one, other = (evaluate_scores(relations(), {"all": knows_all}, seed=5) for _ in range(2))

    assert one == other


def test_nothing_to_score_is_refused():
    with pytest.raises(BadFacts, match="no fact beside the seed tuples"):
        evaluate_scores([], {"all": knows_all}, seed=0)


def test_the_built_in_facts_leave_out_the_seeds():
    capital = next(each for each in built_in_facts() if each.name == "capital_of")

    assert len(capital.facts) > 30
    assert not set(capital.facts) & set(capital.seed_tuples)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_lm_puts_its_facts_before_false_ones(tmp_path):
    world = next(each for each in built_in_facts() if each.name == "capital_of")
    make_relation(
        "capital",
        initial_prompts=list(world.initial_prompts),
        prompts=list(world.prompts),
        seed_tuples=world.seed_tuples,
    )
    facts = tmp_path / "facts.jsonl"
    facts.write_text(
        "\n".join(json.dumps({"relation": "capital", "entities": entities}) for entities in world.facts[:25])
    )
    out, figure = io.StringIO(), tmp_path / "curves.svg"

    options = ["--model", "embedded-small", "--facts", str(facts), "--figure", str(figure)]
    call_command("evaluate_scores", *options, stdout=out, stderr=io.StringIO())

    found = json.loads(out.getvalue())
    assert "multi (average precision" in figure.read_text()
    assert [scorer["scorer"] for scorer in found["scorers"]] == ["human", "top1", "multi"]
    assert all(scorer["average_precision"] > 0.8 for scorer in found["scorers"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 1: write one"),
        ('{"relation": "r", "entities": [1, 2]}', "every entity is a text"),
        ('{"relation": "capital", "entities": ["a"]}', "takes 2 entities"),
        ('{"relation": "nowhere", "entities": ["a", "b"]}', "There is no relation"),
    ],
)
def test_bad_facts_are_refused_with_what_is_wrong(tmp_path, line, complaint):
    make_relation("capital")
    facts = tmp_path / "facts.jsonl"
    facts.write_text(line)

    with pytest.raises(CommandError, match=complaint):
        call_command("evaluate_scores", "--facts", str(facts))
