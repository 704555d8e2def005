"""Annotator profiles, compared with hand calculations and an exact recursion."""

import random

import pytest

from annotation.quality.profiles import JudgmentRow, chance_of_run, expected_longest_run, is_below, profile_of


def judgment(label="true", seconds=None, gold_label="", n_same=0, n_others=0) -> JudgmentRow:
    return JudgmentRow(label, seconds, gold_label, n_same, n_others)


def test_profile_matches_hand_calculation():
    profile = profile_of(
        [
            judgment("true", 0.5, gold_label="true"),
            judgment("true", 2.0, n_same=1, n_others=2),
            judgment("false", 4.0, gold_label="true"),
            judgment("false", None, n_same=2, n_others=2),
            judgment("false", 8.0, n_same=0, n_others=1),
        ]
    )

    assert (profile.n_gold, profile.n_gold_right, profile.gold_accuracy) == (2, 1, 0.5)
    assert (profile.n_agreeing, profile.n_pairs, profile.agreement) == (3, 5, 0.6)
    assert (profile.median_seconds, profile.too_fast) == (3.0, 0.25)
    assert profile.shares == {"true": 0.4, "false": 0.6, "unjudgeable": 0.0}
    assert profile.longest_run == 3


def test_rates_are_none_without_judgments():
    profile = profile_of([])

    assert (profile.gold_accuracy, profile.agreement, profile.median_seconds, profile.too_fast) == (None,) * 4
    assert profile.longest_run == 0


def test_expected_longest_run_of_200_fair_tosses_matches_schilling():
    # Schilling (1990), The longest run of heads: heads or tails, about log2(n) + 1/3 = 8.
    assert expected_longest_run(200, {"true": 0.5, "false": 0.5}) == pytest.approx(8, abs=0.15)


def exact_chance_of_no_run(length: int, n: int, shares: list[float]) -> float:
    """Return the exact probability of no run of `length` labels among n, by recursion on the last label."""
    last = [[0.0] * len(shares)]  # [i][l]: no such run among the first i labels, and the i-th label is l
    other = [[1.0] * len(shares)]  # [i][l]: the same, but the i-th label is not l
    for i in range(1, n + 1):
        row = [p * (last[-1][k] + other[-1][k]) for k, p in enumerate(shares)]
        if i >= length:
            row = [chance - shares[k] ** length * other[i - length][k] for k, chance in enumerate(row)]
        last.append(row)
        other.append([sum(row) - chance for chance in row])
    return sum(last[-1])


def test_recursion_matches_four_tosses():
    # Runs of three: HHHx, THHH and their mirror images, 6 of 16.
    assert exact_chance_of_no_run(3, 4, [0.5, 0.5]) == pytest.approx(10 / 16)


@pytest.mark.parametrize("shares", [{"a": 0.5, "b": 0.5}, {"a": 0.7, "b": 0.2, "c": 0.1}])
def test_expected_longest_run_of_100_judgments_is_accurate(shares):
    chances = [1 - exact_chance_of_no_run(length, 100, list(shares.values())) for length in range(2, 100)]

    assert expected_longest_run(100, shares) == pytest.approx(1 + sum(chances), rel=0.04)


def test_runs_of_constant_labels_have_probability_one():
    assert chance_of_run(30, 30, {"true": 1.0, "false": 0.0}) == 1.0
    assert expected_longest_run(30, {"true": 1.0, "false": 0.0}) == 30
    assert expected_longest_run(0, {"true": 1.0}) == 0


# Gold limit, checked after each answer


def answers_until_found_below(accuracy: float, limit: float, n_people: int) -> list[int]:
    """Return the number of answers after which each annotator was found below the limit, within 10 to 200."""
    rng, n_answers = random.Random(0), []
    for _ in range(n_people):
        n_right = 0
        for n in range(1, 201):
            n_right += rng.random() < accuracy
            if n >= 10 and is_below(limit, n_right, n):
                n_answers.append(n)
                break
    return n_answers


@pytest.mark.parametrize("limit", [0.6, 0.85, 0.95])
def test_gold_limit_false_alarm_rate_is_at_most_five_percent(limit):
    assert len(answers_until_found_below(limit, limit, 1000)) <= 0.05 * 1000


@pytest.mark.parametrize("limit", [0.6, 0.7, 0.85])
def test_accuracy_20_points_below_limit_is_detected_within_120_answers(limit):
    assert sum(n <= 120 for n in answers_until_found_below(limit - 0.2, limit, 300)) >= 0.9 * 300


def test_gold_limit_evidence_is_mean_likelihood_ratio():
    """Check n wrong answers, limit .5: 2 * 2^n * integral of (1 - p)^n over [0, 1/2] is 18.1 for 6, 31.9 for 7."""
    evidence = {n: 2 * 2**n * (1 - 0.5 ** (n + 1)) / (n + 1) for n in (6, 7)}

    assert evidence[6] < 20 < evidence[7]
    assert [is_below(0.5, 0, n) for n in (6, 7)] == [False, True]


def test_gold_limits_of_zero_and_one():
    assert [is_below(1, 9, 10), is_below(1, 10, 10), is_below(0, 0, 10)] == [True, False, False]
