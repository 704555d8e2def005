"""Questionnaire before the first statement: participant questions and comprehension check."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import QuestionsFirst, TrainingFirst, next_batch
from annotation.models import CheckTry, Round, WhoAnswers
from annotation.questionnaire.questions import (
    BadQuestions,
    answer_error,
    check_questions,
    parse_questions,
    who_questions,
)
from annotation.questionnaire.services import BadAnswers, Stage, answer_who_questions, stage_of, take_check
from annotation.rounds.services import WrongStatus, clone_round, edit_draft
from annotation.training.services import current_training
from tests.annotation.gold.test_gold import gold_round
from tests.api import client_of, error_of
from tests.factories import judge, make_annotators, make_round, make_user
from tests.refusals import refused

OWN = "Do you have a dog? *\n- yes\n- no\n\nWhat is its name?"
CHECK = "Is a rare case enough?\n- yes\n+ no\n\nWhat if you do not know?\n+ Unjudgeable\n- Guess"
RIGHT = {"check-1": "no", "check-2": "Unjudgeable"}
WRONG = {"check-1": "yes", "check-2": "Unjudgeable"}


def now():
    return timezone.now()


# Question syntax


def test_questions_are_parsed_from_lines():
    dog, name = parse_questions(OWN, "own")

    assert (dog.text, dog.choices, dog.is_required) == ("Do you have a dog?", ("yes", "no"), True)
    assert (name.key, name.text, name.choices, name.is_required) == ("own-2", "What is its name?", (), False)


def test_check_questions_have_correct_choices():
    assert [question.right for question in parse_questions(CHECK, "check", is_check=True)] == ["no", "Unjudgeable"]


@pytest.mark.parametrize(
    ("text", "is_check", "reason"),
    [
        ("- yes\n- no", False, "Line 1: '- yes' is a choice without a question"),
        ("Dog?\n- yes", False, "Line 2: enter 2 to 20 choices"),
        ("Dog?\n- yes\n- Yes", False, "Line 2: two choices are equal"),
        ("Dog?\nyes", False, "Line 2: 'yes' is not a choice. Start choices with -"),
        ("Dog?\n- yes\n-", False, "Line 3: '-' is not a choice"),
        ("Dog?\n+ yes\n- no", False, "Line 2: + marks correct answers of a comprehension check"),
        ("\nDog?\n\nDog?*", False, "Two questions have the same text"),
        ("x" * 301, False, "Line 1 has 301 characters"),
        (
            "\n\n".join(f"Question {number}?" for number in range(21)),
            False,
            "Too many questions: 21.",
        ),
        ("Dog?\n- yes\n- no", True, "Line 1: 'Dog?' needs at least two choices. Mark exactly one as correct"),
        ("Dog?\n+ yes\n+ no", True, "exactly one as correct"),
        ("Dog?", True, "needs at least two choices"),
    ],
)
def test_invalid_question_error_names_the_line(text, is_check, reason):
    with pytest.raises(BadQuestions, match=re.escape(reason)):
        parse_questions(text, "own", is_check=is_check)


def test_answer_must_be_a_choice_or_empty_if_optional():
    required, optional = parse_questions(OWN, "own")

    assert answer_error(required, "yes") == answer_error(optional, "") == answer_error(optional, "Rex") == ""
    assert "Invalid choice" in answer_error(required, "perhaps")
    assert "requires an answer" in answer_error(required, "")
    assert "201 characters" in answer_error(optional, "x" * 201)


# Round options

pytestmark = pytest.mark.django_db


@pytest.fixture
def asking_round():
    return make_round(4, ask_language="optional", ask_age_group="required", own_questions=OWN, check_questions=CHECK)


def test_built_in_questions_come_first(asking_round):
    keys = [(question.key, question.is_required) for question in who_questions(asking_round)]

    assert keys == [("language", False), ("age_group", True), ("own-1", True), ("own-2", False)]


def test_clone_has_the_same_questions(asking_round):
    clone = clone_round(asking_round)

    assert who_questions(clone) == who_questions(asking_round)
    assert check_questions(clone) == check_questions(asking_round)


def test_questions_are_frozen_when_the_round_opens(asking_round):
    with pytest.raises(WrongStatus):
        edit_draft(asking_round, asking_round.spec | {"own_questions": ""})


def test_invalid_questions_in_spec_error_names_key_and_line():
    with refused("BadRoundSpec", match="check_questions: Line 1: 'Dog' needs at least two choices"):
        make_round(1, check_questions="Dog")


# Participant questions


@pytest.fixture
def annotator(asking_round):
    [annotator] = make_annotators(asking_round, 1)
    return annotator


def stage(annotator) -> Stage:
    annotator.refresh_from_db()
    return stage_of(annotator, Round.objects.get(pk=annotator.round_id))


def answer_all(annotator) -> None:
    answer_who_questions(annotator, {"age_group": "25 to 34", "own-1": "yes"}, now())


def test_judging_requires_answered_questions(annotator):
    with pytest.raises(QuestionsFirst):
        next_batch(annotator, now())

    answer_all(annotator)
    assert stage(annotator) == Stage.CHECK
    take_check(annotator, RIGHT, now())

    assert stage(annotator) == Stage.DONE
    assert len(next_batch(annotator, now())) == 4


def test_training_comes_after_the_questions():
    [annotator] = make_annotators(gold_round(4, 6, training_size=5, ask_country="optional"), 1)
    with pytest.raises(QuestionsFirst):
        current_training(annotator, now())

    answer_who_questions(annotator, {}, now())

    with pytest.raises(TrainingFirst):
        next_batch(annotator, now())
    assert current_training(annotator, now()).n_answered == 0


def test_round_without_questions_starts_at_stage_done():
    [annotator] = make_annotators(make_round(2), 1)

    assert stage(annotator) == Stage.DONE
    with refused("NotAskedNow"):
        answer_who_questions(annotator, {}, now())


def test_empty_answers_are_not_stored(annotator):
    answer_who_questions(annotator, {"age_group": "25 to 34", "own-1": "no", "language": "", "own-2": "  "}, now())

    assert WhoAnswers.objects.get().answers == {"age_group": "25 to 34", "own-1": "no"}


def test_later_answers_are_ignored(annotator):
    answer_all(annotator)
    answer_who_questions(annotator, {"age_group": "65 or older", "own-1": "no"}, now())

    assert WhoAnswers.objects.get().answers["age_group"] == "25 to 34"


def test_invalid_answers_are_reported_by_question(annotator):
    with pytest.raises(BadAnswers) as refused:
        answer_who_questions(annotator, {"age_group": "7", "shoe": "44"}, now())

    assert [*refused.value.reasons] == ["shoe", "age_group", "own-1"]
    assert not WhoAnswers.objects.exists()


# Comprehension check


@pytest.fixture
def annotator_at_check(annotator):
    answer_all(annotator)
    return annotator


def test_check_can_be_passed_on_the_second_attempt(annotator_at_check):
    first, second = take_check(annotator_at_check, WRONG, now()), take_check(annotator_at_check, RIGHT, now())

    assert (first.number, first.n_right, first.is_passed) == (1, 1, False)
    assert (second.number, second.n_right, second.is_passed) == (2, 2, True)
    assert stage(annotator_at_check) == Stage.DONE


def test_two_failed_attempts_end_judging(annotator_at_check):
    for _ in range(2):
        take_check(annotator_at_check, WRONG, now())

    assert stage(annotator_at_check) == Stage.FAILED
    with pytest.raises(QuestionsFirst):
        next_batch(annotator_at_check, now())
    with refused("NotAskedNow"):
        take_check(annotator_at_check, RIGHT, now())
    assert CheckTry.objects.count() == 2
    assert annotator_at_check.round.events.filter(kind="check_failed", annotator=annotator_at_check.code).count() == 1


def test_invalid_answers_are_not_an_attempt(annotator_at_check):
    for answers in ({"check-1": "no"}, {**RIGHT, "check-1": "maybe"}, {**RIGHT, "other": "x"}):
        with pytest.raises(BadAnswers):
            take_check(annotator_at_check, answers, now())

    assert not CheckTry.objects.exists()


def test_questionnaire_adds_no_sql_to_answers(annotator_at_check):
    take_check(annotator_at_check, RIGHT, now())
    [other] = make_annotators(make_round(4), 1)

    def statements_of_sql(annotator) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            [task, *_] = next_batch(annotator, now())
            judge(annotator, task)
        return [re.sub(r"'[^']*'|\d+", "?", query["sql"])[:60] for query in captured]

    statements_of_sql(annotator_at_check), statements_of_sql(other)  # warm up
    assert statements_of_sql(annotator_at_check) == statements_of_sql(other)


# Pages


@pytest.fixture
def questions_client(client, annotator):
    client.force_login(annotator.user)
    client.url = f"/judge/{annotator.round_id}/questions/"
    return client


def test_judging_page_redirects_to_questions_until_answered(questions_client, annotator):
    assert questions_client.get(f"/judge/{annotator.round_id}/").url == questions_client.url
    page = questions_client.get(questions_client.url).text
    assert "What is your first language?" in page
    assert "Prefer not to say" in page

    who = {"stage": "who", "age_group": "25 to 34", "own-1": "yes", "language": "Welsh"}
    check = {"stage": "check", **RIGHT}
    assert questions_client.post(questions_client.url, who).url == questions_client.url
    assert "Is a rare case enough?" in questions_client.get(questions_client.url).text
    questions_client.post(questions_client.url, check)

    assert questions_client.get(questions_client.url).url == f"/judge/{annotator.round_id}/"
    assert "head " in questions_client.get(f"/judge/{annotator.round_id}/").text


def test_missing_answers_are_reported_next_to_the_question(questions_client):
    page = questions_client.post(questions_client.url, {"stage": "who", "language": "Welsh"})

    assert page.status_code == 400
    assert page.text.count("This question requires an answer.") == 2
    assert '<option value="Welsh" selected>' in page.text


def test_repeated_answers_are_not_an_attempt_at_the_check(questions_client):
    who = {"stage": "who", "age_group": "25 to 34", "own-1": "yes"}
    for _ in range(2):
        page = questions_client.post(questions_client.url, who, follow=True)

    assert "Is a rare case enough?" in page.text
    assert not CheckTry.objects.exists()


def test_failed_attempt_shows_instructions_and_last_one_ends_judging(questions_client, annotator_at_check):
    post = {"stage": "check", **WRONG}
    again = questions_client.post(questions_client.url, post, follow=True).text
    over = questions_client.post(questions_client.url, post, follow=True).text

    assert "Read the instructions again" in again
    assert "last attempt" in again
    assert "You cannot continue in" in over


def test_responses_do_not_reveal_correct_choices():
    """Compare the responses of two rounds that differ only in the correct answers."""

    def bytes_sent(check: str) -> list[str]:
        round = make_round(
            [("dog", "swim")],
            check_questions=check,
            who_can_join="link",
            name=f"same{len(responses)}",
            instructions="Judge.",
        )
        user = make_user()
        annotator = join_round(round, user)
        program, browser = client_of(user, "judge"), Client()
        browser.force_login(user)
        pages, api = f"/judge/{round.pk}/", f"/api/v1/judging/{round.pk}/"
        texts = []
        for answers in (None, {"check-1": "yes"}, {"check-1": "yes"}):
            if answers:
                take_check(annotator, answers, now())
            texts += [program.get(f"{api}questions/").text, program.get(api).text]
            texts += [browser.get(f"{pages}{page}").text for page in ("questions/", "instructions/")]
        round_specific = rf'csrf\w+" value="\w+|same\d|{user.username}|/{round.pk}/'
        return [re.sub(round_specific, "", text) for text in texts]

    responses: list[list[str]] = []
    for check in ("Dog?\n- yes\n+ no\n- both", "Dog?\n- yes\n- no\n+ both"):
        responses.append(bytes_sent(check))

    assert responses[0] == responses[1]
    assert any("Dog?" in text for text in responses[0])


# API


def test_questions_can_be_answered_with_an_api_token(annotator):
    client = client_of(annotator.user, "judge")
    address = f"/api/v1/judging/{annotator.round_id}/"
    assert error_of(client.get(address))["code"] == "QuestionsFirst"
    assert client.get(f"{address}questions/").json()["stage"] == "who"

    def answer(stage: str, answers: dict):
        data = {"stage": stage, "answers": answers}
        return client.post(f"{address}questions/", data, content_type="application/json")

    assert answer("who", {"age_group": "7"}).status_code == 400
    reply = answer("who", {"age_group": "25 to 34", "own-1": "no"}).json()
    assert (reply["stage"], reply["n_tries_left"]) == ("check", 2)
    assert answer("check", WRONG).json()["n_tries_left"] == 1
    assert answer("check", RIGHT).json() == {"stage": "done", "questions": [], "n_tries_left": 0}

    assert len(client.get(address).json()["tasks"]) == 4
