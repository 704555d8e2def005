"""Agreement coefficients. Worked examples: Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability"."""

from collections import Counter
from time import perf_counter

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kgharvest.statistics.agreement import (
    ALL_ALIKE,
    FEW_ANNOTATORS,
    NOTHING_PAIRED,
    UNEQUAL,
    PanelJudgments,
    ac1_of_shares,
    alpha_of_counts,
    alpha_of_shares,
    annotators_interval,
    fleiss_kappa,
    gwet_ac1,
    interval_for_another_panel,
    krippendorff_alpha,
    pair_counts,
    percent_agreement,
)
from kgharvest.statistics.rates import Rate

MISSING = "."

# Example A: binary, two observers, ten units, no missing data.
BINARY = ["0100000000", "1110010010"]
# Example B: nominal, two observers, twelve units, no missing data.
NOMINAL = ["aabbdcccedda", "babbbccceddd"]
# Example C: nominal, four observers, twelve units, missing data.
WITH_MISSING = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def rng():
    return np.random.default_rng(0)


def count_patterns(observers: list[str]):
    """Return label-count patterns (P, C) and units per pattern (P,), from one label string per observer."""
    labels = sorted({label for labels in observers for label in labels} - {MISSING})
    units = Counter(tuple(unit.count(label) for label in labels) for unit in map("".join, zip(*observers, strict=True)))
    return np.array(list(units)), np.array(list(units.values()))


tables = st.integers(2, 4).flatmap(
    lambda n_labels: st.lists(st.tuples(*[st.integers(0, 4)] * n_labels), min_size=1, max_size=30)
)


def alpha_of_units(units) -> float:
    patterns = np.array(units)
    kept = patterns[patterns.sum(axis=1) >= 2]
    return float(alpha_of_counts(kept, np.ones((1, len(kept)), dtype=int))[0])


@pytest.mark.parametrize(
    ("observers", "published"),
    [(BINARY, 0.095), (NOMINAL, 0.692), (WITH_MISSING, 0.743)],
    ids=["A binary", "B nominal", "C with missing data"],
)
def test_alpha_matches_worked_examples(observers, published):
    assert krippendorff_alpha(*count_patterns(observers), rng()).value == pytest.approx(published, abs=5e-4)


def test_unit_with_one_judgment_is_excluded():
    # The last of the twelve units in example C has only one value.
    assert krippendorff_alpha(*count_patterns(WITH_MISSING), rng()).n_units == 11


@given(tables)
def test_closed_form_alpha_matches_krippendorff_package(units):
    patterns = np.array(units)
    paired = patterns[patterns.sum(axis=1) >= 2]
    assume(len(paired) and np.count_nonzero(paired.sum(axis=0)) >= 2)

    expected = krippendorff.alpha(value_counts=patterns, level_of_measurement="nominal")

    assert alpha_of_units(units) == pytest.approx(expected, abs=1e-9)


@given(tables, st.randoms(use_true_random=False))
def test_renaming_labels_keeps_alpha(units, random):
    order = list(range(len(units[0])))
    random.shuffle(order)
    assume(any(sum(unit) >= 2 for unit in units))

    renamed = [tuple(unit[label] for label in order) for unit in units]

    assert alpha_of_units(renamed) == pytest.approx(alpha_of_units(units), abs=1e-9, nan_ok=True)


def test_alpha_below_zero_is_not_clipped():
    # Two observers always disagree: n = 4, D_o = 1, D_e = 2 * 2 * 2 / (4 * 3) = 2/3, alpha = -0.5.
    assert krippendorff_alpha(*count_patterns(["ab", "ba"]), rng()).value == pytest.approx(-0.5)


def test_alpha_is_undefined_for_unanimous_judgments():
    alpha = krippendorff_alpha(*count_patterns(["aaa", "aaa"]), rng())

    assert (alpha.value, alpha.low, alpha.high, alpha.reason) == (None, None, None, ALL_ALIKE)


def test_alpha_is_undefined_for_single_judgments():
    alpha = krippendorff_alpha(*count_patterns(["ab.", "..a"]), rng())

    assert (alpha.value, alpha.n_units, alpha.reason) == (None, 0, NOTHING_PAIRED)


def test_alpha_is_undefined_without_units():
    alpha = krippendorff_alpha(np.empty((0, 3), dtype=int), np.empty(0, dtype=int), rng())

    assert (alpha.value, alpha.reason) == (None, NOTHING_PAIRED)


