"""Store what people say about a study. It is kept with the round, so that the next report on it has it, too."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from annotation.invites.recruitment import recruitment
from annotation.models import Round
from annotation.questionnaire.groups import in_words, questionnaire_groups
from evaluation.models import Report
from kgharvest.access import Action, check_may
from kgharvest.contrib.publishing.models import PaperStatement
from kgharvest.contrib.publishing.statements.questions import BY_KEY, QUESTIONS, Question, complaint_about, missing
from kgharvest.errors import DomainError
from kgharvest.events.recording import record


class BadStatement(DomainError):
    """A statement about a study that cannot be taken. reasons: one sentence by the key of each."""

    def __init__(self, reasons: Mapping[str, str]):
        self.reasons = reasons
        super().__init__(" ".join(reasons.values()))


def statements_on(round: Round) -> dict[str, str]:
    """Return what was said about a round, by the key of the question, in the order of the questions."""
    said = dict(PaperStatement.objects.filter(round=round).values_list("key", "text"))
    return {question.key: said[question.key] for question in QUESTIONS if question.key in said}


def proposed_on(report: Report) -> dict[str, str]:
    """Return what the records propose to be said, by the key of the question: who people are, in groups alone; pay."""
    proposed = {
        "demographics": in_words(questionnaire_groups(report.round, report.created_at)),
        "pay_adequacy": recruitment().pay_in_words(report.round),
    }
    if proposed["pay_adequacy"]:
        proposed["pay"] = "money"
    return {key: answer for key, answer in proposed.items() if answer}


def unsaid_on(report: Report) -> list[Question]:
    """Return the questions that are still to be answered; what was frozen, and what is proposed, answers some."""
    recorded = {"preregistration"} if report.document.get("preregistration") else set()
    answers = proposed_on(report) | statements_on(report.round)
    return [question for question in missing(answers) if question.key not in recorded]


@transaction.atomic
def save_statements(round: Round, answers: Mapping[str, str], by=None) -> list[str]:
    """Store the answers given, by key; an empty one takes back what was said. Return the keys that changed.

    Raises NotAllowed, BadStatement; then nothing is stored.
    """
    check_may(by, Action.WORK, round.project)
    if unknown := sorted(set(answers) - set(BY_KEY)):
        raise BadStatement({key: f"There is no question {key!r} about a study." for key in unknown})
    cleaned = {key: "\n".join(answer.strip().splitlines()) for key, answer in answers.items()}
    if reasons := {key: why for key, answer in cleaned.items() if (why := complaint_about(BY_KEY[key], answer))}:
        raise BadStatement(reasons)
    Round.objects.select_for_update().get(pk=round.pk)
    said = statements_on(round)
    changed = sorted(key for key, answer in cleaned.items() if answer != said.get(key, ""))
    for key in changed:
        if text := cleaned[key]:
            PaperStatement.objects.update_or_create(round=round, key=key, defaults={"text": text, "changed_by": by})
        else:
            PaperStatement.objects.filter(round=round, key=key).delete()
    if changed:
        record("paper.stated", round, by, round=round, n_statements=len(changed), keys=changed)
    return changed
