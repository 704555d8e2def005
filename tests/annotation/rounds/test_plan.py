"""What a round will cost and tell."""

import pytest

from annotation.rounds.plan import StratumSize, effective_size, half_width, macro_half_width, workload


def test_tuples_that_cells_share_are_judged_once():
    work = workload([50, 50], 80, 3, seconds_per_judgment=5)

    assert (work.n_shared, work.n_judgments, work.n_judgments_least) == (20, 240, 240)
    assert work.hours == pytest.approx(240 * 5 / 3600)


def test_a_third_person_is_asked_between_never_and_always():
    work = workload([100], 100, 3, third_only_if_split=True)

    assert (work.n_judgments_least, work.n_judgments) == (200, 300)


def test_gold_is_a_share_of_all_that_is_shown():
    work = workload([90], 90, 1, gold_share=0.1)

    assert work.n_gold_shown == 10


@pytest.mark.parametrize(
    ("n", "accuracy", "low", "high"),
    [(263, 81 / 263, 0.2553, 0.3662), (148, 15 / 148, 0.0624, 0.1605), (20, 0.0, 0.0, 0.1611)],
)
def test_the_half_width_is_that_of_wilsons_interval(n, accuracy, low, high):
    """Newcombe (1998), Statistics in Medicine 17, Table I, method 3."""
    assert half_width(n, accuracy) == pytest.approx((high - low) / 2, abs=1e-4)


def test_a_proportional_sample_is_as_exact_as_a_simple_one():
    together = effective_size([StratumSize(400, 40)])

    assert effective_size([StratumSize(100, 10), StratumSize(300, 30)]) == pytest.approx(together)
    assert together == pytest.approx(40 / 0.9)  # a tenth of the harvest is known


def test_an_equal_share_for_a_small_stratum_costs_exactness():
    # 1 / (1/16 (1/20 - 1/100) + 9/16 (1/20 - 1/300)), against 40 / .9 of a proportional sample.
    assert effective_size([StratumSize(100, 20), StratumSize(300, 20)]) == pytest.approx(1 / 0.02875)


def test_where_all_tuples_are_judged_the_interval_has_no_width():
    everything = effective_size([StratumSize(40, 40), StratumSize(7, 7)])

    assert half_width(everything) == 0
    assert macro_half_width([everything, everything]) == 0


def test_the_average_over_relations_is_narrower_than_each():
    assert macro_half_width([100, 100, 100, 100]) == pytest.approx(1.959964 * 0.5 / 20)
