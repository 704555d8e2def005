"""The search returns exactly what its definition says, whatever the batch size and the order of the prompts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from kgharvest.engine import harvest as pipeline
from kgharvest.engine.filters import FILTERS, EntityFilter
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.search import BestFirstSearch, WeighedPrompt, search_tuples
from kgharvest.engine.types import Cancelled, HarvestParams
from tests.engine.brute_force import BruteForce
from tests.engine.tiny_models import tiny_bert, tiny_roberta

TOLERANCE = 1e-4  # nats; what is closer than this may swap places
BINARY = ("<ENT0> the <ENT1> .", "bad <ENT1> cab <ENT0>", "<ENT1>s dab <ENT0> .")
TERNARY = ("<ENT0> the <ENT1> bad <ENT2> .", "<ENT2> dab <ENT1> , <ENT0>")
WEIGHTS = {3: (0.5, 0.3, 0.2), 2: (0.7, 0.3)}
LETTERS_ALLOWED = frozenset({"short", "one_letter_word"})  # tiny vocabularies are made of letters
NO_FILTERS = frozenset(FILTERS)


class Case:
    """A tiny LM with a set of prompts, and the brute force over the same folder."""

    def __init__(self, folder, prompts, lead):
        self.lm = load(str(folder))
        self.prompts = prompts
        self.weights = WEIGHTS[len(prompts)]
        self.brute_force = BruteForce(folder, prompts, self.weights, lead)

    def start(self, params, order=None, report=lambda n_found: None):
        """Return a search over the prompts in `order`."""
        weighed = list(zip(map(PromptTemplate.parse, self.prompts), self.weights, strict=True))
        weighed = [weighed[index] for index in order or range(len(weighed))]
        prompts = [WeighedPrompt(self.lm.encode_prompt(template), weight) for template, weight in weighed]
        entity_filter = EntityFilter([template for template, _ in weighed], params.disabled_filters)
        return BestFirstSearch(self.lm, prompts, entity_filter, params, report)

    def search(self, params, patterns, **options):
        search = self.start(params, **options)
        search.run(patterns)
        return search

    def expected(self, params, patterns):
        return self.brute_force.search(patterns, params.candidates, params.max_entity_repeats, params.disabled_filters)


def make_case(folder, family, prompts):
    if family == "wordpiece":
        return Case(tiny_bert(folder, seed=3, words=("cab", "bad", "dab")), prompts, lead="")
    return Case(tiny_roberta(folder, seed=5, words=("cab", "Bad", "bad")), prompts, lead=" ")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    torch.set_num_threads(1)
    made = {}

    def get(family, prompts):
        if (family, prompts) not in made:
            made[family, prompts] = make_case(tmp_path_factory.mktemp("lm"), family, prompts)
        return made[family, prompts]

    return get


def assert_same_tuples(found, expected):
    """The same tuples in the same order, where what is within TOLERANCE in every token may swap."""
    assert len(found) == len(expected)
    by_entities = {(candidate.entities, candidate.surface): candidate for candidate in expected}
    for candidate, wanted in zip(found, expected, strict=True):
        same = by_entities[candidate.folded, candidate.surface]
        assert candidate.mtl == pytest.approx(same.mtl, abs=TOLERANCE)
        assert sorted(same.logprobs) == pytest.approx(sorted(wanted.logprobs), abs=TOLERANCE)


@pytest.mark.parametrize("cap", [None, 3])
@pytest.mark.parametrize("disabled", [LETTERS_ALLOWED, NO_FILTERS], ids=["filters", "no filters"])
@pytest.mark.parametrize("family", ["wordpiece", "byte-level bpe"])
@pytest.mark.parametrize(
    ("prompts", "patterns"),
    [
        (BINARY, [(1, 1)]),
        (BINARY, [(2, 1)]),
        (BINARY, [(1, 1), (1, 2), (2, 1), (2, 2)]),
        (TERNARY, [(1, 1, 1)]),
        (TERNARY, [(1, 1, 1), (1, 1, 2), (2, 1, 1)]),
    ],
    ids=str,
)
def test_search_equals_brute_force(cases, family, prompts, patterns, disabled, cap):
    case = cases(family, prompts)
    params = HarvestParams(candidates=60, max_entity_repeats=cap, disabled_filters=disabled)
    expected = case.expected(params, patterns)

    first = case.search(params, patterns)

    assert_same_tuples(first.found, expected)
    for batch_size in (1, 7):
        again = case.search(replace(params, batch_size=batch_size), patterns, order=range(len(prompts))[::-1])
        assert_same_tuples(again.found, expected)
        assert again.rejected == first.rejected


def test_each_pattern_has_its_own_candidates_unless_the_budget_is_shared(cases):
    case = cases("wordpiece", BINARY)
    each = HarvestParams(candidates=20, max_entity_repeats=3, disabled_filters=LETTERS_ALLOWED)
    patterns = [(1, 1), (1, 2), (2, 1), (2, 2)]
    prompts = case.start(each).prompts
    entity_filter = EntityFilter(list(map(PromptTemplate.parse, case.prompts)), LETTERS_ALLOWED)

    found = search_tuples(case.lm, prompts, entity_filter, each, lambda n_found: None)
    shared = search_tuples(
        case.lm, prompts, entity_filter, replace(each, pattern_budget="shared"), lambda n_found: None
    )

    assert_same_tuples(found.candidates, [one for pattern in patterns for one in case.expected(each, [pattern])])
    assert_same_tuples(shared.candidates, case.expected(each, patterns))


def test_an_exhausted_vocabulary_returns_every_tuple_there_is(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(candidates=10**6, disabled_filters=LETTERS_ALLOWED)

    found = case.search(params, [(1, 1)])

    assert_same_tuples(found.found, case.expected(params, [(1, 1)]))
    assert found.notice is None


def test_only_states_that_can_matter_are_evaluated(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(candidates=5, disabled_filters=LETTERS_ALLOWED, batch_size=1)

    search = case.search(params, [(1, 1)])

    # Best-first at batch size 1: the root, and the heads whose own log-probability reaches the worst tuple kept.
    heads = case.brute_force.token_logprobs([[case.lm.mask_id]] * 2, 0, 0)
    worst = search.found[-1].mtl
    admissible = [token for token in range(len(heads)) if case.lm.starts_entity[token]]
    assert search.n_states <= 1 + sum(heads[token].item() >= worst - TOLERANCE for token in admissible)


def test_a_state_budget_ends_with_a_sentence_and_the_tuples_proved(cases):
    case = cases("wordpiece", BINARY)
    params = HarvestParams(candidates=40, disabled_filters=LETTERS_ALLOWED, batch_size=1)

    search = case.search(replace(params, state_budget=4), [(1, 1)])

    assert "budget of 4 evaluated states" in search.notice
    assert len(search.found) < 40
    assert_same_tuples(search.found, case.expected(params, [(1, 1)])[: len(search.found)])


def test_a_memory_budget_ends_with_a_sentence(cases):
    search = cases("wordpiece", BINARY).search(HarvestParams(candidates=10**6, memory_budget_mb=0), [(1, 1)])

    assert "memory budget of 0 MB" in search.notice


def test_what_the_report_raises_ends_the_search(cases):
    def cancel(n_found):
        raise Cancelled("The harvest was cancelled.")

    with pytest.raises(Cancelled):
        cases("wordpiece", BINARY).search(HarvestParams(), [(1, 1)], report=cancel)


def test_scores_equal_brute_force(cases):
    case = cases("byte-level bpe", BINARY)
    params = HarvestParams(candidates=15, disabled_filters=LETTERS_ALLOWED)
    weighted = [
        pipeline.Weighted(PromptTemplate.parse(text), 0.0, weight)
        for text, weight in zip(case.prompts, case.weights, strict=True)
    ]
    found = case.search(params, [(1, 1), (2, 1)]).found

    scored = pipeline.rescore(case.lm, weighted, found, params, lambda progress: None)

    for candidate, scored_tuple in zip(found, scored, strict=True):
        surfaces = product(*[(text.lower(), text.capitalize()) for text in candidate.folded])
        spellable = [surface for surface in surfaces if pipeline.try_encode(case.lm, surface)]
        best = max(case.brute_force.consistency(surface) for surface in spellable or [candidate.surface])
        assert scored_tuple.entities == candidate.folded
        assert scored_tuple.score == pytest.approx(best, abs=TOLERANCE)
