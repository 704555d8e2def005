import numpy as np
import pytest

from kgharvest.statistics.agreement import expected_flips


def two_kinds(random, size):
    """Draw propensities of a Dawid-Skene population: 60 % true statements, annotators 85 % accurate."""
    return np.where(random.random(size) < 0.6, 0.85, 0.15)


def one_kind(random, size):
    return random.beta(2, 1, size)


def flips_of_rounds(propensities, m, k, n_rounds=40):
    """Return the flip rate between two panels of size k and its estimates from rounds of 300 statements."""
    random = np.random.default_rng(0)
    many = propensities(random, 400_000)
    first, second = (2 * random.binomial(k, many) > k for _ in range(2))
    rounds = [np.bincount(random.binomial(m, propensities(random, 300)), minlength=m + 1) for _ in range(n_rounds)]
    return np.mean(first != second), [expected_flips(n_tasks, k, random, 300) for n_tasks in rounds]


@pytest.mark.parametrize("propensities", [two_kinds, one_kind])
@pytest.mark.parametrize(("m", "k"), [(2, 3), (3, 3), (5, 5)])
def test_interval_covers_flip_rate_for_any_population(propensities, m, k):
    truth, estimates = flips_of_rounds(propensities, m, k)

    assert sum(flips.low <= truth <= flips.high for flips in estimates) >= 34  # of 40: within 3 standard errors of .95
    assert all(flips.low <= flips.value <= flips.high for flips in estimates)


def test_ten_judgments_estimate_flips_of_two_kinds():
    truth, estimates = flips_of_rounds(two_kinds, 10, 3, n_rounds=30)

    assert truth == pytest.approx(2 * 0.93925 * 0.06075, abs=0.002)  # panel accuracy: .85^3 + 3 * .85^2 * .15
    assert np.mean([flips.value for flips in estimates]) == pytest.approx(truth, abs=0.015)


def test_three_judgments_estimate_flips_of_one_kind():
    truth, estimates = flips_of_rounds(one_kind, 3, 3)

    assert np.mean([flips.value for flips in estimates]) == pytest.approx(truth, abs=0.015)


def test_full_agreement_on_few_statements_leaves_wide_flip_interval():
    flips = expected_flips(np.array([10, 0, 0, 10]), 3, np.random.default_rng(0), 1000)

    assert flips.value == pytest.approx(0, abs=1e-3)
    assert 0.02 < flips.high < 0.2
