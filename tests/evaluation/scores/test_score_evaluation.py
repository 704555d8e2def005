"""Score evaluation: facts compared with negative samples, using perfect and uninformative scorers."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from evaluation.models import ScoreEvaluation
from evaluation.scores.facts import ScoredRelation, built_in_facts, facts_of_content, training_of_content
from evaluation.scores.negative_sampling import with_negatives
from evaluation.scores.score_jobs import ScoreRequest, evaluate_now
from evaluation.scores.scorers import document_of, score_samples
from kgharvest.engine.types import HarvestParams
from kgharvest.errors import ImportRefused
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job
from kgharvest.jobs import ledger
from tests.factories import make_relation
from tests.refusals import refused

CAPITALS = [("paris", "france"), ("rome", "italy"), ("oslo", "norway"), ("bern", "switzerland"), ("lima", "peru")]
FOOD = [("cow", "grass"), ("cat", "mice"), ("owl", "Mice"), ("goat", "grass")]
DOES = [("student", "study", "library"), ("actor", "act", "theatre"), ("chef", "cook", "kitchen")]
FACTS = {"capital": CAPITALS, "eats": FOOD, "does": DOES}


def samples():
    return with_negatives(FACTS, np.random.default_rng(1))


def relations() -> list[ScoredRelation]:
    return [ScoredRelation(name, ["<ENT0> <ENT1>"], [], facts[:2], facts) for name, facts in FACTS.items()]


def perfect_scorer(relation, tuples, tick):
    return np.array([float(entities in FACTS[relation.name]) for entities in tuples])


def constant_scorer(relation, tuples, tick):
    return np.zeros(len(tuples))


def test_negative_samples_are_unique_and_not_facts():
    folded = [(sample.relation, tuple(map(str.casefold, sample.entities))) for sample in samples()]

    assert len(folded) == len(set(folded)) == 2 * sum(map(len, FACTS.values()))


@pytest.mark.parametrize(
    ("relation", "kinds"), [("capital", {"head", "tail", "relation"}), ("does", {"head", "tail", "slot 1"})]
)
def test_negative_samples_replace_entities_and_relations(relation, kinds):
    kinds_found = set()
    for seed in range(20):
        sampled = with_negatives(FACTS, np.random.default_rng(seed))
        kinds_found |= {sample.replaced for sample in sampled if sample.relation == relation}

    assert kinds_found == {None, *kinds}  # `does` is the only ternary relation


def test_replacement_entity_comes_from_the_same_slot():
    heads = {head for head, _ in CAPITALS}

    assert all(
        sample.entities[0] in heads
        for sample in samples()
        if sample.relation == "capital" and sample.replaced == "head"
    )


def test_perfect_and_constant_scorers_have_expected_precision():
    document = document_of(
        score_samples(relations(), {"all": perfect_scorer, "nothing": constant_scorer}, seed=0), seed=0
    )

    by_name = {scorer["scorer"]: scorer for scorer in document["scorers"]}
    assert (document["n_positive"], document["n_negative"]) == (12, 12)
    assert by_name["all"]["average_precision"] == by_name["all"]["macro_average_precision"] == 1
    assert 0.5 < by_name["nothing"]["average_precision"] < 0.65  # the expected value is slightly above .5
    assert {entry["average_precision"] for entry in document["by_corruption"] if entry["scorer"] == "all"} == {1}


def test_scorers_are_compared_like_report_settings():
    document = document_of(
        score_samples(relations(), {"all": perfect_scorer, "nothing": constant_scorer}, seed=0), seed=0
    )

    [compared] = document["comparisons"]
    by_relation = [
        [relation["average_precision"] for relation in scorer["relations"]] for scorer in document["scorers"]
    ]
    assert compared["difference"] == pytest.approx(np.mean(np.subtract(*by_relation)))
    assert (compared["a"], compared["b"], compared["n_relations"]) == ("all", "nothing", 3)
    assert compared["p_sign_flip"] == 0.25  # ahead in all three relations
    assert "all and nothing are not distinguishable" in compared["sentence"]


def test_negative_samples_exclude_seed_tuples():
    # (a, d) and (c, b) are the only possible corruptions of the facts, and (A, D) is a seed.
    facts = {"r": [("a", "b"), ("c", "d")]}

    for seed in range(20):
        sampled = with_negatives(facts, np.random.default_rng(seed), {"r": [("A", "D")]})
        assert [sample.entities for sample in sampled if sample.replaced] == [("c", "b")]


def test_facts_exclude_seed_tuples_ignoring_case():
    relation = ScoredRelation("capital", [], [], [], CAPITALS).without([("Paris", "FRANCE")])

    assert relation.facts == CAPITALS[1:]
    assert relation.learned_from == [("Paris", "FRANCE")]


def test_evaluation_is_reproducible_with_seed():
    first, second = (document_of(score_samples(relations(), {"all": perfect_scorer}, seed=5), seed=5) for _ in range(2))

    assert first == second


def test_evaluation_without_facts_is_rejected():
    with refused("BadFacts"):
        score_samples([], {"all": perfect_scorer}, seed=0)


def test_built_in_facts_exclude_seeds():
    capital = next(relation for relation in built_in_facts() if relation.name == "capital_of")

    assert len(capital.facts) > 30
    assert not set(capital.facts) & set(capital.seed_tuples)


# Command


@pytest.fixture
def capital(db):
    """The relation `capital` and 25 of its facts that the embedded LMs know."""
    world = next(relation for relation in built_in_facts() if relation.name == "capital_of")
    relation = make_relation(
        "capital",
        initial_prompts=list(world.initial_prompts),
        prompts=list(world.prompts),
        seed_tuples=world.seed_tuples,
    )
    return relation, world.facts[:25]


def lines(name: str, facts) -> str:
    facts = ({"relation": name, "entities": entities} for entities in facts)
    return "\n".join(json.dumps(fact, ensure_ascii=False) for fact in facts)


def make_request(facts, **fields) -> ScoreRequest:
    relations = facts_of_content(lines("capital", facts).encode(), "facts.jsonl")
    return ScoreRequest(get_language_model("embedded-small"), facts="facts.jsonl", relations=relations, **fields)


def test_embedded_lm_ranks_its_facts_above_false_tuples(tmp_path, capital):
    facts = tmp_path / "facts.jsonl"
    facts.write_text(lines("capital", capital[1]))
    out, figure = io.StringIO(), tmp_path / "curves.svg"

    options = ["--model", "embedded-small", "--facts", str(facts), "--figure", str(figure)]
    call_command("evaluate_scores", *options, stdout=out, stderr=io.StringIO())

    document = json.loads(out.getvalue())
    assert "multi" in figure.read_text()
    assert [scorer["scorer"] for scorer in document["scorers"]] == ["human", "top1", "multi"]
    assert all(scorer["average_precision"] > 0.8 for scorer in document["scorers"])
    assert ScoreEvaluation.objects.get().document == document


def test_command_prints_files_and_page_link(tmp_path, capital, settings):
    facts, output, samples = (tmp_path / name for name in ("facts.jsonl", "scores.json", "samples.jsonl"))
    facts.write_text(lines("capital", capital[1]))
    out = io.StringIO()

    options = ["--model", "embedded-small", "--setting", "human", "--facts", str(facts), "--samples", str(samples)]
    call_command("evaluate_scores", *options, "--output", str(output), stdout=out, stderr=io.StringIO())

    evaluation, document = ScoreEvaluation.objects.get(), json.loads(output.read_text())
    n, n_false = document["n_positive"], document["n_negative"]
    assert out.getvalue() == (
        f"{output}: 1 score of {n} facts and {n_false} false tuples of 1 relation.\n"
        f"{samples}: {n + n_false} tuples.\n"
        f"Scores of embedded-small: {settings.ORIGIN}/reports/scores/{evaluation.pk}/\n"
    )


def test_learned_prompts_can_be_scorers(capital):
    document = evaluate_now(make_request(capital[1], settings=["lpaqa", "soft"])).document

    assert [scorer["scorer"] for scorer in document["scorers"]] == ["lpaqa", "soft"]
    assert all(scorer["average_precision"] > 0.8 for scorer in document["scorers"])


def test_lpaqa_is_trained_on_facts_that_are_not_scored(tmp_path, capital):
    facts, train, samples = (tmp_path / name for name in ("facts.jsonl", "train.jsonl", "samples.jsonl"))
    facts.write_text(lines("capital", capital[1]))
    prompts = ["[X] is the capital of [Y] .", "[Y] has the capital [X] ."]
    rows = [json.dumps({"relation": "capital", "template": prompt}) for prompt in prompts]
    train.write_text("\n".join([*rows, lines("capital", capital[1][:10])]))
    out = io.StringIO()

    options = ["--setting", "human", "--baseline", "lpaqa-tail", "--facts", str(facts), "--train", str(train)]
    options += ["--model", "embedded-small", "--samples", str(samples)]
    call_command("evaluate_scores", *options, stdout=out, stderr=io.StringIO())

    document = json.loads(out.getvalue())
    assert [scorer["scorer"] for scorer in document["scorers"]] == ["human", "LPAQA log P(t|h)"]
    assert document["scorers"][1]["average_precision"] > 0.8
    scored = [tuple(json.loads(line)["entities"]) for line in samples.read_text().splitlines()]
    assert not {*capital[1][:10]} & {*scored}
    [stored] = ScoreEvaluation.objects.get().payload["relations"]
    assert len(stored["train"]) == 10
    assert stored["train_prompts"] == ["<ENT0> is the capital of <ENT1> .", "<ENT1> has the capital <ENT0> ."]


def test_lpaqa_without_training_facts_uses_the_seed_tuples(capital):
    relation, facts = capital
    request = make_request(facts, settings=["human"], more=["lpaqa-tail"])
    trained = replace(request, train={relation.path: [*map(tuple, relation.seed_tuples), *relation.prompts]})

    documents = [evaluate_now(each).document for each in (request, trained)]

    curves = [document["scorers"][1]["curve"] for document in documents]
    assert curves[0] == curves[1]


def test_training_facts_of_other_relations_are_refused(capital):
    with refused("BadFacts", match="no facts of the scored relations"):
        evaluate_now(make_request(capital[1], settings=["human"], train={"set/other": [("a", "b")]}))


@pytest.mark.parametrize(
    ("template", "complaint"),
    [("[X] only", r"line 1: has 1 instead of 2 slots in '\[X\] only'"), (3, "line 1: template is not a text")],
)
def test_invalid_training_prompts_are_refused(capital, template, complaint):
    with pytest.raises(ImportRefused, match=complaint):
        training_of_content(json.dumps({"relation": "capital", "template": template}).encode(), "train.jsonl")


def test_harvest_prompts_are_scored_without_its_seeds(capital):
    relation, facts = capital
    params = HarvestParams(candidates=5, max_tuples=5)
    job = create_harvest_job(HarvestRequest(relation, get_language_model("embedded-small"), "multi", params))
    ledger.run_job(job.pk)
    seeds = [tuple(seed) for seed in job.payload["spec"]["seed_tuples"]]
    relation.seed_tuples = [list(facts[0]), list(facts[1])]  # otherwise the seeds of the harvest could not be facts
    relation.save()

    document = evaluate_now(make_request([*facts, *seeds], settings=["multi"], harvested=["multi"])).document

    assert [scorer["scorer"] for scorer in document["scorers"]] == ["multi", "multi (as harvested)"]
    assert document["harvests"] == {"multi": {"capital": job.pk}}
    assert document["scorers"][1]["average_precision"] > 0.8
    assert document["n_left_out"] == len(seeds)
    assert document["n_positive"] == len(facts) - 2


def test_harvest_prompts_score_as_fresh_prompts(capital):
    relation, facts = capital
    request = HarvestRequest(relation, get_language_model("embedded-small"), "multi", HarvestParams(candidates=5))
    ledger.run_job(create_harvest_job(request).pk)

    document = evaluate_now(make_request(facts, settings=["multi"], harvested=["multi"])).document

    fresh, stored = document["scorers"]
    assert stored["average_precision"] == pytest.approx(fresh["average_precision"], abs=1e-9)
    assert stored["curve"] == fresh["curve"]


def test_setting_without_finished_harvest_is_rejected(capital):
    with refused("NothingHarvested", match="no finished harvest with"):
        evaluate_now(make_request(capital[1], harvested=["top1"]))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 1, column 2: is not JSON"),
        ("[]", "line 1: is no"),
        ('{"relation": "capital", "entities": [1, 2]}', "line 1: has an entity that is empty or not a text"),
        ('{"relation": "capital", "entities": ["a"]}', r"line 1: has no list of 2 entities .*capital"),
        ('{"relation": "nowhere", "entities": ["a", "b"]}', "line 1: .* There is no relation"),
        (r'{"relation": "capital\ud800", "entities": ["a", "b"]}', "line 1: names a relation with a control character"),
        (r'{"relation": "capital\u0000", "entities": ["a", "b"]}', "line 1: names a relation with a control character"),
        ("", "has no facts"),
    ],
)
def test_invalid_facts_are_rejected_with_reason(tmp_path, line, complaint):
    make_relation("capital")
    facts = tmp_path / "facts.jsonl"
    facts.write_text(line)

    with pytest.raises(CommandError, match=complaint):
        call_command("evaluate_scores", "--facts", str(facts))
    assert not ScoreEvaluation.objects.exists()


@pytest.mark.django_db
def test_unknown_relation_message_ends_with_one_period():
    make_relation("capital")

    with pytest.raises(ImportRefused, match=r"There is no relation 'nowhere'.*[^.]\.$"):
        facts_of_content(lines("nowhere", [("a", "b")]).encode(), "facts.jsonl")


@pytest.mark.django_db
def test_every_invalid_line_is_reported():
    make_relation("capital")
    content = lines("capital", [("a", "b"), ("a",), ("c", "d"), ()])

    with pytest.raises(ImportRefused) as refusal:
        facts_of_content(content.encode(), "facts.jsonl")

    assert [entry.where for entry in refusal.value.entries] == ["line 2", "line 4"]


@pytest.mark.django_db
def test_unicode_line_separators_do_not_split_facts():
    make_relation("capital")
    separated = ("a\u2028b", "c\u2029d")  # valid unescaped characters in JSON strings

    [relation] = facts_of_content(lines("capital", [separated, ("x", "y")]).encode(), "facts.jsonl")

    assert list(relation.facts) == [separated, ("x", "y")]
