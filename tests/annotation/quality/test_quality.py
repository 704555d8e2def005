"""Statistics of annotators and limits that pause them."""

import pytest
from django.utils import timezone

from annotation.judging.assignment import AnnotatorNotActive, next_batch
from annotation.models import Annotator, Judgment, JudgmentTask, Limits
from annotation.quality.events import sentence
from annotation.quality.limits import (
    CannotPause,
    count_annotators,
    crossed,
    look_at,
    pause_annotator,
    resume_annotator,
    set_limits,
    statistics_of,
)
from annotation.quality.profiles import Said, profile
from tests.factories import judge, judge_all, make_annotators, make_round

pytestmark = pytest.mark.django_db


def make_gold(round, tasks, label: str) -> None:
    """Turn tasks of the round into gold, as if they had been mixed in."""
    round.tasks.filter(pk__in=[task.pk for task in tasks]).update(
        is_gold=True, gold_label=label, n_wanted=0, n_leased=0, n_judgments=0, n_true=0, n_false=0, n_unjudgeable=0,
        verdict="",
    )  # fmt: skip
    Judgment.objects.filter(task__in=tasks).update(is_counted=False)


def by_code(round) -> dict:
    return {each["code"]: each for each in count_annotators(round)}


def test_statistics_by_hand():
    """Three annotators, four statements, the last one gold and True."""
    round = make_round(4)
    labels = ["true", "true", "false", "true"], ["true", "false", "false", "false"], ["true", "true", "true", "true"]
    annotators = judge_all(round, *labels)
    make_gold(round, [round.tasks.get(position=3)], "true")

    first, second, third = (by_code(round)[annotator.code] for annotator in annotators)

    # Statement 0: TTT, 1: TFT, 2: FFT. Each meets two others on each of three statements: six pairs.
    assert (first["agreement"], first["n_pairs"]) == (pytest.approx((2 + 1 + 1) / 6), 6)
    assert second["agreement"] == pytest.approx((2 + 0 + 1) / 6)
    assert third["agreement"] == pytest.approx((2 + 1 + 0) / 6)
    assert (first["n_gold_right"], second["n_gold_right"]) == (1, 0)
    # Wilson (1927) for 1 of 1: 1 / (1 + 1.96^2) to 1.
    assert first["gold"]["low"] == pytest.approx(0.2065, abs=1e-4)
    assert first["gold"]["high"] == 1
    assert third["shares"] == {"true": 1.0, "false": 0.0, "unjudgeable": 0.0}
    assert third["longest_run"] == 4


def test_a_judgment_that_does_not_count_is_compared_with_all_that_do():
    round = make_round(1)
    first, *_ = judge_all(round, ["true"], ["true"], ["false"])
    Judgment.objects.filter(annotator=first).update(is_counted=False)
    round.tasks.update(n_judgments=2, n_true=1, verdict="")

    assert by_code(round)[first.code]["agreement"] == 0.5


def test_who_stands_out_does_so_without_limits_and_beside_them():
    round = make_round(30, batch_size=30)
    set_limits(round, gold_accuracy=0.5)
    mixed = ["true", "false"] * 15
    *_, straight = judge_all(round, mixed, mixed, ["true"] * 30)
    Judgment.objects.filter(annotator=straight).update(seconds=0.4)

    assert by_code(round)[straight.code]["flags"] == ["median of 0.4 seconds", "30 equal labels in a row"]
    assert statistics_of(straight, timezone.now())["flags"] == by_code(round)[straight.code]["flags"]
    assert [each["flags"] for code, each in by_code(round).items() if code != straight.code] == [[], []]


@pytest.mark.parametrize("n_annotators", [2, 12])
def test_statistics_take_the_same_queries_for_more_annotators(n_annotators, django_assert_num_queries):
    round = make_round(3, judgments_per_task=12)
    judge_all(round, *[["true"] * 3] * n_annotators)

    with django_assert_num_queries(7):
        count_annotators(round)


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def annotator() -> Annotator:
    [annotator] = make_annotators(make_round(60, batch_size=10), 1)
    return annotator


def judge_more(annotator: Annotator, n: int, label=None, **fields) -> None:
    """Give so many answers, alternately True and False unless a label is named."""
    batch: list[JudgmentTask] = []
    for number in range(n):
        batch = batch or next_batch(annotator, timezone.now())
        judge(annotator, batch.pop(0), label or ("true", "false")[number % 2], **fields)


def status_of(annotator: Annotator) -> str:
    return Annotator.objects.get(pk=annotator.pk).status


def test_too_long_a_run_pauses_and_tells_both(annotator):
    set_limits(annotator.round, longest_run=9)

    judge_more(annotator, 10, "true")

    with pytest.raises(AnnotatorNotActive):
        next_batch(annotator, timezone.now())
    event = annotator.round.events.first()
    assert sentence(event) == "was paused by a limit: 10 equal labels in a row"
    assert event.annotator == annotator


def test_too_fast_pauses_once_there_is_enough_to_say_so(annotator):
    set_limits(annotator.round, median_seconds=2)

    judge_more(annotator, 19, seconds=0.4)
    assert status_of(annotator) == "active"
    judge_more(annotator, 1, seconds=0.4)

    assert status_of(annotator) == "paused"


def test_too_much_gold_wrong_pauses(annotator):
    set_limits(annotator.round, gold_accuracy=0.6, n_gold=5)
    make_gold(annotator.round, annotator.round.tasks.all(), "true")
    for task in annotator.round.tasks.all()[:10]:
        annotator.assignments.create(task=task, expires_at=timezone.now())
        judge(annotator, task, "true" if task.position % 2 else "false")

    assert status_of(annotator) == "paused"
    assert annotator.round.events.first().details["why"] == "5 of 10 gold statements right"


def test_without_limits_nobody_is_paused(annotator):
    judge_more(annotator, 20, "true", seconds=0.1)

    assert status_of(annotator) == "active"


def test_who_is_let_go_on_starts_anew(annotator):
    set_limits(annotator.round, longest_run=9)
    judge_more(annotator, 10, "true")

    resume_annotator(annotator)
    judge_more(annotator, 10)

    assert status_of(annotator) == "active"


def test_a_look_costs_nothing_but_at_every_tenth_judgment(annotator, django_assert_num_queries):
    set_limits(annotator.round, longest_run=9)

    with django_assert_num_queries(0):
        annotator.n_judged = 11
        look_at(annotator)
    with django_assert_num_queries(2):
        annotator.n_judged = 20
        look_at(annotator)


def test_only_the_active_can_be_paused_and_only_the_paused_resumed(annotator):
    with pytest.raises(CannotPause):
        resume_annotator(annotator)
    pause_annotator(annotator)

    with pytest.raises(CannotPause):
        pause_annotator(annotator)
    assert [event.kind for event in annotator.round.events.all()] == ["annotator_paused", "joined", "opened"]


def test_a_gold_limit_needs_its_number_of_answers():
    wrong = [Said("false", None, "true", 0, 0)] * 4

    assert crossed(profile(wrong), Limits(gold_accuracy=0.7, n_gold=5)) == []
    assert crossed(profile(wrong), Limits(gold_accuracy=0.7, n_gold=4)) == ["0 of 4 gold statements right"]
