"""Paper metadata: the authors' answers to questions about a study, stored with the round for all of its reports."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from annotation.invites.recruitment import recruitment
from annotation.models import Round
from annotation.questionnaire.groups import in_words, questionnaire_groups
from evaluation.models import Report
from kgharvest.access import Action, check_may
from kgharvest.contrib.publishing.models import PaperStatement
from kgharvest.errors import DomainError
from kgharvest.events.recording import record

# Questions

LONGEST_ANSWER = 5000  # maximum number of characters
MAIL = re.compile(r"[^\s<>()\[\]\"',;:]+@[^\s<>()\[\]\"',;:]+\.[^\s<>()\[\]\"',;:.]+")
WEB = re.compile(r"https?://\S+\.\S+")


class Places(NamedTuple):
    """Where documents use an answer.

    heds: HEDS 3.0 questions. rai: fields of Croissant RAI 1.0. checklist: ARR's D1 to D5. citation: CITATION.cff key.
    """

    heds: Sequence[str] = ()
    rai: Sequence[str] = ()
    checklist: Sequence[str] = ()
    citation: str = ""

    @property
    def in_words(self) -> str:
        heds, rai = (f"HEDS {number}" for number in self.heds), (f"rai:{field}" for field in self.rai)
        citation = [f"CITATION.cff {self.citation}"] if self.citation else []
        return ", ".join([*heds, *rai, *self.checklist, *citation])


class Question(NamedTuple):
    """Question for the authors of a study.

    key: name in the API and the database. n_rows: height of the form field in lines. choices: pairs of value and text.
    is_optional: True if documents are complete without the answer, because the records contain most of its content.
    """

    key: str
    group: str
    label: str
    places: Places
    help_text: str = ""
    n_rows: int = 2
    choices: Sequence[tuple[str, str]] = ()
    is_optional: bool = False


def _read_questions() -> Iterator[Question]:
    text = Path(__file__).with_name("questions.toml").read_text(encoding="utf-8")
    for key, fields in tomllib.loads(text).items():
        yield Question(key, **fields | {"places": Places(**fields["places"])})


QUESTIONS = tuple(_read_questions())
BY_KEY: Mapping[str, Question] = {question.key: question for question in QUESTIONS}

Answers = Mapping[str, str]  # answers by key; unanswered questions are absent


def missing(answers: Answers, document: Mapping[str, Any]) -> Sequence[Question]:
    """Return the unanswered required questions. document: document of a report.

    If it contains a preregistration, that counts as an answer.
    """
    recorded = {"preregistration"} if document.get("preregistration") else set()
    required = [question for question in QUESTIONS if not question.is_optional]
    return [question for question in required if not answers.get(question.key) and question.key not in recorded]


def complaint_about(question: Question, answer: str) -> str:
    """Return an error message for an invalid answer, or an empty string. An empty answer is valid."""
    if not answer:
        return ""
    values = [value for value, _ in question.choices]
    if values and answer not in values:
        return f"{question.label}: invalid choice. Choose one of {', '.join(values)}."
    if len(answer) > LONGEST_ANSWER:
        return f"{question.label}: the answer has {len(answer):,} characters. The maximum is {LONGEST_ANSWER:,}."
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in answer):
        return f"{question.label}: the answer contains a control character. Delete it."
    if question.key == "contact_email":
        return "" if MAIL.fullmatch(answer) else f"{question.label}: invalid email address. Example: name@example.org."
    if MAIL.search(answer):
        return f"{question.label}: remove email addresses. Enter the contact author's address in its own field."
    if question.key.endswith("_url") and not WEB.fullmatch(answer):
        return f"{question.label}: invalid URL. It must begin with https:// or http://."
    names = (line.partition(";")[0] for line in answer.splitlines() if line.strip())
    if question.key == "authors" and any("," not in name for name in names):
        return f"{question.label}: write “family name, given names” on each line."
    return ""


class Author(NamedTuple):
    family: str
    given: str
    affiliation: str

    @property
    def name(self) -> str:
        return f"{self.given} {self.family}".strip()


def authors_of(answers: Answers) -> list[Author]:
    authors = []
    for line in filter(str.strip, answers.get("authors", "").splitlines()):
        name, _, affiliation = line.partition(";")
        family, _, given = name.partition(",")
        authors.append(Author(family.strip(), given.strip(), affiliation.strip()))
    return authors


# Storage


class BadStatement(DomainError):
    """Invalid answers. reasons: error messages by question key."""

    def __init__(self, reasons: Mapping[str, str]):
        self.reasons = reasons
        super().__init__(" ".join(reasons.values()))


def statements_on(round: Round) -> dict[str, str]:
    """Return the answers about a round by question key, in the order of the questions."""
    answers = dict(PaperStatement.objects.filter(round=round).values_list("key", "text"))
    return {question.key: answers[question.key] for question in QUESTIONS if question.key in answers}


def proposed_on(report: Report) -> dict[str, str]:
    """Return proposed answers by question key. They are derived from the records: demographics in groups, and pay."""
    proposed = {
        "demographics": in_words(questionnaire_groups(report.round, report.created_at)),
        "pay_adequacy": recruitment().pay_in_words(report.round),
    }
    if proposed["pay_adequacy"]:
        proposed["pay"] = "money"
    return {key: answer for key, answer in proposed.items() if answer}


def unsaid_on(report: Report) -> list[Question]:
    """Return the required questions without an answer from the authors, the preregistration, or the records."""
    return missing(proposed_on(report) | statements_on(report.round), report.document)


@transaction.atomic
def save_statements(round: Round, answers: Mapping[str, str], by=None) -> list[str]:
    """Store answers by question key, and return the keys that changed. An empty answer deletes the stored answer.

    Raises NotAllowed or BadStatement, in which case nothing is stored.
    """
    check_may(by, Action.WORK, round.project)
    if unknown := sorted(set(answers) - set(BY_KEY)):
        raise BadStatement({key: f"Unknown question: {key!r}." for key in unknown})
    cleaned = {key: "\n".join(answer.strip().splitlines()) for key, answer in answers.items()}
    if reasons := {key: why for key, answer in cleaned.items() if (why := complaint_about(BY_KEY[key], answer))}:
        raise BadStatement(reasons)
    Round.objects.select_for_update().get(pk=round.pk)
    stored = statements_on(round)
    changed = sorted(key for key, answer in cleaned.items() if answer != stored.get(key, ""))
    for key in changed:
        if text := cleaned[key]:
            PaperStatement.objects.update_or_create(round=round, key=key, defaults={"text": text, "changed_by": by})
        else:
            PaperStatement.objects.filter(round=round, key=key).delete()
    if changed:
        record("paper.stated", round, by, round=round, n_statements=len(changed), keys=changed)
    return changed
