"""The training before the first batch."""

import pytest
from django.utils import timezone

from annotation.judging.assignment import TrainingFirst, next_batch
from annotation.training.services import answer_training, current_training, last_training, next_statement
from tests.annotation.gold.test_gold import gold_round
from tests.factories import judging_page, make_annotators

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

    assert all(statement.reason.startswith("The correct statement is: head ") for statement in false)


# -- pages -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trainee_client(client, annotator):
    client.force_login(annotator.user)
    return client


def test_the_judging_page_leads_to_the_training(trainee_client):
    assert trainee_client.get(judging_page()).url == judging_page("pilot", "training/")


def test_each_answer_is_followed_by_the_reason(trainee_client, annotator):
    false = annotator.round.training_statements.filter(label="false").first()
    for position in range(false.position):
        trainee_client.post(judging_page("pilot", "training/"), {"position": position, "label": "true"})

    answer = {"position": false.position, "label": "true"}
    page = trainee_client.post(judging_page("pilot", "training/"), answer, follow=True).text

    assert "incorrect answer" in page
    assert false.reason in page


def test_the_training_ends_with_how_many_were_right_and_can_be_repeated(trainee_client, annotator):
    for statement in annotator.round.training_statements.all():
        trainee_client.post(
            judging_page("pilot", "training/"), {"position": statement.position, "label": statement.label}
        )

    assert "5 of 5 correct" in trainee_client.get(judging_page("pilot", "training/")).text
    assert trainee_client.get(judging_page()).status_code == 200
    assert "1 of 5" in trainee_client.post(judging_page("pilot", "training/"), follow=True).text


@pytest.mark.parametrize("query", ["position=0&label=true", "position=99&label=true", "position=0&label=maybe"])
def test_the_reason_is_not_told_before_the_answer(trainee_client, query):
    assert trainee_client.get(judging_page("pilot", f"training/?{query}")).status_code == 404


def test_the_training_tells_nothing_of_lm_setting_or_gold(trainee_client, annotator):
    stratum = annotator.round.strata.get()

    page = trainee_client.get(judging_page("pilot", "training/")).text

    for secret in (stratum.language_model.name, f">{stratum.setting}<", "gold", "The correct statement is"):
        assert secret not in page


def test_the_end_shows_what_was_missed_with_the_reason(trainee_client, annotator):
    train(annotator, "true")
    missed = [statement for statement in annotator.round.training_statements.all() if statement.label == "false"]

    page = trainee_client.get(judging_page("pilot", "training/")).text

    assert "3 of 5 correct" in page
    assert page.count("Correct answer:") == len(missed) == 2
    assert all(statement.reason in page for statement in missed)
