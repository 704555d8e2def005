"""Error-corrected accuracy, compared with exact posteriors, Dawid-Skene, and simulations."""

from __future__ import annotations

from itertools import product
from math import lgamma

import numpy as np
import pytest
from scipy import sparse
from scipy.special import betaln, logsumexp

from kgharvest.statistics.annotator_errors import (
    BY_CHANCE,
    NO_OPINION,
    PREVALENCES,
    SKILLS,
    TOO_FEW_OPINIONS,
    Patterns,
    Rates,
    Sample,
    Sampler,
    Truths,
    beta_grid,
    corrected_rate,
    sample_truths,
    why_unidentified,
)
from kgharvest.statistics.annotator_models import Judged, fit_dawid_skene
from kgharvest.statistics.rates import population_rate

T, F = 0, 1
NO_GOLD = np.zeros(0, dtype=np.int64)


def judgments(labels: list[str], n_gold: int = 0) -> Judged:
    """Parse one label string per statement, one letter per annotator ("TFT", "T.F"; a dot means no judgment).

    The last n_gold statements are gold.
    """
    rows = [
        (task, who, "TF".index(label))
        for task, row in enumerate(labels)
        for who, label in enumerate(row)
        if label in "TF"
    ]
    task, annotator, label = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Judged(task, annotator, label, len(labels), max(map(len, labels)), 2, n_gold)


def crowd(
    rng: np.random.Generator,
    truth: np.ndarray,
    sensitivity: float,
    specificity: float,
    n_annotators: int = 8,
    k: int = 3,
) -> Judged:
    annotator = np.argsort(rng.random((len(truth), n_annotators)), axis=1)[:, :k].ravel()
    task = np.repeat(np.arange(len(truth)), k)
    says_true = rng.random(len(task)) < np.where(truth, sensitivity, 1 - specificity)[task]
    return Judged(task, annotator, np.where(says_true, T, F), len(truth), n_annotators, 2)


def one_stratum(n: int) -> Sample:
    return Sample(np.arange(n), np.zeros(n, dtype=np.int64), 1)


def log_marginal(grid, hits: list[float], misses: list[float]) -> float:
    """Return the log likelihood of independent counts, averaged over a grid of Beta distributions of their rates."""
    ways = np.sum(
        [betaln(grid.a + hit, grid.b + miss) - betaln(grid.a, grid.b) for hit, miss in zip(hits, misses, strict=True)],
        axis=0,
    )
    return float(logsumexp(ways) - np.log(len(ways)))


