"""The best tuples of harvests, by hand and against the rate of the whole."""

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
    """ranges: first rank, last rank and population of each stratum; draws: stratum, rank, and T, F or . for open."""
    stratum, rank, said = (np.array(column) for column in zip(*draws, strict=True))
    return RankedStrata(
        *np.array(ranges).T, (stratum, rank, VerdictSample.of_complete(said != ".", said == "T"), said != ".")
    )


def cuts_of(is_accepted, scores=None, apart=1):
    """Return the cuts of a stratum of which every tuple was judged, or one in so many."""
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


def test_what_is_left_open_is_no_part_of_a_rate():
    # Sixty tuples, all drawn; of every three the first is judged: the best ten of these true.
    draws = [(0, rank, ("T" if rank <= 10 else "F") if rank % 3 == 1 else ".") for rank in range(1, 61)]
    ranked = ranked_strata([(1, 60, 60)], draws)

    rate, parts = ranked.rate(np.array([0]), np.array([60]))
    assert rate == population_rate([4], [20], [60])
    assert parts.n == 20
    assert ranked.rate(np.array([0]), np.array([10]))[0].value == 1


def test_a_part_weighs_as_many_tuples_as_the_cut_takes_of_it():
    draws = [(0, 10, "T"), (0, 90, "T"), (1, 150, "F"), (1, 900, "T")]
    ranked = ranked_strata([(1, 100, 100), (101, 1000, 900)], draws)

    rate, parts = ranked.rate(np.array([0, 1]), np.array([200, 200]))

    assert parts.population.tolist() == [100, 100]
    assert rate == population_rate([2, 0], [2, 1], [100, 100])


def test_a_part_without_a_verdict_leaves_the_rate_unknown_with_a_reason():
    ranked = ranked_strata([(1, 100, 100), (101, 1000, 900)], [(0, 10, "T"), (1, 150, "."), (1, 900, "T")])
    both = np.array([0, 1])

    assert ranked.rate(both, np.array([500, 500]))[0].reason == EMPTY_STRATUM
    assert ranked.rate(both, np.array([100, 100]))[0].value == 1
    assert np.isnan(ranked.shares(both, np.array([100, 500, 1000]))).tolist() == [False, True, False]


def test_hidden_tuples_are_no_part_of_a_population():
    ranked = ranked_strata([(1, 100, 50)], [(0, 10, "T"), (0, 100, "F")])

    for last_rank, size in ((100, 50), (50, 25), (2, 1), (99, 49)):
        assert ranked.parts(np.array([0]), np.array([last_rank])).population == size


@given(st.lists(st.sampled_from("TF."), min_size=2, max_size=30), st.integers(1, 29))
def test_values_alone_are_those_of_rates(said, last_of_first):
    n, middle = len(said), min(last_of_first, len(said) - 1)
    draws = [(int(rank > middle), rank, label) for rank, label in enumerate(said, start=1)]
    ranked = ranked_strata([(1, middle, middle), (middle + 1, n, n - middle)], draws)
    both, ranks = np.array([0, 1]), np.arange(1, n + 1)

    values = [ranked.rate(both, np.array([rank, rank]))[0].value for rank in ranks]

    expected = [np.nan if value is None else value for value in values]
    assert ranked.shares(both, ranks) == pytest.approx(np.array(expected), nan_ok=True)


@pytest.mark.parametrize(("target", "n_kept"), [(1.0, 2), (0.75, 4), (0.6, 5), (0.5, 6)])
def test_the_largest_part_that_reaches_the_target_is_kept(target, n_kept):
    part = largest_part(cuts_of(TTFT_FF), target)

    assert (part.n, part.score) == (n_kept, -n_kept)
    assert part.low == part.high == part.precision >= target  # all was judged


def test_precision_is_the_rate_that_reports_give_of_the_same_cut():
    """The worse tuples wait for judgments: weights by inclusion would have them count for less."""
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


def test_to_be_sure_takes_more_evidence():
    cuts = cuts_of(TTFT_FF, apart=20)

    assert surely_largest_part(cuts, 0.95) is None
    assert surely_largest_part(cuts, 0.2).low >= 0.2


def test_equal_scores_stay_together():
    cuts = cuts_of([True, False, True], scores=[2, 1, 1])

    assert [cuts.part(number).n for number in range(2)] == [1, 3]
