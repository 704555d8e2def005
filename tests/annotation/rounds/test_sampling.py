"""Sample allocation to strata and random draws."""

from collections import Counter

import numpy as np
import pytest

from annotation.judges.allocation import allocate
from annotation.rounds.builder import draw_ranks, rank_strata


@pytest.mark.parametrize(
    ("n", "sizes", "allocation", "shares"),
    [
        (10, [50, 50, 50], "equal", [4, 3, 3]),
        (30, [4, 50, 50], "equal", [4, 13, 13]),  # the first stratum has only four tuples
        (10, [10, 20, 70], "proportional", [1, 2, 7]),
        (5, [1, 1, 1000], "proportional", [1, 1, 3]),  # at least one tuple per stratum
        (14, [6, 47, 16, 36], "proportional", [1, 6, 2, 5]),  # quotas 0.8, 6.3, 2.1, 4.8: Webster rounds the last up
        (6, [1, 2, 3], "proportional", [1, 2, 3]),
    ],
)
def test_sample_is_allocated_to_strata(n, sizes, allocation, shares):
    assert allocate(n, sizes, allocation) == shares


def test_simulated_draws_match_inclusion_probabilities():
    """Check that each rank's frequency in 2000 samples is within 4.5 standard errors of its probability."""
    ranks = list(range(1, 61))
    strata = rank_strata(ranks, [1, 11, 31])
    shares = allocate(12, [len(part) for part in strata], "equal")
    rng = np.random.default_rng(1)

    times = Counter(
        rank for _ in range(2000) for part, n in zip(strata, shares, strict=True) for rank in draw_ranks(part, n, rng)
    )

    for part, n in zip(strata, shares, strict=True):
        probability = n / len(part)
        error = (probability * (1 - probability) / 2000) ** 0.5
        assert all(abs(times[rank] / 2000 - probability) < 4.5 * error for rank in part)