def exact_posterior(judged: Judged, gold_truth: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the probabilities of 0, 1, ... true statements by summing over all truth assignments."""
    n = judged.n_tasks - judged.n_gold
    logs = np.full(n + 1, -np.inf)
    annotators, groups = range(judged.n_annotators), range(int(group.max()) + 1)
    for truth in product((T, F), repeat=n):
        is_true = np.array([*truth, *gold_truth])[judged.task] == T
        says, who = judged.label == T, judged.annotator
        counts = {
            key: [float((who[kind] == annotator).sum()) for annotator in annotators]
            for key, kind in (
                ("TT", is_true & says),
                ("TF", is_true & ~says),
                ("FT", ~is_true & says),
                ("FF", ~is_true & ~says),
            )
        }
        in_groups = [
            [float(((group == number) & (np.array(truth) == kind)).sum()) for number in groups] for kind in (T, F)
        ]
        log = log_marginal(SKILLS, counts["TT"], counts["TF"]) + log_marginal(SKILLS, counts["FF"], counts["FT"])
        log += log_marginal(PREVALENCES, *in_groups)
        n_true = truth.count(T)
        logs[n_true] = np.logaddexp(logs[n_true], log)
    return np.exp(logs - logsumexp(logs))


@pytest.mark.parametrize(
    ("labels", "gold_truth", "group"),
    [
        (["TTT", "TTF", "FFT", "TTT", "FFF", "T.T"], [], [0] * 6),
        (["TTF", "TFF", "FFF", "TTT", "TFT", "FFF", "TTT", "FTF"], [T, F], [0] * 6),
        (["TTT", "TTT", "TFT", "FFF", "FTF", "FFF"], [], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_draws_match_exact_posterior(labels, gold_truth, group):
    judged = judgments(labels, n_gold=len(gold_truth))
    group, gold_truth = np.array(group), np.array(gold_truth, dtype=np.int64)
    sample = Sample(np.arange(len(group)), group, int(group.max()) + 1)

    rng = np.random.default_rng(1)
    runs = [sample_truths(judged, gold_truth, sample, rng).n_true.sum(axis=1) for _ in range(8)]
    exact = exact_posterior(judged, gold_truth, group)

    drawn = np.bincount(np.concatenate(runs).astype(int), minlength=len(exact)) / sum(map(len, runs))
    assert drawn == pytest.approx(exact, abs=0.03)


def test_truth_probabilities_match_dawid_skene_at_fixed_rates():
    """Use the rates that EM converges to; test_annotator_models.py compares these with crowd-kit."""
    judged = crowd(np.random.default_rng(3), np.arange(200) < 150, 0.85, 0.75)
    fit = fit_dawid_skene(judged)
    sampler = Sampler(judged, NO_GOLD, every_statement(judged), np.random.default_rng(0))
    prevalence = np.full((1, 1), fit.prior[T])

    probabilities = sampler.probabilities(Rates(fit.errors[:, T, T, None], fit.errors[:, F, F, None], prevalence))

    assert probabilities[:, 0] == pytest.approx(fit.labels[:, T], abs=1e-6)


def every_statement(judged: Judged) -> Patterns:
    """Build one pattern per statement."""
    code = judged.label * judged.n_annotators + judged.annotator
    says = sparse.csr_array((np.ones(len(code)), (judged.task, code)), (judged.n_tasks, 2 * judged.n_annotators))
    return Patterns(np.ones(judged.n_tasks, dtype=np.int64), np.zeros(judged.n_tasks, dtype=np.int64), says, says)


def test_error_free_annotators_keep_sampling_interval():
    truth = np.arange(400) < 320
    judged = crowd(np.random.default_rng(0), truth, 1, 1)

    truths = sample_truths(judged, NO_GOLD, one_stratum(400), np.random.default_rng(0))
    corrected = corrected_rate(truths, np.array([0]), np.array([2000]), np.ones(1))

    assert corrected[:3] == pytest.approx(population_rate([320], [400], [2000])[:3], abs=2e-3)


def test_census_by_fallible_annotators_is_uncertain():
    truth = np.arange(300) < 210
    judged = crowd(np.random.default_rng(0), truth, 0.8, 0.8)

    truths = sample_truths(judged, NO_GOLD, one_stratum(300), np.random.default_rng(0))
    corrected = corrected_rate(truths, np.array([0]), np.array([300]), np.ones(1))

    assert corrected.low + 0.05 < 0.7 < corrected.high - 0.05


def test_one_sided_errors_that_mislead_majority_are_corrected():
    """Annotators accept 40 % of false statements, as gold shows: .30 of 2,000 statements are true, .55 accepted."""
    rng = np.random.default_rng(0)
    truth = rng.random(2200) < 0.3
    judged = crowd(rng, truth, 0.97, 0.6)._replace(n_gold=200)
    of_sample = judged.task < 2000
    accepted = np.bincount(judged.task[of_sample], judged.label[of_sample] == T) >= 2

    truths = sample_truths(judged, np.where(truth[2000:], T, F), one_stratum(2000), np.random.default_rng(0))
    corrected = corrected_rate(truths, np.array([0]), np.array([0]), np.ones(1))

    assert accepted.mean() > 0.5
    assert corrected.low < truth[:2000].mean() < corrected.high < 0.4


def test_strata_weights_match_cell_rate():
    n_true = np.array([[8.0, 1.0], [8.0, 1.0]])
    truths = Truths(np.array([10, 5]), n_true, np.ones(2), np.ones(2))
    strata, population, weights = np.arange(2), np.array([100, 900]), np.array([0.1, 0.9])

    corrected = corrected_rate(truths, strata, population, weights)

    assert corrected == population_rate([8, 1], [10, 5], population, weights)
    assert corrected.value == pytest.approx(0.1 * 0.8 + 0.9 * 0.2)


def test_sampling_and_error_half_widths_add_in_quadrature():
    """Half of the draws have 40 and half have 60 of 100 true: quantiles .4 and .6 around the mean .5."""
    truths = Truths(np.array([100]), np.repeat([[40.0], [60.0]], 500, axis=0), np.ones(1000), np.ones(1000))

    corrected = corrected_rate(truths, np.array([0]), np.array([1000]), np.ones(1))

    sampled = population_rate([50], [100], [1000])
    assert corrected.low == pytest.approx(0.5 - np.hypot(0.5 - sampled.low, 0.1))
    assert corrected.high == pytest.approx(0.5 + np.hypot(sampled.high - 0.5, 0.1))


def test_renumbering_annotators_changes_only_random_error():
    rng = np.random.default_rng(5)
    judged = crowd(rng, rng.random(600) < 0.7, 0.85, 0.8)
    turned = judged._replace(annotator=judged.n_annotators - 1 - judged.annotator)

    values = [
        sample_truths(order, NO_GOLD, one_stratum(600), np.random.default_rng(0)).n_true.mean()
        for order in (judged, turned)
    ]

    assert values[0] == pytest.approx(values[1], abs=6)


def test_statement_in_two_strata_counts_in_both():
    judged = judgments(["TTT", "TTT", "FFF", "FFF", "TTF"] * 4)
    task = np.arange(20)
    sample = Sample(np.concatenate([task, task[:5]]), np.repeat([0, 1], [20, 5]), 2)

    truths = sample_truths(judged, NO_GOLD, sample, np.random.default_rng(0))

    assert truths.n.tolist() == [20, 5]
    assert (truths.n_true[:, 1] <= truths.n_true[:, 0]).all()


def test_statements_without_true_or_false_judgment_are_excluded():
    judged = judgments(["TTT", "FFF", "TTF", "..."])

    truths = sample_truths(judged, NO_GOLD, one_stratum(4), np.random.default_rng(0))

    assert truths.n.tolist() == [3]


@pytest.mark.parametrize(
    ("labels", "gold_truth", "reason"),
    [
        (["..."], [], NO_OPINION),
        (["TT.", "F.F", ".TT"] * 20, [], TOO_FEW_OPINIONS),
        (["TTT"] * 30, [], BY_CHANCE),
        (["TFT", "FTF", "TTF", "FTT", "FFT", "TFF"] * 5, [], BY_CHANCE),
        (["TTT", "FFF", "TTF"] * 5, [], None),
        (["TT.", "F.F"] * 5 + ["TT.", "F.F"] * 3, [T, F] * 3, None),  # gold confirms the annotators
        (["TT.", "F.F"] * 5 + ["TF.", "T.F"] * 3, [T, F] * 3, TOO_FEW_OPINIONS),  # gold shows guessing
        (["TTT", "TTT", "TTF"] * 5 + ["FFF"] * 6, [F] * 6, BY_CHANCE),  # gold of one verdict only
    ],
)
def test_unidentified_rate_reports_reason(labels, gold_truth, reason):
    judged = judgments(labels, n_gold=len(gold_truth))

    assert why_unidentified(judged, np.array(gold_truth, dtype=np.int64)) == reason


def test_guessing_passes_identification_in_five_percent_of_rounds():
    rng = np.random.default_rng(0)
    rounds = [crowd(rng, np.ones(60, dtype=bool), rng.uniform(0.3, 0.9), 0) for _ in range(1000)]

    passed = np.mean([why_unidentified(judged, NO_GOLD) is None for judged in rounds])

    assert 0.03 < passed < 0.07


def test_same_seed_gives_same_draws():
    judged = crowd(np.random.default_rng(2), np.arange(50) < 40, 0.9, 0.8)

    first, second = (sample_truths(judged, NO_GOLD, one_stratum(50), np.random.default_rng(7)) for _ in range(2))

    assert (first.n_true == second.n_true).all()


def test_shapes_are_drawn_by_likelihood():
    grid, rng = beta_grid(np.array([0.2, 0.8]), np.array([2.0, 20.0])), np.random.default_rng(0)
    rates = np.repeat(np.array([[0.7], [0.85], [0.6]]), 20_000, axis=1)
    likelihood = np.prod(
        [rate ** (grid.a - 1) * (1 - rate) ** (grid.b - 1) / np.exp(log_beta(grid)) for rate in rates[:, 0]], axis=0
    )

    a, b = grid.draw(rates, rng)

    for shape_a, shape_b, share in zip(grid.a, grid.b, likelihood / likelihood.sum(), strict=True):
        assert ((a == shape_a) & (b == shape_b)).mean() == pytest.approx(share, abs=0.01)


def log_beta(grid):
    return np.array([lgamma(a) + lgamma(b) - lgamma(a + b) for a, b in zip(grid.a, grid.b, strict=True)])