def test_alpha_interval_of_many_units_matches_bootstrap():
    patterns, n_tasks = np.array([[3, 0], [2, 1], [1, 2], [0, 3]]), np.array([160, 60, 40, 140])
    units = np.repeat(patterns, n_tasks, axis=0)
    plain = np.random.default_rng(1)
    resamples = [alpha_of_units(units[plain.integers(0, 400, 400)]) for _ in range(2000)]

    alpha = krippendorff_alpha(patterns, n_tasks, rng())

    assert (alpha.low, alpha.high) == pytest.approx(tuple(np.quantile(resamples, [0.025, 0.975])), abs=0.02)
    assert alpha.low < alpha.value < alpha.high


def test_three_undisputed_statements_leave_wide_alpha_interval():
    alpha = krippendorff_alpha(np.array([[3, 0, 0], [0, 3, 0]]), np.array([2, 1]), rng())

    assert (alpha.value, alpha.high) == (1, 1)
    assert alpha.low < 0.7


@given(tables)
def test_population_alpha_equals_alpha_of_many_units(units):
    patterns = np.array([unit for unit in units if sum(unit) >= 2]).reshape(-1, len(units[0]))
    assume(len(patterns) and np.count_nonzero(patterns.sum(axis=0)) >= 2)
    shares = np.full((1, len(patterns)), 1 / len(patterns))

    assert alpha_of_shares(patterns, shares) == pytest.approx(
        alpha_of_counts(patterns, shares * 1e9 * len(patterns)), abs=1e-8
    )


def test_same_seed_gives_same_interval():
    counts = count_patterns(WITH_MISSING)

    assert krippendorff_alpha(*counts, rng()) == krippendorff_alpha(*counts, rng())


def test_identical_statements_have_nonzero_interval_width():
    # Three statements, each judged 1-1-1: every resample equals the sample.
    alpha = krippendorff_alpha(np.array([[1, 1, 1]]), np.array([3]), rng())

    assert alpha.value == pytest.approx(-1 / 3)
    assert alpha.high - alpha.low > 0.2


def test_million_units_are_fast():
    patterns = np.array([(t, f, 3 - t - f) for t in range(4) for f in range(4 - t)])
    n_tasks = np.full(len(patterns), 100_000)

    begin = perf_counter()
    alpha = krippendorff_alpha(patterns, n_tasks, rng())

    assert alpha.n_units == 1_000_000
    assert perf_counter() - begin < 5  # 0.1 s on an idle core; the bound leaves room for a busy machine


def intervals_of(accuracies, n_tasks, random):
    """Return alpha and its other-annotators interval, with three random annotators per statement."""
    task = np.repeat(np.arange(n_tasks), 3)
    annotator = np.argsort(random.random((n_tasks, len(accuracies))), axis=1)[:, :3].ravel()
    label = np.where(random.random(3 * n_tasks) < accuracies[annotator], task % 2, 1 - task % 2)
    counts = np.stack([np.bincount(task, label == code).astype(int) for code in (0, 1)], axis=1)
    alpha = krippendorff_alpha(*np.unique(counts, axis=0, return_counts=True), random, 300)
    return alpha, annotators_interval(alpha, task, annotator, label)


def test_other_annotators_interval_covers_alpha_if_skills_vary():
    random, runs = rng(), 200
    # Half of the statements are true. Accuracy is Beta(6.8, 1.2), .85 on average, so two annotators disagree on
    # 2 * .85 * .15 of the statements. By chance they would disagree on half.
    truth = 1 - 2 * 0.85 * 0.15 / 0.5

    intervals = [intervals_of(random.beta(6.8, 1.2, 20), 500, random) for _ in range(runs)]

    assert sum(alpha.low <= truth <= alpha.high for alpha, _ in intervals) < 0.75 * runs
    assert sum(other.low <= truth <= other.high for _, other in intervals) > 0.9 * runs


def test_equally_skilled_annotators_barely_widen_interval():
    alpha, other = intervals_of(np.full(40, 0.9), 2000, rng())

    assert other.low <= alpha.low < alpha.high <= other.high
    assert other.high - other.low < 1.25 * (alpha.high - alpha.low)


def test_other_annotators_interval_is_undefined_for_four_annotators():
    assert intervals_of(np.full(4, 0.9), 100, rng())[1] == (None, None, FEW_ANNOTATORS)


def test_other_annotators_interval_is_undefined_if_alpha_is():
    assert intervals_of(np.full(8, 0.9), 0, rng())[1] == (None, None, NOTHING_PAIRED)


