"""What comes between joining a round and its training: the questionnaire, then the comprehension check.

`Annotator.has_questions_left` is what judging looks at; the rest is asked here only. Locks are taken in the order
place, annotator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from django.db import transaction

from annotation.invites.recruitment import recruitment
from annotation.models import Annotator, CheckTry, Round, WhoAnswers
from annotation.questionnaire.models import MOST_TRIES
from annotation.questionnaire.questions import Question, check_questions, complaint_about, who_questions
from kgharvest.errors import DomainError
from kgharvest.events.recording import record


class Stage(StrEnum):
    """What an annotator has before them. FAILED: the check; nothing more comes."""

    WHO = "who"
    CHECK = "check"
    DONE = "done"
    FAILED = "failed"


class BadAnswers(DomainError):
    """Answers that cannot be taken. reasons: one sentence by the key of each question."""

    def __init__(self, reasons: Mapping[str, str]):
        self.reasons = reasons
        super().__init__(" ".join(f"{key}: {reason}" for key, reason in reasons.items()))


def stage_of(annotator: Annotator, round: Round) -> Stage:
    """`round`: theirs, with all its options."""
    if not annotator.has_questions_left:
        return Stage.DONE
    if who_questions(round) and not WhoAnswers.objects.filter(annotator=annotator).exists():
        return Stage.WHO
    return Stage.FAILED if n_tries_left(annotator) == 0 else Stage.CHECK


def n_tries_left(annotator: Annotator) -> int:
    return MOST_TRIES - CheckTry.objects.filter(annotator=annotator).count()


@transaction.atomic
def answer_who_questions(annotator: Annotator, sent: Mapping[str, str], now: datetime) -> WhoAnswers:
    """Store what somebody says about themselves; the first answers stay. "" and what is missing: prefers not to say.

    Raises RoundNotOpen, NotAskedNow, BadAnswers.
    """
    annotator, round = _locked(annotator)
    if stored := WhoAnswers.objects.filter(annotator=annotator).first():
        return stored
    questions = who_questions(round)
    if stage_of(annotator, round) != Stage.WHO:
        raise DomainError("NotAskedNow", f"The round {round.name} does not ask you who you are; go on with judging.")
    answers = _checked(questions, sent)
    stored = WhoAnswers.objects.create(annotator=annotator, answers=answers, answered_at=now)
    if not check_questions(round):
        _go_on(annotator)
    return stored


@transaction.atomic
def take_check(annotator: Annotator, sent: Mapping[str, str], now: datetime) -> CheckTry:
    """Count a try of the comprehension check, which is passed where every answer is right.

    Whoever fails for the last time cannot judge: their part in a panel ends as screened out, and what that pays is owed
    to them. Raises RoundNotOpen, NotAskedNow, BadAnswers; what cannot be an answer is no try.
    """
    recruitment().lock(annotator)
    annotator, round = _locked(annotator)
    if stage_of(annotator, round) != Stage.CHECK:
        raise DomainError("NotAskedNow", f"The round {round.name} asks you no questions about the instructions now.")
    questions = check_questions(round)
    answers = _checked(questions, sent)
    taken = CheckTry.objects.create(
        annotator=annotator,
        number=MOST_TRIES - n_tries_left(annotator) + 1,
        answers=answers,
        n_right=sum(answers.get(question.key) == question.right for question in questions),
        n_questions=len(questions),
        at=now,
    )
    if taken.is_passed:
        _go_on(annotator)
    elif taken.number == MOST_TRIES:
        record("annotator.check_failed", annotator, None, round=round, annotator=annotator)
        recruitment().screen_out(annotator, now)
    return taken


def _locked(annotator: Annotator) -> tuple[Annotator, Round]:
    annotator = Annotator.objects.lock(annotator.pk)
    annotator.round.check_open()
    return annotator, Round.objects.get(pk=annotator.round_id)


def _checked(questions: Sequence[Question], sent: Mapping[str, str]) -> dict[str, str]:
    """Return the answers that say something. Raises BadAnswers."""
    answers = {question.key: " ".join(sent.get(question.key, "").split()) for question in questions}
    reasons = {
        question.key: reason for question in questions if (reason := complaint_about(question, answers[question.key]))
    }
    if unknown := sorted(set(sent) - set(answers)):
        reasons = {unknown[0]: "There is no such question."} | reasons
    if reasons:
        raise BadAnswers(reasons)
    return {key: answer for key, answer in answers.items() if answer}


def _go_on(annotator: Annotator) -> None:
    Annotator.objects.filter(pk=annotator.pk).update(has_questions_left=False)
