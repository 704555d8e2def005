"""Rates of cuts (the best tuples of harvests), compared with hand computation and the overall rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgharvest.statistics.rates import (
    EMPTY_STRATUM,
    RankedStrata,
    VerdictSample,
    largest_part,
    population_rate,
    score_cuts,
    surely_largest_part,
)

TTFT_FF = [True, True, False, True, False, False]


def ranked_strata(ranges, draws):
    """Build strata from ranges (first rank, last rank, population) and draws (stratum, rank, T, F, or . for open)."""
    stratum, rank, labels = (np.array(column) for column in zip(*draws, strict=True))
    return RankedStrata(
        *np.array(ranges).T, (stratum, rank, VerdictSample.of_complete(labels != ".", labels == "T"), labels != ".")
    )


def cuts_of(is_accepted, scores=None, apart=1):
    """Return the cuts of a stratum in which every `apart`-th tuple was judged."""
    number = np.arange(1, len(is_accepted) + 1)
    size = apart * len(is_accepted)
    draws = (
        np.zeros(len(number), dtype=np.int64),
        apart * number,
        VerdictSample.of_complete(number > 0, np.array(is_accepted)),
        number > 0,
    )
    ranked = RankedStrata(np.array([1]), np.array([size]), np.array([size]), draws)
    return score_cuts(
        ranked, np.array([0]), apart * number, np.array(-number if scores is None else scores, dtype=np.float64)
    )


def test_open_tuples_are_excluded_from_rate():
    # Sixty drawn tuples, every third one judged. Judged tuples up to rank 10 are true.
    draws = [(0, rank, ("T" if rank <= 10 else "F") if rank % 3 == 1 else ".") for rank in range(1, 61)]
    ranked = ranked_strata([(1, 60, 60)], draws)

    rate, parts = ranked.rate(np.array([0]), np.array([60]))
    assert rate == population_rate([4], [20], [60])
    assert parts.n == 20
    assert ranked.rate(np.array([0]), np.array([10]))[0].value == 1


def test_parts_are_weighted_by_tuples_in_cut():
    draws = [(0, 10, "T"), (0, 90, "T"), (1, 150, "F"), (1, 900, "T")]
    ranked = ranked_strata([(1, 100, 100), (101, 1000, 900)], draws)

    rate, parts = ranked.rate(np.array([0, 1]), np.array([200, 200]))

    assert parts.population.tolist() == [100, 100]
    assert rate == population_rate([2, 0], [2, 1], [100, 100])


def test_part_without_verdict_leaves_rate_undefined():
    ranked = ranked_strata([(1, 100, 100), (101, 1000, 900)], [(0, 10, "T"), (1, 150, "."), (1, 900, "T")])
    both = np.array([0, 1])

    assert ranked.rate(both, np.array([500, 500]))[0].reason == EMPTY_STRATUM
    assert ranked.rate(both, np.array([100, 100]))[0].value == 1
    assert np.isnan(ranked.shares(both, np.array([100, 500, 1000]))).tolist() == [False, True, False]


def test_hidden_tuples_are_excluded_from_population():
    ranked = ranked_strata([(1, 100, 50)], [(0, 10, "T"), (0, 100, "F")])

    for last_rank, size in ((100, 50), (50, 25), (2, 1), (99, 49)):
        assert ranked.parts(np.array([0]), np.array([last_rank])).population == size


@given(st.lists(st.sampled_from("TF."), min_size=2, max_size=30), st.integers(1, 29))
def test_shares_match_rates(labels, last_of_first):
    n, middle = len(labels), min(last_of_first, len(labels) - 1)
    draws = [(int(rank > middle), rank, label) for rank, label in enumerate(labels, start=1)]
    ranked = ranked_strata([(1, middle, middle), (middle + 1, n, n - middle)], draws)
    both, ranks = np.array([0, 1]), np.arange(1, n + 1)

    values = [ranked.rate(both, np.array([rank, rank]))[0].value for rank in ranks]

    expected = [np.nan if value is None else value for value in values]
    assert ranked.shares(both, ranks) == pytest.approx(np.array(expected), nan_ok=True)


@pytest.mark.parametrize(("target", "n_kept"), [(1.0, 2), (0.75, 4), (0.6, 5), (0.5, 6)])
def test_largest_part_reaching_target_is_kept(target, n_kept):
    part = largest_part(cuts_of(TTFT_FF), target)

    assert (part.n, part.score) == (n_kept, -n_kept)
    assert part.low == part.high == part.precision >= target  # everything was judged


def test_precision_matches_report_rate_of_same_cut():
    """Low-ranked tuples have fewer judgments; inclusion weights would underweight them."""
    rng = np.random.default_rng(0)
    rank = np.sort(rng.choice(np.arange(1, 1001), 200, replace=False))
    is_accepted = rng.random(200) < np.where(rank < 400, 0.95, 0.4)
    is_judged = rng.random(200) < np.where(rank < 400, 0.9, 0.2)
    draws = (
        np.zeros(200, dtype=np.int64),
        rank,
        VerdictSample.of_complete(is_judged, is_accepted & is_judged),
        is_judged,
    )
    ranked = RankedStrata(np.array([1]), np.array([1000]), np.array([1000]), draws)

    part = largest_part(score_cuts(ranked, np.array([0]), rank[is_judged], -rank[is_judged].astype(float)), 0.8)

    rate, parts = ranked.rate(np.array([0]), np.array([int(-part.score)]))
    assert (part.precision, part.low, part.high) == rate[:3]
    assert part.n == int(parts.n.sum())
    assert part.precision >= 0.8


def test_sure_part_requires_more_evidence():
    cuts = cuts_of(TTFT_FF, apart=20)

    assert surely_largest_part(cuts, 0.95) is None
    assert surely_largest_part(cuts, 0.2).low >= 0.2


def test_equal_scores_stay_together():
    cuts = cuts_of([True, False, True], scores=[2, 1, 1])

    assert [cuts.part(number).n for number in range(2)] == [1, 3]
