"""Third judgments only for splits: same verdicts as three judgments, with fewer judgments."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from random import Random

import pytest
from django.utils import timezone

from annotation.judging.assignment import LEASE, next_batch, release_expired
from annotation.judging.verdicts import majority
from annotation.models import Annotator, Judgment, JudgmentTask, Label
from annotation.quality.exclusion import exclude_annotator
from annotation.rounds.services import close_round
from tests.factories import judge, make_annotators, make_round

pytestmark = pytest.mark.django_db

NOW = timezone.now()
T, F, U = Label.TRUE, Label.FALSE, Label.UNJUDGEABLE
SPEC = {"third_only_if_split": True}


def judge_task(task: JudgmentTask, *labels: Label) -> list[Annotator]:
    """Assign the task to one new annotator per label and submit that label."""
    annotators = make_annotators(task.round, len(labels))
    for annotator, label in zip(annotators, labels, strict=True):
        assert next_batch(annotator, NOW) == [task]
        judge(annotator, task, label)
    return annotators


def state(task: JudgmentTask) -> tuple[int, int, str]:
    task.refresh_from_db()
    return task.n_judgments, task.n_wanted, task.verdict


@pytest.fixture
def task():
    return make_round(1, **SPEC).tasks.get()


@pytest.mark.parametrize(("label", "verdict"), [(T, "accepted"), (F, "rejected"), (U, "undecided")])
def test_two_equal_judgments_decide(task, label, verdict):
    judge_task(task, label, label)

    assert state(task) == (2, 2, verdict)
    assert next_batch(*make_annotators(task.round, 1), NOW) == []


@pytest.mark.parametrize("labels", [(T, F), (T, U), (F, U)])
def test_two_different_judgments_require_a_third(task, labels):
    judge_task(task, *labels)

    assert state(task) == (2, 3, "")


@pytest.mark.parametrize("labels", list(product(Label, repeat=3)))
def test_verdict_equals_that_of_three_judgments(task, labels):
    first, second, third = labels
    judge_task(task, first, second, *([] if first == second else [third]))

    assert state(task)[2] == majority(labels.count(T), labels.count(F), 3)


def test_changed_answer_that_splits_reopens_the_task(task):
    first, _ = judge_task(task, T, T)

    judge(first, task, F)

    assert state(task) == (2, 3, "")


def test_changed_answer_that_agrees_completes_the_task(task):
    _, second = judge_task(task, T, F)

    judge(second, task, T)

    assert state(task) == (2, 2, "accepted")


def test_agreed_task_is_decided_when_closing_releases_third_lease(task):
    _, second = judge_task(task, T, F)
    next_batch(*make_annotators(task.round, 1), NOW)
    judge(second, task, T)

    close_round(task.round)

    assert state(task) == (2, 2, "accepted")


def test_third_annotator_keeps_lease_after_agreement(task):
    _, second = judge_task(task, T, F)
    [third] = make_annotators(task.round, 1)
    next_batch(third, NOW)
    judge(second, task, T)
    assert state(task) == (2, 3, "")

    judge(third, task, F)

    assert state(task) == (3, 3, "accepted")


def test_agreed_task_is_decided_when_third_lease_expires(task):
    _, second = judge_task(task, T, F)
    [third] = make_annotators(task.round, 1)
    next_batch(third, NOW)
    judge(second, task, T)

    release_expired(NOW + LEASE + timedelta(seconds=1))

    assert state(task) == (2, 2, "accepted")


def test_third_judgment_counts_after_first_two_agree(task):
    _, second, _ = judge_task(task, T, F, F)

    judge(second, task, T)

    assert state(task) == (3, 3, "accepted")


def test_two_equal_judgments_decide_after_exclusion_of_one_annotator(task):
    *_, third = judge_task(task, T, F, F)
    first = Annotator.objects.get(judgments__label=T)

    exclude_annotator(first, "careless")

    assert state(task) == (2, 2, "rejected")
    exclude_annotator(third, "careless")
    assert state(task) == (1, 2, "")


def assert_task_matches_judgments(task: JudgmentTask) -> None:
    """Check the counters and verdict of a task against its judgments."""
    labels = list(Judgment.objects.counted().filter(task=task).values_list("label", flat=True))
    splits = len(labels) == 2 and labels[0] != labels[1]
    assert task.n_judgments == len(labels)
    assert task.n_wanted == max(3 if splits else 2, task.n_judgments + task.n_leased)
    if task.verdict:
        thirds = [[], *([[third] for third in Label] if len(labels) == 2 else [])]
        verdicts = {majority((labels + more).count(T), (labels + more).count(F), len(labels + more)) for more in thirds}
        assert verdicts == {task.verdict}
    else:
        assert task.n_judgments < task.n_wanted


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_end_with_verdicts_of_three_judgments(seed):
    rng, now = Random(seed), NOW
    round = make_round(4, batch_size=2, **SPEC)
    annotators = make_annotators(round, 5)

    for _ in range(60):
        annotator = rng.choice(annotators)
        now += rng.choice([timedelta(0), LEASE / 2, LEASE + timedelta(seconds=1)])
        assigned = next_batch(annotator, now)
        judged = list(JudgmentTask.objects.filter(judgments__annotator=annotator).distinct())
        for task in rng.sample(candidates := assigned + judged, min(len(candidates), 2)):
            judge(annotator, task, rng.choice(Label.values))
            for any_task in round.tasks.all():
                assert_task_matches_judgments(any_task)
    for annotator in annotators:
        for task in next_batch(annotator, now + 2 * LEASE):
            judge(annotator, task, rng.choice(Label.values))

    for task in round.tasks.all():
        assert task.verdict
        assert_task_matches_judgments(task)
