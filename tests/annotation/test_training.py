"""The training before the first batch."""

import pytest
from django.utils import timezone

from annotation.services.assignment import TrainingFirst, next_batch
from annotation.services.training import answer_training, current_training, last_training, next_statement
from tests.annotation.test_gold import gold_round
from tests.factories import make_annotators

pytestmark = pytest.mark.django_db


def train(annotator, label: str | None = None) -> None:
    """Answer everything rightly, or always with `label`."""
    now = timezone.now()
    while statement := next_statement(current_training(annotator, now)):
        answer_training(annotator, statement.position, label or statement.label, now)
        if last_training(annotator):
            return


@pytest.fixture
def annotator():
    [annotator] = make_annotators(gold_round(4, 6, training_size=5), 1)
    return annotator


def test_judging_waits_for_the_training(annotator):
    with pytest.raises(TrainingFirst):
        next_batch(annotator, timezone.now())

    train(annotator)

    assert len(next_batch(annotator, timezone.now())) == 4


def test_a_training_records_how_many_were_right(annotator):
    train(annotator, "true")

    training = last_training(annotator)
    assert (training.n_right, training.n_answered) == (3, 5)
    assert training.finished_at is not None


def test_an_answer_sent_twice_counts_once(annotator):
    now = timezone.now()
    first = next_statement(current_training(annotator, now))

    answers = [answer_training(annotator, 0, first.label, now) for _ in range(2)]

    assert answers == [first, None]
    assert current_training(annotator, now).n_answered == 1


def test_training_again_leaves_the_first_time_on_record(annotator):
    train(annotator)
    now = timezone.now()

    again = current_training(annotator, now)

    assert (again.n_answered, annotator.trainings.count()) == (0, 2)
    assert len(next_batch(annotator, now)) == 4


def test_a_false_statement_is_explained_by_what_holds(annotator):
    false = annotator.round.training_statements.filter(label="false")

    assert all(statement.reason.startswith("What holds is: head ") for statement in false)
