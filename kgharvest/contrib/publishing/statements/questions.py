"""Questions about a study that only its authors can answer: the declaration behind form, API and documents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LONGEST_ANSWER = 5000  # characters
MAIL = re.compile(r"[^\s<>()\[\]\"',;:]+@[^\s<>()\[\]\"',;:]+\.[^\s<>()\[\]\"',;:.]+")
WEB = re.compile(r"https?://\S+\.\S+")

YES_OR_NO = (("yes", "Yes"), ("no", "No"))
LICENCES = tuple(
    (name, name)
    for name in (
        "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0", "ODC-By-1.0", "ODbL-1.0", "PDDL-1.0",
    )
)  # fmt: skip


class Places(NamedTuple):
    """Places of an answer. heds: numbers of HEDS 3.0. rai: fields of Croissant RAI 1.0. checklist: ARR's D1 to D5.

    citation: a key of CITATION.cff.
    """

    heds: tuple[str, ...] = ()
    rai: tuple[str, ...] = ()
    checklist: tuple[str, ...] = ()
    citation: str = ""

    @property
    def in_words(self) -> str:
        parts = [
            *(f"HEDS {number}" for number in self.heds),
            *(f"rai:{field}" for field in self.rai),
            *self.checklist,
            *([f"CITATION.cff {self.citation}"] if self.citation else []),
        ]
        return ", ".join(parts)


class Question(NamedTuple):
    """key: as in API and database. n_rows: height of the form field in lines. choices: pairs of value and text.

    is_optional: documents are complete without an answer, because the records contain most of it.
    """

    key: str
    group: str
    label: str
    help_text: str
    places: Places
    n_rows: int = 2
    choices: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False


PAPER, PEOPLE, ETHICS, DATA = "Paper and authors", "People who judged", "Ethics and consent", "Data and their use"

QUESTIONS = (
    Question(
        "title", PAPER, "Title of the data", "Title for citations.", Places(citation="title"), 1,
    ),
    Question(
        "authors", PAPER, "Authors",
        "One author per line, as “family name, given names”. An affiliation can follow after a semicolon.",
        Places(citation="authors"), 4,
    ),
    Question(
        "contact_name", PAPER, "Contact author", "Contact for questions about the study.", Places(("1.3.2.1",)), 1,
    ),
    Question(
        "contact_affiliation", PAPER, "Affiliation of the contact author", "", Places(("1.3.2.2",)), 1,
    ),
    Question(
        "contact_email", PAPER, "Mail address of the contact author",
        "The only email address in the documents. It will be public.", Places(("1.3.2.3",)), 1,
    ),
    Question(
        "paper_url", PAPER, "Address of the paper", "URL of the paper or preprint on the study, if it exists.",
        Places(("1.1.1",), citation="url"), 1, is_optional=True,
    ),
    Question(
        "resources_url", PAPER, "Address of the data", "URL at which the files of this pack will be available.",
        Places(("1.2",), citation="repository-artifact"), 1, is_optional=True,
    ),
    Question(
        "preregistration", PAPER, "Preregistration",
        "URL at a registry, or No. A preregistration in kgharvest is always included.", Places(("3.3.1",)), 1,
    ),
    Question(
        "funding", PAPER, "Funding", "Funders of the study, with grant numbers, or None.", Places(checklist=("D2",)),
    ),
    Question(
        "languages", PAPER, "Languages", "Languages of prompts and statements.", Places(("2.4", "2.5")), 1,
    ),
    Question(
        "experts", PEOPLE, "Were those who judged experts in the subject?", "", Places(("3.2.2.1",)),
        choices=YES_OR_NO,
    ),
    Question(
        "recruitment", PEOPLE, "Recruitment",
        "Places of recruitment, conditions of participation, and selection of annotators. Name the panel, if any.",
        Places(("3.2.3",), ("dataCollection",), ("D2",)), 3,
    ),
    Question(
        "pay", PEOPLE, "Were they paid?", "", Places(("3.2.2.2",), checklist=("D2",)),
        choices=(("money", "With money"), ("other", "Otherwise, such as with credits"), ("no", "No")),
    ),
    Question(
        "pay_adequacy", PEOPLE, "How much, and was it adequate?",
        "Payment per hour or judgment, its currency, and the standard of adequacy, for example the local minimum wage "
        "or the rule of a panel. For unpaid work: the reason why no payment is adequate.",
        Places(checklist=("D2",)), 3,
    ),
    Question(
        "known_to_authors", PEOPLE, "Did the researchers know any of them before?", "", Places(("3.2.2.3",)),
        choices=YES_OR_NO,
    ),
    Question(
        "researchers_judged", PEOPLE, "Did any of the researchers judge?",
        "The records show it for accounts, but not for guests.", Places(("3.2.2.4",)), choices=YES_OR_NO,
        is_optional=True,
    ),
    Question(
        "demographics", PEOPLE, "Demographics",
        "Known countries, languages, ages, genders, and education of the annotators. Name no group of fewer than five "
        "people. If you did not ask, say so.",
        Places(("3.2.5",), ("annotatorDemographics",), ("D5",)), 3,
    ),
    Question(
        "ethics_board", ETHICS, "Ethics board",
        "Board that approved or exempted the study, with the number. If no board was asked: the reason.",
        Places(("5.1",), checklist=("D4",)),
    ),
    Question(
        "consent", ETHICS, "Consent",
        "How annotators agreed to the use of their answers, and the information that they received. The consent text "
        "of the round is added.",
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
        "impact_assessment", ETHICS, "Impact assessment", "Subject and location of the assessment, or None.",
        Places(("5.4",)),
    ),
    Question(
        "intended_use", DATA, "Intended use", "Purposes for which the data should and should not be used.",
        Places(rai=("dataUseCases",)), 3,
    ),
    Question(
        "limitations", DATA, "Limitations",
        "Limits of the conclusions from the data. Limits in the records, such as the sample size, are added.",
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
        "maintenance", DATA, "Maintenance", "Maintainers of the data, period of maintenance, and contact for errors.",
        Places(rai=("dataReleaseMaintenancePlan",)),
    ),
    Question(
        "licence", DATA, "Licence of the data", "SPDX identifier of the license.", Places(citation="license"),
        choices=LICENCES,
    ),
)  # fmt: skip
BY_KEY: Mapping[str, Question] = {question.key: question for question in QUESTIONS}

Answers = Mapping[str, str]  # by key; unanswered questions are absent


def groups() -> Mapping[str, list[Question]]:
    """Return the questions by their group, in the order of the form."""
    by_group: dict[str, list[Question]] = {}
    for question in QUESTIONS:
        by_group.setdefault(question.group, []).append(question)
    return by_group


def missing(answers: Answers) -> Sequence[Question]:
    """Return the required questions without an answer."""
    return [question for question in QUESTIONS if not question.is_optional and not answers.get(question.key)]


def complaint_about(question: Question, answer: str) -> str:
    """Return an error message for an invalid answer, or an empty string. An empty answer is valid."""
    if not answer:
        return ""
    values = [value for value, _ in question.choices]
    if values and answer not in values:
        return f"{question.label}: choose one of {', '.join(values)}."
    if len(answer) > LONGEST_ANSWER:
        return f"{question.label}: at most {LONGEST_ANSWER:,} characters, not {len(answer):,}; shorten it."
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in answer):
        return f"{question.label}: it has a control character; delete it."
    if question.key == "contact_email":
        return "" if MAIL.fullmatch(answer) else f"{question.label}: this is no mail address; write name@example.org."
    if MAIL.search(answer):
        return f"{question.label}: leave mail addresses out; that of the contact author has a field of its own."
    if question.key.endswith("_url") and not WEB.fullmatch(answer):
        return f"{question.label}: write an address that begins with https://."
    if question.key == "authors" and any("," not in name for name in _names(answer)):
        return f"{question.label}: write “family name, given names” on each line."
    return ""


def _names(authors: str) -> list[str]:
    return [line.partition(";")[0] for line in authors.splitlines() if line.strip()]


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
