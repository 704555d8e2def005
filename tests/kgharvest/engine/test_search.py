"""Best-first search, compared with brute force for all batch sizes and prompt orders."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import exp

import pytest
import torch

from kgharvest.engine import harvest as pipeline
from kgharvest.engine import ranking, rescoring
from kgharvest.engine.consistency_search import ConsistencySearch, PromptRanker
from kgharvest.engine.entities import Entity, EntityVocabulary
from kgharvest.engine.filters import FILTERS, EntityFilter
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.strategies import weigh_prompts
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.search import (
    BestFirstSearch,
    Candidate,
    best_of_equals,
    merge_found,
    pattern_groups,
)
from kgharvest.engine.types import Cancelled, HarvestParams
from tests.kgharvest.engine.brute_force import BruteForce
from tests.kgharvest.engine.fakes import FakeLM
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta
from tests.sampling import every

TOLERANCE = 1e-4  # nats; closer tuples may swap places
BINARY = ("<ENT0> the <ENT1> .", "bad <ENT1> cab <ENT0>", "<ENT1>s dab <ENT0> .")
TERNARY = ("<ENT0> the <ENT1> bad <ENT2> .", "<ENT2> dab <ENT1> , <ENT0>")
WEIGHTS = {3: (0.5, 0.3, 0.2), 2: (0.7, 0.3)}
LETTERS_ALLOWED = frozenset({"short", "one_letter_word"})  # tiny vocabularies consist of letters
NO_FILTERS = frozenset(FILTERS)


class Case:
    """A tiny LM with weighted prompts, and a brute-force search over the same LM."""

    def __init__(self, folder, prompts, lead):
        self.lm = load(str(folder))
        self.prompts = prompts
        self.weights = WEIGHTS[len(prompts)]
        self.brute_force = BruteForce(folder, prompts, self.weights, lead)

    def parts(self, params, order=None):
        """Return the token ranker for the prompts in `order` and the entity vocabulary."""
        order = order or range(len(self.prompts))
        templates = [PromptTemplate.parse(self.prompts[index]) for index in order]
        weights = [self.weights[index] for index in order]
        encoded = [self.lm.encode_prompt(template) for template in templates]
        vocabulary = EntityVocabulary(self.lm, EntityFilter(templates, params.disabled_filters))
        return TokenRanker(self.lm, encoded, weights, params.batch_size), vocabulary

    def search(self, params, patterns, order=None, report=lambda n_found: None):
        search = BestFirstSearch(*self.parts(params, order), params, report)
        search.run(patterns)
        return search

    def parts_by_prompt(self, params):
        _, vocabulary = self.parts(params)
        encoded = tuple(self.lm.encode_prompt(PromptTemplate.parse(text)) for text in self.prompts)
        return PromptRanker(self.lm, PromptSet(encoded, self.weights), params.batch_size), vocabulary

    def search_by_consistency(self, params, patterns):
        search = ConsistencySearch(*self.parts_by_prompt(params), params, lambda n: None)
        return search.run(patterns).candidates

    def search_all(self, params):
        groups = pattern_groups(2, params)
        found = [BestFirstSearch(*self.parts(params), params, lambda n: None).run(group) for group in groups]
        return merge_found(groups, found)

    def expected(self, params, patterns):
        cap = None if params.max_entity_repeats is None else 4 * params.max_entity_repeats
        return self.brute_force.search(patterns, params.candidates, cap, params.disabled_filters)


def make_case(folder, family, prompts):
    if family == "wordpiece":
        return Case(tiny_bert(folder, seed=3, words=("cab", "bad", "dab")), prompts, lead="")
    return Case(tiny_roberta(folder, seed=5, words=("cab", "Bad", "bad")), prompts, lead=" ")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    torch.set_num_threads(1)
    cases = {}

    def get(family, prompts):
        if (family, prompts) not in cases:
            cases[family, prompts] = make_case(tmp_path_factory.mktemp("lm"), family, prompts)
        return cases[family, prompts]

    return get


def assert_same_tuples(candidates, expected):
    """Assert equal tuples in equal order. Tuples within TOLERANCE in every token may swap."""
    assert len(candidates) == len(expected)
    by_entities = {(candidate.entities, candidate.surface): candidate for candidate in expected}
    for candidate, right in zip(candidates, expected, strict=True):
        same = by_entities[candidate.folded, candidate.surface]
        assert candidate.mtl == pytest.approx(same.mtl, abs=TOLERANCE)
        assert sorted(same.logprobs) == pytest.approx(sorted(right.logprobs), abs=TOLERANCE)


QUESTIONS = [
    (BINARY, [(1, 1)]),
    (BINARY, [(2, 1)]),
    (BINARY, [(1, 1), (1, 2), (2, 1), (2, 2)]),
    (TERNARY, [(1, 1, 1)]),
    (TERNARY, [(1, 1, 1), (1, 1, 2), (2, 1, 1)]),
]


@pytest.mark.parametrize(
    ("cap", "disabled", "family", "question"),
    every(7, product([None, 1], [LETTERS_ALLOWED, NO_FILTERS], ["wordpiece", "byte-level bpe"], QUESTIONS)),
)
def test_search_equals_brute_force(cases, monkeypatch, family, question, disabled, cap):
    prompts, patterns = question
    case = cases(family, prompts)
    params = HarvestParams(candidates=60, max_entity_repeats=cap, disabled_filters=disabled)
    expected = case.expected(params, patterns)

    first = case.search(params, patterns)

    assert_same_tuples(first.tuples, expected)
    # Small values force repeated token rankings and split logits.
    monkeypatch.setattr(ranking, "TOP_K", 3)
    monkeypatch.setattr(ranking, "LOGITS_AT_ONCE", 1)
    for batch_size in (1, 7):
        repeated = case.search(replace(params, batch_size=batch_size), patterns, order=range(len(prompts))[::-1])
        assert_same_tuples(repeated.tuples, expected)
        assert repeated.rejected == first.rejected


QUESTIONS_BY_SIZE = sorted(QUESTIONS, key=lambda question: (len(question[1]), sum(question[1][0])))


@pytest.mark.parametrize(
    ("cap", "disabled", "family", "question"),
    every(15, product([None, 2], [NO_FILTERS, LETTERS_ALLOWED], ["byte-level bpe", "wordpiece"], QUESTIONS_BY_SIZE)),
)
def test_search_by_consistency_equals_brute_force(cases, monkeypatch, family, question, disabled, cap):
    prompts, patterns = question
    case = cases(family, prompts)
    params = HarvestParams(max_tuples=60, max_entity_repeats=cap, disabled_filters=disabled, order="consistency")
    expected = case.brute_force.search_by_consistency(patterns, 60, cap, disabled)

    assert_same_scores(case.search_by_consistency(params, patterns), expected)
    # Small values force repeated token rankings and split logits.
    monkeypatch.setattr(ranking, "TOP_K", 3)
    monkeypatch.setattr(ranking, "LOGITS_AT_ONCE", 1)
    for batch_size in (1, 7):
        assert_same_scores(case.search_by_consistency(replace(params, batch_size=batch_size), patterns), expected)


def assert_same_scores(candidates, expected):
    """Assert equal scores in equal order, and the same tuples up to ties."""
    assert [candidate.score for candidate in candidates] == pytest.approx(
        [score for _, score in expected], abs=TOLERANCE
    )
    clear = {candidate.surface for candidate in candidates if candidate.score > candidates[-1].score + TOLERANCE}
    assert clear <= {candidate.surface for candidate, _ in expected}


def test_search_by_consistency_reads_only_necessary_states(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(max_tuples=5, disabled_filters=LETTERS_ALLOWED, batch_size=1, order="consistency")
    search = ConsistencySearch(*case.parts_by_prompt(params), params, lambda n_found: None)

    [*_, last] = search.run([(1, 1)]).candidates

    mask = (case.lm.mask_id,)
    heads = sum(
        weight * case.brute_force.log_distribution(prompt, (mask, mask), 0, 0)
        for prompt, weight in zip(case.prompts, case.weights, strict=True)
    )
    admissible = [token for token in range(len(heads)) if case.lm.starts_entity[token]]
    assert search._ranker.n_states <= 1 + sum(heads[token].item() >= last.score - TOLERANCE for token in admissible)


@pytest.mark.parametrize("family", ["wordpiece", "byte-level bpe"])
def test_search_by_consistency_ends_at_the_minimum_score(cases, family):
    case = cases(family, BINARY)
    params = HarvestParams(max_tuples=60, max_entity_repeats=None, disabled_filters=NO_FILTERS, order="consistency")
    expected = case.brute_force.search_by_consistency([(1, 1)], 60, None, NO_FILTERS)
    least = (expected[9][1] + expected[10][1]) / 2
    limited = replace(params, min_score=least, batch_size=1)

    found = case.search_by_consistency(limited, [(1, 1)])

    assert expected[9][1] > expected[10][1] + 2 * TOLERANCE
    assert_same_scores(found, expected[:10])
    by_score = replace(limited, min_score=found[-1].score)  # a tuple with exactly the minimum score is in the list
    assert len(case.search_by_consistency(by_score, [(1, 1)])) == 10


@pytest.mark.parametrize("family", ["wordpiece", "byte-level bpe"])
def test_patterns_have_separate_candidates_unless_budget_is_shared(cases, family):
    case = cases(family, BINARY)
    params = HarvestParams(candidates=20, max_entity_repeats=1, disabled_filters=LETTERS_ALLOWED)
    patterns = [(1, 1), (1, 2), (2, 1), (2, 2)]
    shared_budget = replace(params, pattern_budget="shared")

    separate = case.search_all(params)
    shared = case.search_all(shared_budget)

    best = {}
    for candidate in sorted(
        (candidate for pattern in patterns for candidate in case.expected(params, [pattern])), key=lambda c: c.order
    ):
        best.setdefault(candidate.entities, candidate)
    assert_same_tuples(separate.candidates, list(best.values()))
    assert_same_tuples(shared.candidates, case.expected(params, patterns))


def test_best_of_equals_keeps_duplicate_with_best_mtl():
    def candidate(surface, *costs):
        return Candidate((1,), costs=costs, entities=(Entity(surface, surface.casefold(), ()),), is_complete=True)

    best = best_of_equals([candidate("Rome", 2.0), candidate("Oslo", 1.5), candidate("rome", 1.0, 0.5)])

    assert [(kept.surface, kept.mtl) for kept in best] == [(("rome",), -1.0), (("Oslo",), -1.5)]


def test_exhausted_vocabulary_returns_all_tuples(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(candidates=10**6, disabled_filters=LETTERS_ALLOWED)

    search = case.search(params, [(1, 1)])

    assert_same_tuples(search.tuples, case.expected(params, [(1, 1)]))
    assert search.notice is None


@pytest.mark.parametrize("batch_size", [1, 256])
def test_only_necessary_states_are_evaluated(cases, batch_size):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(candidates=5, disabled_filters=LETTERS_ALLOWED, batch_size=batch_size)

    ranker, vocabulary = case.parts(params)
    search = BestFirstSearch(ranker, vocabulary, params, lambda n_found: None)
    search.run([(1, 1)])

    # The root, the heads with a log-probability of at least the worst kept tuple, and the rest of a batch.
    heads = case.brute_force.token_logprobs([[case.lm.mask_id]] * 2, 0, 0)
    worst = search.tuples[-1].mtl
    admissible = [token for token in range(len(heads)) if case.lm.starts_entity[token]]
    n_needed = 1 + sum(heads[token].item() >= worst - TOLERANCE for token in admissible)
    assert ranker.n_states <= n_needed + min(batch_size, 16) - 1


def test_state_budget_ends_search_with_notice_and_proved_tuples(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(candidates=40, disabled_filters=LETTERS_ALLOWED, batch_size=1)

    search = case.search(replace(params, state_budget=4), [(1, 1)])

    assert "after 4 evaluated states" in search.notice
    assert len(search.tuples) < 40
    assert_same_tuples(search.tuples, case.expected(params, [(1, 1)])[: len(search.tuples)])


def test_state_budget_ends_search_by_consistency_with_final_tuples(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(max_tuples=40, disabled_filters=LETTERS_ALLOWED, batch_size=1, order="consistency")
    whole = case.search_by_consistency(params, [(1, 1)])
    limited = replace(params, state_budget=4)

    found = ConsistencySearch(*case.parts_by_prompt(limited), limited, lambda n: None).run([(1, 1)])

    assert "after 4 evaluated states" in found.notice
    assert [candidate.folded for candidate in found.candidates] == [
        candidate.folded for candidate in whole[: len(found.candidates)]
    ]


def test_memory_budget_ends_search_with_notice(cases):
    search = cases("wordpiece", BINARY).search(HarvestParams(candidates=10**6, memory_budget_mb=0), [(1, 1)])

    assert "memory budget of 0 MB" in search.notice


def test_exception_in_report_ends_search(cases):
    def cancel(n_found):
        raise Cancelled("The harvest was cancelled.")

    with pytest.raises(Cancelled):
        cases("wordpiece", BINARY).search(HarvestParams(), [(1, 1)], report=cancel)


@pytest.mark.parametrize(
    ("family", "prompts", "patterns"),
    [
        ("byte-level bpe", BINARY, [(1, 1), (2, 1), (1, 2)]),
        ("wordpiece", BINARY, [(1, 1), (1, 2)]),
        ("wordpiece", TERNARY, [(1, 1, 2)]),
    ],
    ids=str,
)
def test_scores_equal_brute_force(cases, family, prompts, patterns):
    case = cases(family, prompts)
    params = HarvestParams(candidates=15, disabled_filters=LETTERS_ALLOWED)
    prompts = tuple(case.lm.encode_prompt(PromptTemplate.parse(text)) for text in case.prompts)
    prompt_set = PromptSet(prompts, tuple(case.weights))
    candidates = {candidate.folded: candidate for candidate in case.search(params, patterns).tuples}

    scored = rescoring.rescore(case.lm, prompt_set, list(candidates.values()), params, lambda n_done: None)

    assert {candidate.entities for candidate in scored} == set(candidates)
    for scored_tuple in scored:
        as_found = candidates[scored_tuple.entities].surface
        surfaces = list(product(*[{text, text.lower(), text.capitalize()} for text in as_found]))
        surfaces = surfaces if case.lm.is_cased else [as_found]
        best = max(case.brute_force.consistency(surface) for surface in surfaces)
        assert scored_tuple.score == pytest.approx(best, abs=TOLERANCE)


def test_prompt_weights_equal_brute_force(cases):
    case = cases("wordpiece", BINARY)
    seeds = [("cab", "bad"), ("dab dab", "a cab")]
    templates = list(map(PromptTemplate.parse, case.prompts))
    encoded = pipeline.encode_seeds(seeds, case.lm)

    weighted = weigh_prompts(case.lm, templates, encoded, HarvestParams(), lambda progress: None)

    means = [sum(case.brute_force.compatibility(text, seed) for seed in seeds) / 2 for text in case.prompts]
    assert [prompt.compatibility for prompt in weighted] == pytest.approx(means, abs=TOLERANCE)
    total = sum(map(exp, means))
    assert [prompt.weight for prompt in weighted] == pytest.approx([exp(mean) / total for mean in means], abs=TOLERANCE)


# Hand-computed order


def search_fake(words, probabilities, n_candidates, **params):
    params = HarvestParams(candidates=n_candidates, disabled_filters=NO_FILTERS, **params)
    lm = FakeLM(words, probabilities)
    template = PromptTemplate.parse("<ENT0> of <ENT1>")
    ranker = TokenRanker(lm, [lm.encode_prompt(template)], [1.0], params.batch_size)
    search = BestFirstSearch(ranker, EntityVocabulary(lm, EntityFilter([], NO_FILTERS)), params, lambda n_found: None)
    search.run([(1, 1)])
    return [candidate.folded for candidate in search.tuples]


def test_equal_mtl_is_decided_by_next_smallest_log_probability():
    # All three tuples have the MTL of their head, log .25. The tails have .5, .4, and .3.
    facts = {(): {"rome": 0.25, "oslo": 0.25}, ("rome",): {"italy": 0.4, "lazio": 0.3}, ("oslo",): {"norway": 0.5}}

    tuples = search_fake(["rome", "oslo", "italy", "lazio", "norway"], facts, 3)

    assert tuples == [("oslo", "norway"), ("rome", "italy"), ("rome", "lazio")]


def test_equal_log_probabilities_are_decided_by_entity_strings():
    words = ["zagreb", "bern", "athens", "land"]
    facts = {(): {"zagreb": 0.25, "bern": 0.25, "athens": 0.25}} | {(word,): {"land": 0.5} for word in words}

    assert search_fake(words, facts, 2) == [("athens", "land"), ("bern", "land")]


def test_entity_is_proposed_four_times_the_repeat_limit():
    tails = ["a", "b", "c", "d", "e"]
    probabilities = {tail: 0.15 - 0.01 * position for position, tail in enumerate(tails)} | {"paris": 1e-6}
    facts = {(): {"paris": 0.9}, ("paris",): probabilities}

    tuples = search_fake(["paris", *tails], facts, 6, max_entity_repeats=1)

    assert [entities for entities in tuples if "paris" in entities] == [("paris", tail) for tail in "abcd"]


def test_complete_tuple_waits_for_equal_unevaluated_tuple():
    # Tails of probability 1 cost nothing, so an unevaluated head ties with complete tuples.
    facts = {(): {"b": 0.5, "a": 0.5}, ("b",): {"x": 1.0}, ("a",): {"x": 1.0}}

    assert search_fake(["b", "a", "x"], facts, 1, batch_size=1) == [("a", "x")]


def test_reports_continue_between_lm_calls(cases):
    case = cases("wordpiece", BINARY)
    n_reports_before, reports = [], []
    ranker, vocabulary = case.parts(HarvestParams(disabled_filters=NO_FILTERS))
    rank = ranker.rank
    ranker.rank = lambda states, tick: n_reports_before.append(len(reports)) or rank(states, tick)
    params = HarvestParams(candidates=10**6, max_entity_repeats=None)

    BestFirstSearch(ranker, vocabulary, params, reports.append).run([(1, 1)])

    assert len(reports) > n_reports_before[-1] + 10  # reports continue after the last forward pass
