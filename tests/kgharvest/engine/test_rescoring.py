"""Re-scoring: the most consistent casing, without reading casings that cannot be the most consistent."""

from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from math import log
from random import Random

import numpy as np
import pytest

from kgharvest.engine import harvest as pipeline
from kgharvest.engine import rescoring
from kgharvest.engine.entities import entity_of
from kgharvest.engine.harvest import rank
from kgharvest.engine.parts import InTurn, Question
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.rescoring import casings, rescore, with_common_heads
from kgharvest.engine.scoring import compatibilities, consistency
from kgharvest.engine.search import Candidate
from kgharvest.engine.types import HarvestParams, ignore
from tests.kgharvest.engine.fakes import FakeLM

WORDS = ["paris", "Paris", "france", "France", "rome", "Rome"]


def cased_lm(probabilities, by_prompt=None):
    lm = FakeLM(WORDS, probabilities, by_prompt or {})
    lm.is_cased = True
    return lm


def candidate(*entities):
    return Candidate((1,) * len(entities), entities=tuple(map(entity_of, entities)), is_complete=True)


def rescored(lm, candidates, weights=(1.0,)):
    prompts = [lm.encode_prompt(PromptTemplate.parse(text)) for text in ("<ENT0> in <ENT1>", "<ENT1> has <ENT0>")]
    prompt_set = PromptSet(tuple(prompts[: len(weights)]), weights)
    return prompt_set, rescore(lm, prompt_set, candidates, HarvestParams(), lambda n_done: None)


def test_casing_with_unlikely_head_is_not_read():
    lm = cased_lm({(): {"Paris": 0.6, "paris": 0.05}, ("Paris",): {"France": 0.5, "france": 0.1}})

    _, [scored] = rescored(lm, [candidate("paris", "france")])

    # log .05 < 2/3 (log .6 + log .5) + 1/3 log .5, so no tail after "paris" can make up for the head
    assert scored.surface == ("Paris", "France")
    assert scored.score == pytest.approx(2 / 3 * log(0.3) + 1 / 3 * log(0.5), abs=1e-6)
    assert len(lm.scored_queries) == 2  # the head, and the tail after "Paris"


def test_casing_with_likelier_head_can_lose_by_its_tail():
    lm = cased_lm(
        {
            (): {"Paris": 0.6, "paris": 0.3},
            ("Paris",): {"France": 0.01, "france": 0.02},
            ("paris",): {"France": 0.9, "france": 0.05},
        }
    )

    _, [scored] = rescored(lm, [candidate("paris", "france")])

    assert scored.surface == ("paris", "France")
    assert scored.score == pytest.approx(2 / 3 * log(0.27) + 1 / 3 * log(0.3), abs=1e-6)


def test_common_heads_are_read_once():
    lm = cased_lm({(): {"Paris": 0.9}})

    rescored(lm, [candidate("paris", "france"), candidate("rome", "france"), candidate("paris", "rome")])

    assert len(lm.scored_queries) == len(set(lm.scored_queries))


def test_common_heads_are_read_once_across_chunks(monkeypatch):
    monkeypatch.setattr(rescoring, "MAX_TOGETHER", 2)
    lm = cased_lm({(): {"Paris": 0.5, "paris": 0.3}})
    pairs = permutations(["paris", "rome", "france"], 2)

    rescored(lm, [candidate(*pair) for pair in pairs])

    n_read = Counter(lm.scored_queries)
    assert {query.position for query, n in n_read.items() if n > 1} == {0}  # only the prompt without any token
    assert max(n_read.values()) == 3  # once per chunk


@pytest.mark.parametrize("seed", range(10))
def test_scores_equal_best_of_all_casings(seed):
    random = Random(seed)

    def distribution():
        numbers = [random.random() ** 4 for _ in WORDS]
        return {word: number / sum(numbers) for word, number in zip(WORDS, numbers, strict=True)}

    def table():
        prefixes = [prefix for n in range(3) for prefix in product(WORDS, repeat=n)]
        return {prefix: distribution() for prefix in prefixes}

    lm = cased_lm(table(), {"<ENT1> has <ENT0>": table()})
    candidates = [candidate(*pair) for pair in product(["paris", "Rome", "Paris france"], ["france", "rome"])]

    prompt_set, scored = rescored(lm, candidates, (0.7, 0.3))

    score_of = {scored_tuple.entities: scored_tuple for scored_tuple in scored}
    assert len(score_of) == len(candidates)
    for tuple_ in candidates:
        variants = casings(lm, prompt_set.prompts, tuple_)
        fits = compatibilities(lm, prompt_set.prompts, [ids for _, ids in variants], 2 / 3, 8, lambda: None)
        scores = consistency(fits, np.array(prompt_set.weights))
        assert score_of[tuple_.folded].score == pytest.approx(scores.max(), abs=1e-9)
        assert score_of[tuple_.folded].surface == variants[scores.argmax()][0]


@pytest.mark.parametrize(("max_tuples", "cap"), list(product([1, 6, 40], [1, 3, None])))
def test_limited_list_equals_start_of_whole_list(max_tuples, cap):
    random = Random(f"{max_tuples} {cap}")
    words = [f"word{number}" for number in range(14)]
    weights = {prefix: [random.random() ** 6 for _ in words] for prefix in [(), *((word,) for word in words)]}
    lm = FakeLM(
        words, {key: dict(zip(words, (x / sum(row) for x in row), strict=True)) for key, row in weights.items()}
    )
    prompt = PromptTemplate.parse("<ENT0> in <ENT1>")
    question = Question(PromptSet((lm.encode_prompt(prompt),), (1.0,)), (prompt,), HarvestParams())
    candidates = [replace(candidate(*pair), costs=(10 * random.random(),)) for pair in permutations(words, 2)]
    whole = rescored_in_turn(lm, question, candidates)
    params = HarvestParams(max_tuples=max_tuples, max_entity_repeats=cap)

    limited = rescored_in_turn(lm, replace(question, params=params), candidates)

    assert rank(limited, params) == rank(whole, params)


def test_heads_below_limited_list_are_not_read():
    lm = FakeLM(["paris", "rome", "france", "italy"], {(): {"paris": 0.9, "rome": 0.05}, ("paris",): {"france": 0.9}})
    prompt = PromptTemplate.parse("<ENT0> in <ENT1>")
    prompt_set = PromptSet((lm.encode_prompt(prompt),), (1.0,))
    candidates = [
        replace(candidate("paris", "france"), costs=(-log(0.9), -log(0.9))),
        replace(candidate("rome", "italy"), costs=(-log(0.05), -log(0.01))),
    ]

    scored = rescored_in_turn(lm, Question(prompt_set, (prompt,), HarvestParams(max_tuples=1)), candidates)

    assert [scored_tuple.entities for scored_tuple in scored] == [("paris", "france")]
    assert {query.ids[1:] for query in lm.scored_queries} == {(-1, -1), (0, -1)}  # no tail after "rome"


def rescored_in_turn(lm, question, candidates):
    return pipeline.rescored(lm, question, candidates, InTurn(ignore))


def test_tuples_with_common_head_stay_together():
    candidates = [candidate(head, tail) for tail in ("france", "rome") for head in ("paris", "berlin", "athens")]

    together = with_common_heads(candidates, 3)

    assert [[pair.folded[0] for pair in chunk] for chunk in together] == [
        ["athens", "athens", "berlin", "berlin"],
        ["paris", "paris"],
    ]
