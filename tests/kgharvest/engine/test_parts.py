"""Distributed harvests: results are bitwise identical for any assignment and order of parts."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
import torch

from kgharvest.engine import parts, rescoring
from kgharvest.engine.entities import entity_of
from kgharvest.engine.harvest import harvest, harvest_prepared, prepare
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.search import Candidate, pattern_groups
from kgharvest.engine.types import Cancelled, HarvestParams, HarvestSpec, Progress
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta
from tests.sampling import every

PARAMS = HarvestParams(candidates=25, disabled_filters=frozenset({"short", "one_letter_word"}))
BINARY = HarvestSpec(
    relation="capital_of",
    initial_prompts=("<ENT0> is the capital of <ENT1> .",),
    prompts=("<ENT0> is the capital of <ENT1> .", "<ENT1> is a place for <ENT0>"),
    seed_tuples=(("paris", "france"), ("rome", "italy")),
    setting="multi",
    params=PARAMS,
)
TERNARY = replace(
    BINARY,
    params=replace(PARAMS, candidates=10),
    initial_prompts=("<ENT0> can <ENT1> in <ENT2> .",),
    prompts=("<ENT0> can <ENT1> in <ENT2> .", "in <ENT2> <ENT0> can <ENT1>"),
    seed_tuples=(("dog", "swim", "paris"), ("cat", "sing", "rome")),
)
CHANGES = {
    "own budgets": {},
    "shared": {"pattern_budget": "shared"},
    "strict cap": {"max_entity_repeats": 1},
    "no cap": {"max_entity_repeats": None},
    "states end": {"state_budget": 20, "batch_size": 7},
    "shared states end": {"state_budget": 20, "batch_size": 7, "pattern_budget": "shared"},
    "memory ends": {"memory_budget_mb": 0},
    "one token": {"max_entity_tokens": 1, "max_tuples": 9},
    "most consistent": {"order": "consistency", "max_tuples": 20},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    return {make: str(make(tmp_path_factory.mktemp("lm"))) for make in (tiny_bert, tiny_roberta)}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Reduce sizes so that re-scoring has several parts, some with several chunks."""
    monkeypatch.setattr(parts, "MIN_TOGETHER", 3)
    monkeypatch.setattr(rescoring, "MAX_TOGETHER", 8)
    monkeypatch.setattr(parts, "MOST_RESCORE_PARTS", 7)


class Shuffled:
    """Run parts in random order with separately loaded LMs."""

    def __init__(self, folder, question, seed):
        self.folder, self.question, self.random = folder, question, random.Random(seed)
        self.n_parts = {}

    def __call__(self, stage, parts, do):
        self.n_parts[stage] = len(parts)
        order = list(range(len(parts)))
        self.random.shuffle(order)
        lm = {
            position: load(self.folder) for position in order[:2]
        }  # the other parts share one LM, because loading is slow
        last = load(self.folder)
        results = {n: parts[n].do(lm.get(n, last), self.question, lambda n_done: None) for n in order}
        return [results[position] for position in range(len(parts))]


CASES = [
    *((BINARY, changes) for changes in CHANGES),
    *((TERNARY, changes) for changes in ("own budgets", "shared", "states end")),
]


@pytest.mark.parametrize(("make", "case"), every(5, product([tiny_bert, tiny_roberta], CASES)))
def test_shuffled_parts_equal_single_worker_result(folders, make, case):
    spec, changes = case
    spec = replace(spec, params=replace(spec.params, **CHANGES[changes]))
    lm = load(folders[make])

    expected = harvest(spec, lm)

    prepared = prepare(spec, lm)
    question = parts.Question(prepared.prompts.prompt_set, prepared.prompts.templates, spec.params)
    share = Shuffled(folders[make], question, seed=changes)
    assert repr(harvest_prepared(prepared, spec.params, lm, share)) == repr(expected)  # repr shows every bit of a float
    n_patterns = 1 if spec.params.is_one_search else spec.params.max_entity_tokens ** len(spec.seed_tuples[0])
    assert share.n_parts["search"] == n_patterns
    assert share.n_parts.get("rescore", 0) > 1 or expected.stats["candidates"] < 10 or changes == "most consistent"


def test_tuples_with_common_head_are_in_one_part():
    entities = [(head, f"tail{n}") for n in range(5) for head in ("dog", "cat", "cow", "pig", "fish", "bird")]
    candidates = [Candidate((1, 1), entities=tuple(map(entity_of, pair)), is_complete=True) for pair in entities]

    heads = [[candidate.folded[0] for candidate in part.candidates] for part in parts.rescore_parts(candidates)]

    # 30 candidates, 7 parts at most: at least 5 in each
    assert heads == [[head] * 5 for head in ("bird", "cat", "cow", "dog", "fish", "pig")]


def test_longest_searches_come_first():
    groups = pattern_groups(2, HarvestParams(max_entity_tokens=3))

    assert groups[0] == ((3, 3),)
    assert groups[-1] == ((1, 1),)
    assert len(groups) == 9


def test_state_budget_ending_one_search_keeps_others_complete(folders):
    lm = load(folders[tiny_bert])
    complete = harvest(replace(BINARY, params=replace(PARAMS, candidates=10, batch_size=1)), lm)
    question_params = replace(PARAMS, candidates=10, batch_size=1)
    prepared = prepare(BINARY, lm)
    question = parts.Question(prepared.prompts.prompt_set, prepared.prompts.templates, question_params)
    n_states = [search.do(lm, question, lambda n_found: None).n_states for search in parts.search_parts(question)]
    budget = sorted(n_states)[-1] - 1  # too small for the longest search only
    assert n_states.count(max(n_states)) == 1

    ended = harvest(replace(BINARY, params=replace(question_params, state_budget=budget)), lm)

    assert f"after {budget} evaluated states" in ended.notice
    assert "1 of 4 token-count patterns" in ended.notice
    assert ended.stats["candidates"] < complete.stats["candidates"]
    assert ended.stats["candidates"] > 30


def test_progress_covers_all_parts_and_may_cancel(folders):
    lm, reports = load(folders[tiny_bert]), []
    prepared = prepare(BINARY, lm)

    harvest_prepared(prepared, PARAMS, lm, parts.InTurn(reports.append))

    searched = [progress for progress in reports if progress.stage == "search"]
    assert searched[-1] == Progress("search", 4 * 25, 4 * 25)
    assert [progress.done for progress in searched] == sorted(progress.done for progress in searched)

    def cancel(progress):
        raise Cancelled("The harvest was cancelled.")

    with pytest.raises(Cancelled):
        harvest_prepared(prepared, PARAMS, lm, parts.InTurn(cancel))
