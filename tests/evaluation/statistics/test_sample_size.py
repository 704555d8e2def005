"""Plans against the distribution that they approximate, and by simulation."""

import numpy as np
import pytest
from scipy.stats import nct, t, ttest_1samp

from evaluation.statistics.sample_size import relations_for_interval, relations_to_tell_apart


@pytest.mark.parametrize(("difference", "spread"), [(0.126, 0.17), (0.05, 0.2), (-0.3, 0.3), (0.2, 0.15)])
def test_relations_to_tell_apart_are_those_of_the_noncentral_t_distribution(difference, spread):
    def power(n):
        return nct.sf(t.ppf(0.975, n - 1), n - 1, abs(difference) / spread * np.sqrt(n))

    exact = next(n for n in range(3, 2000) if power(n) >= 0.8)

    assert relations_to_tell_apart(difference, spread) == pytest.approx(exact, abs=1)


def test_the_planned_number_finds_the_difference_in_four_of_five_rounds():
    rng = np.random.default_rng(0)
    n = relations_to_tell_apart(0.12, 0.2)

    p = ttest_1samp(rng.normal(0.12, 0.2, size=(4000, n)), 0, axis=1).pvalue

    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.03)


def test_a_difference_of_next_to_nothing_is_beyond_any_plan():
    assert relations_to_tell_apart(0.0001, 0.2) is None


def test_half_the_interval_over_relations_takes_less_than_four_times_as_many():
    # By hand: t(.975, 4) / sqrt(5) = 1.242; t(.975, 12) / sqrt(13) = .604, t(.975, 11) / sqrt(12) = .635.
    assert relations_for_interval(5, 0.5) == 13
