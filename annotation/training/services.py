"""Training before the first batch: statements one at a time, with the correct label and reason after each answer."""

from datetime import datetime

from django.db import transaction

from annotation.judging.assignment import check_questions_answered
from annotation.models import Annotator, Label, Training, TrainingStatement
from kgharvest.errors import DomainError


def current_training(annotator: Annotator, now: datetime) -> Training:
    """Return the annotator's unfinished training, or start one. Raises RoundNotOpen or QuestionsFirst."""
    with transaction.atomic():
        annotator = Annotator.objects.lock(annotator.pk)
        annotator.round.check_open()
        check_questions_answered(annotator)
        training = annotator.trainings.filter(finished_at=None).first()
        return training or annotator.trainings.create(started_at=now)


def next_statement(training: Training) -> TrainingStatement | None:
    return training.annotator.round.training_statements.filter(position=training.n_answered).first()


def answer_training(annotator: Annotator, position: int, label: str, now: datetime) -> TrainingStatement | None:
    """Store the answer to the statement at `position` and return the statement. The last answer finishes the training.

    Returns None if the statement is not the next one, so resending an answer has no effect. Raises BadAnswer,
    RoundNotOpen, or QuestionsFirst.
    """
    if label not in Label.values:
        raise DomainError("BadAnswer", f"Unknown label {label!r:.40}. Use one of {', '.join(Label.values)}.")
    with transaction.atomic():
        training = current_training(annotator, now)
        statement = next_statement(training)
        if statement is None or statement.position != position:
            return None
        training.n_answered += 1
        if label == statement.label:
            training.n_right += 1
        else:
            training.missed.append([position, label])
        if next_statement(training) is None:
            training.finished_at = now
            Annotator.objects.filter(pk=annotator.pk, trained_at=None).update(trained_at=now)
        training.save()
        return statement


def answered_statement(annotator: Annotator, position: int) -> TrainingStatement | None:
    """Return the statement at `position` if the annotator has answered it and may see its label, otherwise None."""
    unfinished = annotator.trainings.filter(finished_at=None).first()
    has_answered = position < unfinished.n_answered if unfinished else last_training(annotator) is not None
    return annotator.round.training_statements.filter(position=position).first() if has_answered else None


def last_training(annotator: Annotator) -> Training | None:
    return annotator.trainings.filter(finished_at__isnull=False).order_by("-pk").first()
