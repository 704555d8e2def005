"""Paper metadata: the authors' answers to questions about a study, stored with the round for all of its reports."""

import re
from collections.abc import Mapping, Sequence
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

YES_OR_NO = (("yes", "Yes"), ("no", "No"))
LICENCES = (
    "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0", "ODC-By-1.0", "ODbL-1.0", "PDDL-1.0",
)  # fmt: skip


class Places(NamedTuple):
    """Where documents use an answer.

    heds: HEDS 3.0 questions. rai: fields of Croissant RAI 1.0. checklist: ARR's D1 to D5. citation: CITATION.cff key.
    """

    heds: tuple[str, ...] = ()
    rai: tuple[str, ...] = ()
    checklist: tuple[str, ...] = ()
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
    help_text: str
    places: Places
    n_rows: int = 2
    choices: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False


PAPER, PEOPLE, ETHICS, DATA = "Paper and authors", "Annotators", "Ethics and consent", "Data and their use"

QUESTIONS = (
    Question("title", PAPER, "Title of the data", "Title for citations.", Places(citation="title"), 1),
    Question(
        "authors", PAPER, "Authors",
        "One author per line, as “family name, given names”. An affiliation can follow after a semicolon.",
        Places(citation="authors"), 4,
    ),
    Question("contact_name", PAPER, "Contact author", "Contact for questions about the study.", Places(("1.3.2.1",)),
    1), Question("contact_affiliation", PAPER, "Affiliation of the contact author", "", Places(("1.3.2.2",)), 1),
    Question(
        "contact_email", PAPER, "Email address of the contact author",
        "The only email address in the documents. It will be public.", Places(("1.3.2.3",)), 1,
    ),
    Question(
        "paper_url", PAPER, "URL of the paper", "URL of the paper or preprint on the study, if it exists.",
        Places(("1.1.1",), citation="url"), 1, is_optional=True,
    ),
    Question(
        "resources_url", PAPER, "URL of the data", "URL at which the files of this package will be available.",
        Places(("1.2",), citation="repository-artifact"), 1, is_optional=True,
    ),
    Question(
        "preregistration", PAPER, "Preregistration",
        "URL at a registry, or No. A preregistration in kgharvest is always included.", Places(("3.3.1",)), 1,
    ),
    Question(
        "funding", PAPER, "Funding", "Funders of the study, with grant numbers, or None.", Places(checklist=("D2",)),
    ),
    Question("languages", PAPER, "Languages", "Languages of prompts and statements.", Places(("2.4", "2.5")), 1),
    Question(
        "experts", PEOPLE, "Were the annotators experts in the subject?", "", Places(("3.2.2.1",)), choices=YES_OR_NO,
    ),
    Question(
        "recruitment", PEOPLE, "Recruitment",
        "Where annotators were recruited, who could take part, and how they were selected. Name the panel, if any.",
        Places(("3.2.3",), ("dataCollection",), ("D2",)), 3,
    ),
    Question(
        "pay", PEOPLE, "Were the annotators paid?", "", Places(("3.2.2.2",), checklist=("D2",)),
        choices=(("money", "With money"), ("other", "In another form, such as credits"), ("no", "No")),
    ),
    Question(
        "pay_adequacy", PEOPLE, "Amount and adequacy of pay",
        "Payment per hour or judgment, with its currency, and why it is adequate, for example by the local minimum "
        "wage or the rule of a panel. If the work was unpaid, explain why.",
        Places(checklist=("D2",)), 3,
    ),
    Question(
        "known_to_authors", PEOPLE, "Did the researchers know any annotators before the study?", "",
        Places(("3.2.2.3",)), choices=YES_OR_NO,
    ),
    Question(
        "researchers_judged", PEOPLE, "Did any of the researchers judge?",
        "The records answer this question for accounts, but not for guests.", Places(("3.2.2.4",)), choices=YES_OR_NO,
        is_optional=True,
    ),
    Question(
        "demographics", PEOPLE, "Demographics",
        "Known countries, languages, ages, genders, and education of the annotators. Do not mention groups of fewer "
        "than five people. If you did not ask, say so.",
        Places(("3.2.5",), ("annotatorDemographics",), ("D5",)), 3,
    ),
    Question(
        "ethics_board", ETHICS, "Ethics board",
        "Board that approved or exempted the study, with the approval number. If no board was asked, explain why.",
        Places(("5.1",), checklist=("D4",)),
    ),
    Question(
        "consent", ETHICS, "Consent",
        "How annotators agreed to the use of their answers, and which information they received. "
        "The round's consent text is added automatically.",
        Places(checklist=("D3",)),
    ),
    Question(
        "personal_data", ETHICS, "Personal data",
        "Handling of the annotators' personal data, and whether statements are about living people.",
        Places(("5.2",), ("personalSensitiveInformation",)), 3, is_optional=True,
    ),
    Question(
        "special_category", ETHICS, "Are there data of special categories?",
        "Data on origin, opinions, religion, unions, genetics, biometrics, health, sex life, or orientation (GDPR, "
        "article 9), in statements or in answers.",
        Places(("5.3",), ("personalSensitiveInformation",)), choices=YES_OR_NO,
    ),
    Question(
        "impact_assessment", ETHICS, "Impact assessment", "Subject and location of the impact assessment, or None.",
        Places(("5.4",)),
    ),
    Question(
        "intended_use", DATA, "Intended use", "Purposes for which the data should and should not be used.",
        Places(rai=("dataUseCases",)), 3,
    ),
    Question(
        "limitations", DATA, "Limitations",
        "Conclusions that the data do not support. "
        "Limits in the records, such as the sample size, are added automatically.",
        Places(rai=("dataLimitations",)), 3,
    ),
    Question(
        "biases", DATA, "Biases", "Biases of the LMs, the relations, the prompts, and the annotators.",
        Places(rai=("dataBiases",)), 3,
    ),
    Question(
        "social_impact", DATA, "Social impact", "Possible benefits and harms of publishing the data.",
        Places(rai=("dataSocialImpact",)), 3,
    ),
    Question(
        "maintenance", DATA, "Maintenance", "Who maintains the data, for how long, and whom to contact about errors.",
        Places(rai=("dataReleaseMaintenancePlan",)),
    ),
    Question(
        "licence", DATA, "License of the data", "SPDX identifier of the license.", Places(citation="license"),
        choices=tuple(zip(LICENCES, LICENCES, strict=True)),
    ),
)  # fmt: skip
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
