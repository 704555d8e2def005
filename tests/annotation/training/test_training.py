"""Training before the first batch."""

import pytest
from django.utils import timezone

from annotation.judging.assignment import TrainingFirst, next_batch
from annotation.training.services import answer_training, current_training, last_training, next_statement
from tests.annotation.gold.test_gold import gold_round
from tests.factories import judging_page, make_annotators

pytestmark = pytest.mark.django_db


def train(annotator, label: str | None = None) -> None:
    """Complete the training with correct answers, or with `label` throughout."""
    now = timezone.now()
    while statement := next_statement(current_training(annotator, now)):
        answer_training(annotator, statement.position, label or statement.label, now)
        if last_training(annotator):
            return


@pytest.fixture
def annotator():
    [annotator] = make_annotators(gold_round(4, 6, training_size=5), 1)
    return annotator


def test_judging_requires_completed_training(annotator):
    with pytest.raises(TrainingFirst):
        next_batch(annotator, timezone.now())

    train(annotator)

    assert len(next_batch(annotator, timezone.now())) == 4


def test_training_records_number_of_correct_answers(annotator):
    train(annotator, "true")

    training = last_training(annotator)
    assert (training.n_right, training.n_answered) == (3, 5)
    assert training.finished_at is not None


def test_resent_training_answer_counts_once(annotator):
    now = timezone.now()
    first = next_statement(current_training(annotator, now))

    answers = [answer_training(annotator, 0, first.label, now) for _ in range(2)]

    assert answers == [first, None]
    assert current_training(annotator, now).n_answered == 1


def test_repeated_training_keeps_the_first_record(annotator):
    train(annotator)
    now = timezone.now()

    again = current_training(annotator, now)

    assert (again.n_answered, annotator.trainings.count()) == (0, 2)
    assert len(next_batch(annotator, now)) == 4


def test_reason_of_false_statement_gives_correct_statement(annotator):
    false = annotator.round.training_statements.filter(label="false")

    assert all(statement.reason.startswith("The correct statement is: head ") for statement in false)


# Pages


@pytest.fixture
def trainee_client(client, annotator):
    client.force_login(annotator.user)
    return client


def test_judging_page_redirects_to_training(trainee_client):
    assert trainee_client.get(judging_page()).url == judging_page("pilot", "training/")


def test_reason_is_shown_after_each_answer(trainee_client, annotator):
    false = annotator.round.training_statements.filter(label="false").first()
    for position in range(false.position):
        trainee_client.post(judging_page("pilot", "training/"), {"position": position, "label": "true"})

    answer = {"position": false.position, "label": "true"}
    page = trainee_client.post(judging_page("pilot", "training/"), answer, follow=True).text

    assert "incorrect answer" in page
    assert false.reason in page


def test_training_end_shows_score_and_allows_repetition(trainee_client, annotator):
    for statement in annotator.round.training_statements.all():
        trainee_client.post(
            judging_page("pilot", "training/"), {"position": statement.position, "label": statement.label}
        )

    assert "5 of 5 correct" in trainee_client.get(judging_page("pilot", "training/")).text
    assert trainee_client.get(judging_page()).status_code == 200
    assert "1 of 5" in trainee_client.post(judging_page("pilot", "training/"), follow=True).text


@pytest.mark.parametrize("query", ["position=0&label=true", "position=99&label=true", "position=0&label=maybe"])
def test_reason_is_not_shown_before_the_answer(trainee_client, query):
    assert trainee_client.get(judging_page("pilot", f"training/?{query}")).status_code == 404


def test_training_page_does_not_reveal_lm_setting_or_gold(trainee_client, annotator):
    stratum = annotator.round.strata.get()

    page = trainee_client.get(judging_page("pilot", "training/")).text

    for secret in (stratum.language_model.name, f">{stratum.setting}<", "gold", "The correct statement is"):
        assert secret not in page


def test_training_end_lists_incorrect_answers_with_reasons(trainee_client, annotator):
    train(annotator, "true")
    missed = [statement for statement in annotator.round.training_statements.all() if statement.label == "false"]

    page = trainee_client.get(judging_page("pilot", "training/")).text

    assert "3 of 5 correct" in page
    assert page.count("Correct answer:") == len(missed) == 2
    assert all(statement.reason in page for statement in missed)