def test_undisputed_judgments_keep_interval_over_statements():
    alpha, other = intervals_of(np.ones(5), 20, rng())

    assert (other.low, other.high) == (alpha.low, alpha.high)


# Accuracy for another panel


def census(labels, n_annotators=5):
    """Return the contributions of a census in which annotator a judges statement s as labels[s][a]; pairs are alike."""
    is_true = np.array(labels, dtype=bool)
    annotator = np.tile(np.arange(n_annotators), len(is_true))
    influence = np.full(is_true.size, 1 / len(is_true))
    return PanelJudgments(annotator, is_true.ravel(), np.zeros(is_true.size, int), influence, np.zeros(is_true.size))


def test_interval_for_another_panel_has_the_width_calculated_by_hand():
    # Annotators give 4, 2, 2, 2, and 0 of 4 labels True, so the share of True is .5 and their contributions are
    # (4 - 2) / 4 = .5, 0, 0, 0, and -.5. The variance of their sum is 5 / 4 * (.25 + .25) = .625, with four degrees of
    # freedom: t = 2.7764. The other panel has the same variance.
    labels = [(1, 1, 1, 0, 0), (1, 1, 0, 1, 0), (1, 0, 1, 0, 0), (1, 0, 0, 1, 0)]

    interval = interval_for_another_panel(Rate(0.5, 0.5, 0.5), census(labels))

    arm = 2.7764451 * (2 * 0.625) ** 0.5
    assert arm > 0.5  # so the limits are cut off
    assert interval == (0, 1, None)
    smaller = census(labels)._replace(influence=np.full(20, 0.25 / 100))
    assert interval_for_another_panel(Rate(0.5, 0.5, 0.5), smaller)[:2] == pytest.approx(
        (0.5 - arm / 100, 0.5 + arm / 100), abs=1e-7
    )


def test_interval_for_another_panel_adds_arms_in_quadrature():
    judgments = census([(1, 1, 0, 1, 0), (0, 1, 0, 1, 1)])._replace(influence=np.full(10, 0.01))

    of_census = interval_for_another_panel(Rate(0.5, 0.5, 0.5), judgments)
    of_sample = interval_for_another_panel(Rate(0.5, 0.4, 0.7), judgments)

    arm = 0.5 - of_census.low
    assert of_sample[:2] == pytest.approx((0.5 - np.hypot(arm, 0.1), 0.5 + np.hypot(arm, 0.2)))


def test_equal_judgments_keep_the_interval_for_another_panel():
    assert interval_for_another_panel(Rate(1.0, 0.9, 1.0), census([(1,) * 5] * 3)) == (0.9, 1.0, None)


def test_interval_for_another_panel_needs_five_annotators():
    assert interval_for_another_panel(Rate(1.0, 0.9, 1.0), census([(1,) * 4] * 3, 4)) == (None, None, FEW_ANNOTATORS)


def test_percent_agreement_counts_pairs():
    # Units aaa, aab, ab: 3 of 3, 1 of 3 and 0 of 1 pairs agree.
    patterns, n_tasks = np.array([[3, 0], [2, 1], [1, 1]]), np.array([1, 1, 1])

    assert percent_agreement(patterns, n_tasks) == pytest.approx(4 / 7)


def test_percent_agreement_is_undefined_without_pairs():
    assert percent_agreement(np.array([[1, 0]]), np.array([5])) is None


# Fleiss (1971), Psychological Bulletin 76, 378-382, Table 1: six psychiatrists, thirty patients, five diagnoses.
DIAGNOSES = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006
10050 11040 03300 10050 02031 00501 30012 51000 02040 10203
00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""


def diagnoses():
    return np.array([[int(count) for count in patient] for patient in DIAGNOSES.split()]), np.ones(30, dtype=int)


def test_diagnosis_shares_match_published_values():
    patterns, _ = diagnoses()

    assert patterns.sum(axis=0) / 180 == pytest.approx([0.144, 0.144, 0.167, 0.306, 0.239], abs=6e-4)


def test_kappa_matches_fleiss_example():
    assert fleiss_kappa(*diagnoses()).value == pytest.approx(0.430, abs=5e-4)


