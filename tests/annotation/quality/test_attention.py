"""Attention flags: hand calculations and false-alarm rates for attentive annotators."""

from itertools import permutations
from random import Random
from statistics import NormalDist

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.models import Annotator
from annotation.quality.annotator_statistics import count_annotators, statistics_of
from annotation.quality.profiles import (
    FALSE_ALARMS,
    JudgmentSigns,
    agreement_against_chance,
    attention_flags,
    chance_of_longest_run,
    longest_run,
    pasted_texts,
    reading_speed,
)
from tests.factories import judge, make_annotators, make_round

LONG = "This dog can swim because I have seen it do so."


def signs(label="true", seconds=4.0, n_characters=30, **others) -> JudgmentSigns:
    return JudgmentSigns(label, seconds, n_characters, others)


# Speed


def test_reading_speed_is_median_of_characters_per_second():
    timed = [signs(seconds=2.0)] * 10 + [signs(seconds=3.0)] * 9 + [signs(seconds=0.01)] * 2

    assert reading_speed(timed) == 15  # 30 characters in 2 seconds; two accidental clicks hardly change the median


def test_fewer_than_20_timed_judgments_have_no_reading_speed():
    assert reading_speed([signs(seconds=0.1)] * 19 + [signs(seconds=None)] * 50) is None


def test_reading_above_sixty_characters_per_second_is_flagged():
    as_fast, faster = ([signs(seconds=seconds)] * 40 for seconds in (0.5, 0.49))

    assert attention_flags(as_fast, 1) == []
    assert attention_flags(faster, 1) == ["half of the statements judged at more than 60 characters per second"]


# Straight-lining


def test_run_probability_matches_hand_calculation():
    """Count three of the ten orders of three T and two F with TTT: 3 starts, each 3/5 * 2/4 * 1/3 = 1/10."""
    assert chance_of_longest_run("TTTFF") == pytest.approx(0.3)


def test_run_probability_of_equal_labels_is_one():
    assert chance_of_longest_run(["true"] * 50) == 1


@pytest.mark.parametrize("labels", ["TTTTFF", "TTFTFF", "TTUFTF", "TFTFUU", "TTTTTF"])
def test_run_probability_bound_covers_all_orders(labels):
    orders = list(permutations(labels))

    share = sum(longest_run(order) >= longest_run(labels) for order in orders) / len(orders)

    assert share <= chance_of_longest_run(labels) + 1e-12


def test_long_runs_are_flagged_and_mixed_labels_are_not():
    line = [signs("true")] * 30 + [signs("false")] * 30
    mixture = [signs(label) for label in ["true", "false", "true", "true", "false", "false"] * 10]

    assert attention_flags(line, 10) == ["30 equal labels in a row, improbable under random order"]
    assert attention_flags(line, 10, is_order_random=False) == []
    assert attention_flags(mixture, 10) == []


# Agreement


def test_agreement_against_chance_matches_hand_calculation():
    """Check two tasks with labels T and F and other labels F and T: the sum of agreeing shares is 0 or 2 by order.

    The expected sum is 1, with variance 1. Normal: P(Z <= -1) = 0.1587.
    """
    agreement = agreement_against_chance([signs("true", false=1), signs("false", true=1)])

    assert (agreement.observed, agreement.expected) == (0, 1)
    assert agreement.chance == pytest.approx(0.1587, abs=5e-5)


def test_agreement_mean_and_variance_match_all_permutations():
    others = [{"true": 2}, {"true": 1, "false": 1}, {"false": 2}, {"unjudgeable": 1, "false": 1}, {"true": 1}]
    labels = ["true", "false", "false", "true", "unjudgeable"]

    def agreeing(order) -> float:
        return sum(counts.get(label, 0) / sum(counts.values()) for counts, label in zip(others, order, strict=True))

    sums = [agreeing(order) for order in permutations(labels)]
    mean = sum(sums) / len(sums)
    deviation = (sum((value - mean) ** 2 for value in sums) / len(sums)) ** 0.5
    agreement = agreement_against_chance(
        [JudgmentSigns(label, None, 9, counts) for label, counts in zip(labels, others, strict=True)]
    )

    assert agreement.expected == pytest.approx(mean)
    assert agreement.chance == pytest.approx(NormalDist(mean, deviation).cdf(agreeing(labels)))


