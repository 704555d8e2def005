"""Questionnaire and comprehension check. Annotators complete both after joining a round and before the training.

To check whether all questions are answered, judging reads only `Annotator.has_questions_left`. Lock order: place,
annotator.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from django.db import transaction

from annotation.invites.recruitment import recruitment
from annotation.models import Annotator, CheckTry, Round, WhoAnswers
from annotation.questionnaire.models import MOST_TRIES
from annotation.questionnaire.questions import Question, answer_error, check_questions, who_questions
from kgharvest.errors import DomainError
from kgharvest.events.recording import record


class Stage(StrEnum):
    """Next step of an annotator. FAILED: the annotator failed the comprehension check and cannot judge."""

    WHO = "who"
    CHECK = "check"
    DONE = "done"
    FAILED = "failed"


class BadAnswers(DomainError):
    """Invalid answers. reasons: error messages by question key."""

    def __init__(self, reasons: Mapping[str, str]):
        self.reasons = reasons
        super().__init__(" ".join(f"{key}: {reason}" for key, reason in reasons.items()))


def stage_of(annotator: Annotator, round: Round) -> Stage:
    """Return the annotator's next step. round: the annotator's round, with all options loaded."""
    if not annotator.has_questions_left:
        return Stage.DONE
    if who_questions(round) and not WhoAnswers.objects.filter(annotator=annotator).exists():
        return Stage.WHO
    return Stage.FAILED if n_tries_left(annotator) == 0 else Stage.CHECK


def n_tries_left(annotator: Annotator) -> int:
    return MOST_TRIES - CheckTry.objects.filter(annotator=annotator).count()


@transaction.atomic
def answer_who_questions(annotator: Annotator, sent: Mapping[str, str], now: datetime) -> WhoAnswers:
    """Store the questionnaire answers; later answers are ignored. Empty or missing answers mean "prefer not to say".

    Raises RoundNotOpen, BadAnswers, or DomainError NotAskedNow.
    """
    annotator, round = _lock(annotator)
    if stored := WhoAnswers.objects.filter(annotator=annotator).first():
        return stored
    if stage_of(annotator, round) != Stage.WHO:
        raise DomainError("NotAskedNow", f"The round {round.name} has no questionnaire. Continue with judging.")
    answers = _valid_answers(who_questions(round), sent)
    stored = WhoAnswers.objects.create(annotator=annotator, answers=answers, answered_at=now)
    if not check_questions(round):
        Annotator.objects.filter(pk=annotator.pk).update(has_questions_left=False)
    return stored


@transaction.atomic
def take_check(annotator: Annotator, sent: Mapping[str, str], now: datetime) -> CheckTry:
    """Record an attempt at the comprehension check, which is passed if all answers are correct.

    After the last failed attempt, the annotator cannot judge: their place in a panel is screened out, and the
    screen-out reward is due. Invalid answers do not count as an attempt.
    Raises RoundNotOpen, BadAnswers, or DomainError NotAskedNow.
    """
    recruitment().lock(annotator)
    annotator, round = _lock(annotator)
    if stage_of(annotator, round) != Stage.CHECK:
        message = f"The round {round.name} has no comprehension check for you now. Continue with judging."
        raise DomainError("NotAskedNow", message)
    questions = check_questions(round)
    answers = _valid_answers(questions, sent)
    attempt = CheckTry.objects.create(
        annotator=annotator,
        number=MOST_TRIES - n_tries_left(annotator) + 1,
        answers=answers,
        n_right=sum(answers.get(question.key) == question.right for question in questions),
        n_questions=len(questions),
        at=now,
    )
    if attempt.is_passed:
        Annotator.objects.filter(pk=annotator.pk).update(has_questions_left=False)
    elif attempt.number == MOST_TRIES:
        record("annotator.check_failed", annotator, None, round=round, annotator=annotator)
        recruitment().screen_out(annotator, now)
    return attempt


def _lock(annotator: Annotator) -> tuple[Annotator, Round]:
    annotator = Annotator.objects.lock(annotator.pk)
    annotator.round.check_open()
    return annotator, Round.objects.get(pk=annotator.round_id)


def _valid_answers(questions: Sequence[Question], sent: Mapping[str, str]) -> dict[str, str]:
    """Return the nonempty answers by question key. Raises BadAnswers."""
    answers = {question.key: " ".join(sent.get(question.key, "").split()) for question in questions}
    errors = ((question.key, answer_error(question, answers[question.key])) for question in questions)
    reasons = {key: error for key, error in errors if error}
    if unknown_keys := sorted(set(sent) - set(answers)):
        reasons = {unknown_keys[0]: "Unknown question."} | reasons
    if reasons:
        raise BadAnswers(reasons)
    return {key: answer for key, answer in answers.items() if answer}
