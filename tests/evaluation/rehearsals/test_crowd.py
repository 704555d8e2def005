"""Simulated crowd: error rates and mean accuracies match the assumptions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from evaluation.evidence.evidence import Evidence
from evaluation.rehearsals.rehearsal import Assumptions, draw_truth, judged, rehearse
from kgharvest.statistics.arrays import ACCEPTED, FALSE, REJECTED, TRUE, UNJUDGEABLE
from kgharvest.statistics.paired_tests import CellKey
from tests.evaluation.evidence_factory import make_evidence

NO_ERRORS = {"true_called_false": 0, "false_called_true": 0, "unjudgeable": 0}


def draft(n_relations: int, n: int, sides: str = "a", population: int | None = None, **fields) -> Evidence:
    """Create `n` unjudged statements per relation and LM. population: size of each cell, by default 10 * n."""
    cells = [CellKey(f"r{number:02}", model, "multi") for model in sides for number in range(n_relations)]
    evidence = make_evidence({key: [0, 0, 0, n] for key in cells}, **fields)
    if population:
        strata = [stratum._replace(population=population, rank_to=population) for stratum in evidence.strata]
        evidence = replace(evidence, strata=strata)
    return evidence


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_drawn_truth_matches_assumed_accuracy_and_spread():
    evidence = draft(400, 10, "ab")
    accuracies = draw_truth(evidence, Assumptions((0.6, 0.8), spread=0.15), rng()).accuracies.reshape(2, 400)
    assert accuracies.mean(axis=1) == pytest.approx([0.6, 0.8], abs=0.025)
    # Each cell has 100 tuples, so sampling adds a variance of p (1 - p) / 100.
    within = np.array([0.6 * 0.4, 0.8 * 0.2]) / 100
    assert accuracies.std(axis=1) == pytest.approx(np.sqrt(0.15**2 + within), rel=0.1)
    assert 0.35 < np.corrcoef(accuracies)[0, 1] < 0.6  # relations account for half of the variance


def test_relations_without_spread_have_equal_accuracy():
    truth = draw_truth(draft(50, 200), Assumptions((0.7,), spread=0), rng())
    assert truth.is_true.mean() == pytest.approx(0.7, abs=0.02)
    assert np.ptp(truth.accuracies) < 0.1


def test_annotator_errors_match_assumed_rates():
    evidence = draft(1, 20_000)
    is_true = np.arange(20_000) % 2 == 0
    simulated = judged(evidence, is_true, Assumptions((0.5,), 0, 0.1, 0.3, 0.05), rng())
    label, of_true = simulated.judgments.label, is_true[simulated.judgments.task]
    assert np.mean(label == UNJUDGEABLE) == pytest.approx(0.05, abs=0.005)
    assert np.mean(label[of_true & (label != UNJUDGEABLE)] == FALSE) == pytest.approx(0.1, abs=0.01)
    assert np.mean(label[~of_true & (label != UNJUDGEABLE)] == TRUE) == pytest.approx(0.3, abs=0.01)


def test_wrong_verdicts_match_majority_error_rate():
    evidence = draft(1, 20_000)
    is_true = np.arange(20_000) % 2 == 0
    simulated = judged(evidence, is_true, Assumptions((0.5,), 0, 0.2, 0.3, 0), rng())
    for truth, error, wrong in ((True, 0.2, REJECTED), (False, 0.3, ACCEPTED)):
        expected = sum(
            np.prod([error if errs else 1 - error for errs in who])
            for who in product((True, False), repeat=3)
            if sum(who) >= 2
        )
        assert np.mean(simulated.verdict[is_true == truth] == wrong) == pytest.approx(expected, abs=0.015)


def test_statement_is_judged_by_different_annotators():
    simulated = judged(draft(1, 500), np.ones(500, dtype=bool), Assumptions((0.5,), n_people=4), rng())
    people = simulated.judgments.annotator.reshape(500, 3)
    assert all(len(set(row)) == 3 for row in people.tolist())
    assert set(np.unique(people)) == {0, 1, 2, 3}


def test_third_judgment_occurs_only_after_disagreement():
    evidence = draft(1, 2000, has_thirds=True)
    simulated = judged(evidence, np.ones(2000, dtype=bool), Assumptions((0.5,), 0, 0.2, 0, 0), rng())
    n_judgments = simulated.counts.sum(axis=1)
    has_third = simulated.third >= 0
    assert np.array_equal(n_judgments, np.where(has_third, 3, 2))
    first_two = simulated.first_two.counts
    assert np.array_equal(has_third, (first_two > 0).sum(axis=1) == 2)
    assert has_third.mean() == pytest.approx(2 * 0.2 * 0.8, abs=0.03)


def test_error_free_census_measures_true_accuracy():
    rehearsal = rehearse(draft(6, 20, population=20), Assumptions((0.7,), **NO_ERRORS), 10)
    [side] = rehearsal.sides
    assert side.measured == pytest.approx(side.true)
    assert side.half_width.high == 0
    assert rehearsal.wrong_verdicts.high == rehearsal.undecided.high == 0
    assert rehearsal.alpha.low == rehearsal.alpha.high == 1
    assert rehearsal.n_judgments == (360, 360, 360)


def test_annotator_errors_bias_measured_accuracy():
    """90 % of the tuples are true. Three annotators who miss half of the errors accept half of the false tuples."""
    assumptions = Assumptions((0.9,), 0, true_called_false=0, false_called_true=0.5, unjudgeable=0)
    [side] = rehearse(draft(8, 100), assumptions, 40).sides
    assert side.measured.median == pytest.approx(0.95, abs=0.01)
    assert side.error.median == pytest.approx(0.05, abs=0.012)


def test_power_is_high_for_large_difference_and_low_for_none():
    assumptions = Assumptions((0.95, 0.4), 0.05)
    [comparison] = rehearse(draft(10, 40, "ab"), assumptions, 20).comparisons
    assert (comparison.found, comparison.wrong_sign) == (1, 0)
    assert comparison.expected == pytest.approx(0.55)
    [comparison] = rehearse(draft(10, 40, "ab"), Assumptions((0.7, 0.7)), 50).comparisons
    assert comparison.found <= 0.16  # the expected rate is .05
    assert comparison.wrong_sign == 0  # without a true difference, neither sign is wrong


def test_few_relations_are_compared_by_statements():
    """A sign-flip test over two relations is never significant."""
    [comparison] = rehearse(draft(2, 60, "ab"), Assumptions((0.9, 0.4), 0), 10).comparisons
    assert comparison.found == 1


def test_single_relation_has_no_interval_for_others():
    [side] = rehearse(draft(1, 30), Assumptions((0.7,)), 10).sides
    assert side.for_others is None
    assert side.half_width.median > 0


def test_rehearsal_is_reproducible():
    evidence, assumptions = draft(4, 10, "ab"), Assumptions((0.6, 0.7))
    assert rehearse(evidence, assumptions, 10) == rehearse(evidence, assumptions, 10)