def test_swapped_labels_are_flagged_and_agreement_is_not():
    labels = ["true", "false", "false", "true", "true"] * 10
    swapped = {"true": "false", "false": "true"}

    assert attention_flags([signs(label, **{label: 2}) for label in labels], 20) == []
    [flag] = attention_flags([signs(label, **{swapped[label]: 2}) for label in labels], 20)
    assert flag == "far below chance: 0 % agreement with others; expected by chance: 48 %"


def test_agreement_of_equal_labels_has_no_probability():
    assert agreement_against_chance([signs("true", false=2)] * 30).chance is None


# Pasted texts


def test_equal_long_texts_of_two_annotators_count():
    texts = [(1, LONG), (2, f"  {LONG.upper()}!"), (2, LONG), (3, "I do not know."), (4, "I do not know.")]

    assert pasted_texts(texts) == {1: 1, 2: 2}


def test_repeated_texts_of_one_annotator_do_not_count():
    assert pasted_texts([(1, LONG), (1, LONG)]) == {}


# False-alarm rates


def attentive_round(rng: Random, n_annotators: int, n_tasks: int) -> list[list[JudgmentSigns]]:
    """Return judgments with 90 % accuracy, reading at 12 to 30 characters per second plus thinking time."""
    truth = [rng.random() < 0.7 for _ in range(n_tasks)]
    labels = [[true == (rng.random() < 0.9) for true in truth] for _ in range(n_annotators)]
    speeds = [rng.uniform(12, 30) for _ in range(n_annotators)]
    people = []
    for own_labels, speed in zip(labels, speeds, strict=True):
        judgments = []
        for task, label in enumerate(own_labels):
            n_true = sum(of_person[task] for of_person in labels) - label
            others = {"true": n_true, "false": n_annotators - 1 - n_true}
            length = rng.randint(20, 60)
            judgments.append(JudgmentSigns(str(label).lower(), length / speed + rng.expovariate(1), length, others))
        people.append(judgments)
    return people


def test_attentive_annotators_are_flagged_in_few_rounds():
    """Check that both probabilistic rules flag at most FALSE_ALARMS of rounds each and the other rules none."""
    rng, n_rounds = Random(20), 200

    flagged = sum(
        any(attention_flags(judgments, 6) for judgments in attentive_round(rng, 6, 40)) for _ in range(n_rounds)
    )

    assert flagged <= n_rounds * 2 * FALSE_ALARMS


def test_guessing_is_rarely_flagged_as_below_chance():
    """Use labels independent of the statements: the lowest agreement that is not below chance."""
    rng, n_rounds, n_annotators = Random(21), 400, 5

    def is_flagged() -> bool:
        return any(
            agreement.chance is not None and agreement.chance < FALSE_ALARMS / n_annotators
            for _ in range(n_annotators)
            for agreement in [
                agreement_against_chance(
                    signs(rng.choice(["true", "false"]), **{rng.choice(["true", "false"]): 2}) for _ in range(30)
                )
            ]
        )

    n_flagged = sum(is_flagged() for _ in range(n_rounds))

    margin = 3 * (n_rounds * FALSE_ALARMS * (1 - FALSE_ALARMS)) ** 0.5
    assert n_flagged <= n_rounds * FALSE_ALARMS + margin


# Rounds


@pytest.mark.django_db
def test_flags_are_shown_without_changing_status(researcher_client):
    round = make_round(24, judgments_per_task=2, batch_size=30)
    first, other = make_annotators(round, 2)
    for annotator, wrong in ((first, "true"), (other, "false")):
        for number, task in enumerate(sorted(next_batch(annotator, timezone.now()), key=lambda task: task.pk)):
            label = "true" if (number % 3 == 0) == (wrong == "true") else "false"
            judge(
                annotator, task, label, seconds=0.2 if annotator == other else 5.0, comment=LONG if number < 2 else ""
            )

    by_code = {row["code"]: row["flags"] for row in count_annotators(round)}
    detail = researcher_client.get(f"{round.get_absolute_url()}annotators/{other.code}/").text

    assert [flag.partition(":")[0] for flag in by_code[first.code]] == [
        "far below chance", "2 texts identical to another annotator's"
    ]  # fmt: skip
    assert any("60 characters per second" in flag for flag in by_code[other.code])
    assert statistics_of(other, timezone.now())["flags"] == by_code[other.code]
    assert "Flagged: far below chance: 0 % agreement with others" in detail
    assert set(Annotator.objects.values_list("status", flat=True)) == {"active"}
