"""Two people are asked first and a third only when they differ: same verdicts, fewer judgments."""

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


def ask(task: JudgmentTask, *labels: Label) -> list[Annotator]:
    """Let one annotator per label be handed the task and judge it."""
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
def test_two_that_agree_decide(task, label, verdict):
    ask(task, label, label)

    assert state(task) == (2, 2, verdict)
    assert next_batch(*make_annotators(task.round, 1), NOW) == []


@pytest.mark.parametrize("labels", [(T, F), (T, U), (F, U)])
def test_two_that_differ_want_a_third(task, labels):
    ask(task, *labels)

    assert state(task) == (2, 3, "")


@pytest.mark.parametrize("labels", list(product(Label, repeat=3)))
def test_the_verdict_is_that_of_three(task, labels):
    first, second, third = labels
    ask(task, first, second, *([] if first == second else [third]))

    assert state(task)[2] == majority(labels.count(T), labels.count(F), 3)


def test_agreement_undone_opens_the_task_again(task):
    first, _ = ask(task, T, T)

    judge(first, task, F)

    assert state(task) == (2, 3, "")


def test_difference_undone_closes_the_task(task):
    _, second = ask(task, T, F)

    judge(second, task, T)

    assert state(task) == (2, 2, "accepted")


def test_two_that_agree_decide_once_closing_releases_the_lease_of_the_third(task):
    _, second = ask(task, T, F)
    next_batch(*make_annotators(task.round, 1), NOW)
    judge(second, task, T)

    close_round(task.round)

    assert state(task) == (2, 2, "accepted")


def test_a_third_who_holds_a_lease_keeps_it(task):
    _, second = ask(task, T, F)
    [third] = make_annotators(task.round, 1)
    next_batch(third, NOW)
    judge(second, task, T)
    assert state(task) == (2, 3, "")

    judge(third, task, F)

    assert state(task) == (3, 3, "accepted")


def test_a_third_who_walks_away_is_not_missed_once_the_two_agree(task):
    _, second = ask(task, T, F)
    [third] = make_annotators(task.round, 1)
    next_batch(third, NOW)
    judge(second, task, T)

    release_expired(NOW + LEASE + timedelta(seconds=1))

    assert state(task) == (2, 2, "accepted")


def test_the_third_stays_when_the_first_two_come_to_agree(task):
    _, second, _ = ask(task, T, F, F)

    judge(second, task, T)

    assert state(task) == (3, 3, "accepted")


def test_of_three_that_one_is_excluded_from_two_decide_if_they_agree(task):
    *_, third = ask(task, T, F, F)
    first = Annotator.objects.get(judgments__label=T)

    exclude_annotator(first, "careless")

    assert state(task) == (2, 2, "rejected")
    exclude_annotator(third, "careless")
    assert state(task) == (1, 2, "")


def check(task: JudgmentTask) -> None:
    """Compare a task with what its judgments alone say."""
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
def test_any_course_of_things_ends_with_the_verdicts_of_three(seed):
    rng, now = Random(seed), NOW
    round = make_round(4, batch_size=2, **SPEC)
    annotators = make_annotators(round, 5)

    for _ in range(60):
        annotator = rng.choice(annotators)
        now += rng.choice([timedelta(0), LEASE / 2, LEASE + timedelta(seconds=1)])
        handed = next_batch(annotator, now)
        judged = list(JudgmentTask.objects.filter(judgments__annotator=annotator).distinct())
        for task in rng.sample(known := handed + judged, min(len(known), 2)):
            judge(annotator, task, rng.choice(Label.values))
            for any_task in round.tasks.all():
                check(any_task)
    for annotator in annotators:
        for task in next_batch(annotator, now + 2 * LEASE):
            judge(annotator, task, rng.choice(Label.values))

    for task in round.tasks.all():
        assert task.verdict
        check(task)