def test_kappa_equals_alpha_without_small_sample_correction():
    # With equally many judgments per unit, n in total: 1 - alpha = (1 - kappa) * (n - 1) / n.
    kappa, alpha = fleiss_kappa(*diagnoses()).value, krippendorff_alpha(*diagnoses(), rng()).value

    assert 1 - alpha == pytest.approx((1 - kappa) * 179 / 180, abs=1e-12)


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [([[3, 0], [1, 1]], UNEQUAL), ([[1, 0], [0, 1]], NOTHING_PAIRED), ([[3, 0], [3, 0]], ALL_ALIKE)],
    ids=["2 and 3 judgments", "one judgment", "unanimous"],
)
def test_kappa_is_undefined(patterns, reason):
    assert fleiss_kappa(np.array(patterns), np.array([1, 1])) == (None, reason)


def test_kappa_is_undefined_without_units():
    assert fleiss_kappa(np.empty((0, 3), dtype=int), np.empty(0, dtype=int)) == (None, NOTHING_PAIRED)


def ac1_one_by_one(units):
    """Compute AC1 (Gwet 2008) in explicit loops; missing judgments are handled as in irrCAC."""
    labels = range(len(units[0]))
    judged = [unit for unit in units if sum(unit) >= 1]
    paired = [unit for unit in units if sum(unit) >= 2]
    agreeing = [sum(n * (n - 1) for n in unit) / (sum(unit) * (sum(unit) - 1)) for unit in paired]
    observed = sum(agreeing) / len(paired)
    shares = [sum(unit[label] / sum(unit) for unit in judged) / len(judged) for label in labels]
    by_chance = sum(share * (1 - share) for share in shares) / (len(labels) - 1)
    return (observed - by_chance) / (1 - by_chance)


@given(tables)
def test_ac1_matches_explicit_loops(units):
    assume(any(sum(unit) >= 2 for unit in units))
    patterns, n_tasks = np.unique(units, axis=0, return_counts=True)

    assert gwet_ac1(patterns, n_tasks, rng(), 10).value == pytest.approx(ac1_one_by_one(units), abs=1e-9)


def test_ac1_matches_hand_computation():
    # Two labels, two observers: 118 yes-yes, 5 and 2 disputes, 0 no-no (paradox of high agreement in Gwet 2008).
    # P = 118/125; p_yes = (2 * 118 + 7) / 250 = .972; P_e = 2 * .972 * .028 = .054432; AC1 = (.944 - P_e) / (1 - P_e).
    patterns, n_tasks = np.array([[2, 0], [1, 1]]), np.array([118, 7])

    assert gwet_ac1(patterns, n_tasks, rng()).value == pytest.approx((0.944 - 0.054432) / (1 - 0.054432), abs=1e-12)
    assert krippendorff_alpha(patterns, n_tasks, rng()).value < 0


def test_single_judgment_counts_for_label_shares_but_not_agreement():
    # Units aa, ab, b: P = (1 + 0) / 2; p_a = (1 + 1/2 + 0) / 3 = 1/2; P_e = 1/2; AC1 = 0.
    assert ac1_of_shares(np.array([[2, 0], [1, 1], [0, 1]]), np.ones((1, 3))) == pytest.approx([0], abs=1e-12)


def test_unanimous_ac1_is_one_with_interval():
    ac1 = gwet_ac1(np.array([[3, 0, 0]]), np.array([10]), rng())

    assert (ac1.value, ac1.high, ac1.n_units, ac1.reason) == (1, 1, 10, None)
    assert 0.5 < ac1.low < 1


@pytest.mark.parametrize("patterns", [np.array([[1, 0], [0, 1]]), np.empty((0, 3), dtype=int)], ids=["alone", "none"])
def test_ac1_is_undefined_without_pairs(patterns):
    ac1 = gwet_ac1(patterns, np.ones(len(patterns), dtype=int), rng())

    assert (ac1.value, ac1.low, ac1.high, ac1.n_units, ac1.reason) == (None, None, None, 0, NOTHING_PAIRED)


def test_pair_counts_match_hand_computation():
    # Task 0: annotators 0, 1, 3 answer 0, 0, 1. Task 1: annotators 1, 3 answer 1, 1. Task 2: annotator 2 only.
    task = np.array([0, 0, 0, 1, 1, 2])
    annotator = np.array([0, 1, 3, 1, 3, 2])
    label = np.array([0, 0, 1, 1, 1, 0])

    assert pair_counts(task, annotator, label) == [(0, 1, 1, 1), (0, 3, 1, 0), (1, 3, 2, 1)]


def test_pair_counts_are_empty_without_pairs():
    empty = np.zeros(0, dtype=np.int64)

    assert pair_counts(empty, empty, empty) == []
    assert pair_counts(np.array([0]), np.array([0]), np.array([0])) == []
