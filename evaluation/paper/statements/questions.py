"""What only people can say about a study: one declaration, from which form, API and documents follow. No database."""

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
    """Where an answer goes. heds: numbers of HEDS 3.0. rai: fields of Croissant RAI 1.0. checklist: ARR's D1 to D5.

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
    """key: as in API and database. label: what is asked. n_rows: lines of its field. choices: (value, text) of each.

    is_optional: whether documents are complete without an answer, as the records tell the most of it.
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
        "title", PAPER, "Title of the data", "As it is to be cited.", Places(citation="title"), 1,
    ),
    Question(
        "authors", PAPER, "Authors",
        "One a line, as “family name, given names”; the affiliation may follow after a semicolon.",
        Places(citation="authors"), 4,
    ),
    Question(
        "contact_name", PAPER, "Contact author", "Who answers questions about the study.", Places(("1.3.2.1",)), 1,
    ),
    Question(
        "contact_affiliation", PAPER, "Affiliation of the contact author", "", Places(("1.3.2.2",)), 1,
    ),
    Question(
        "contact_email", PAPER, "Mail address of the contact author",
        "The only mail address that is ever in the documents; it will be public.", Places(("1.3.2.3",)), 1,
    ),
    Question(
        "paper_url", PAPER, "Address of the paper", "Of the paper or preprint on the study, once there is one.",
        Places(("1.1.1",), citation="url"), 1, is_optional=True,
    ),
    Question(
        "resources_url", PAPER, "Address of the data", "Where the files of this pack will be found.",
        Places(("1.2",), citation="repository-artifact"), 1, is_optional=True,
    ),
    Question(
        "preregistration", PAPER, "Preregistration",
        "Its address at a registry, or No. One that was frozen here is named without that.", Places(("3.3.1",)), 1,
    ),
    Question(
        "funding", PAPER, "Funding", "Who paid for the study, with grant numbers; or None.", Places(checklist=("D2",)),
    ),
    Question(
        "languages", PAPER, "Languages", "Of prompts and statements, such as English.", Places(("2.4", "2.5")), 1,
    ),
    Question(
        "experts", PEOPLE, "Were those who judged experts in the subject?", "", Places(("3.2.2.1",)),
        choices=YES_OR_NO,
    ),
    Question(
        "recruitment", PEOPLE, "Recruitment",
        "Where people were looked for, who could take part, and who chose them; name a panel if there was one.",
        Places(("3.2.3",), ("dataCollection",), ("D2",)), 3,
    ),
    Question(
        "pay", PEOPLE, "Were they paid?", "", Places(("3.2.2.2",), checklist=("D2",)),
        choices=(("money", "With money"), ("other", "Otherwise, such as with credits"), ("no", "No")),
    ),
    Question(
        "pay_adequacy", PEOPLE, "How much, and was it adequate?",
        "Per hour or judgment, in which currency, and measured by what: a minimum wage of where people live, a panel's "
        "rule. Without pay: why that is adequate.",
        Places(checklist=("D2",)), 3,
    ),
    Question(
        "known_to_authors", PEOPLE, "Did the researchers know any of them before?", "", Places(("3.2.2.3",)),
        choices=YES_OR_NO,
    ),
    Question(
        "researchers_judged", PEOPLE, "Did any of the researchers judge?",
        "Of accounts the records tell it; of guests they cannot.", Places(("3.2.2.4",)), choices=YES_OR_NO,
        is_optional=True,
    ),
    Question(
        "demographics", PEOPLE, "Demographics",
        "What you know of where people live, their languages, age, gender and education. Name no group of fewer than "
        "five people. Say so if you did not ask.",
        Places(("3.2.5",), ("annotatorDemographics",), ("D5",)), 3,
    ),
    Question(
        "ethics_board", ETHICS, "Ethics board",
        "Which board approved the study or exempted it, with the number; or that none was asked, and why.",
        Places(("5.1",), checklist=("D4",)),
    ),
    Question(
        "consent", ETHICS, "Consent",
        "How people agreed to the use of their answers, and what they were told of it. The text that the round asked "
        "them to agree to is added.",
        Places(checklist=("D3",)),
    ),
    Question(
        "personal_data", ETHICS, "Personal data",
        "How the personal data of those who judged are handled, and whether statements are about living people.",
        Places(("5.2",), ("personalSensitiveInformation",)), 3, is_optional=True,
    ),
    Question(
        "special_category", ETHICS, "Are there data of special categories?",
        "On origin, opinions, religion, unions, genes, biometry, health, sex or orientation (GDPR, article 9), in "
        "statements or in answers.",
        Places(("5.3",), ("personalSensitiveInformation",)), choices=YES_OR_NO,
    ),
    Question(
        "impact_assessment", ETHICS, "Impact assessment", "What was assessed and where it is written; or None.",
        Places(("5.4",)),
    ),
    Question(
        "intended_use", DATA, "Intended use", "What the data are for, and what they should not be used for.",
        Places(rai=("dataUseCases",)), 3,
    ),
    Question(
        "limitations", DATA, "Limitations",
        "What the data do not show. What the records tell, such as the size of the sample, is added.",
        Places(rai=("dataLimitations",)), 3,
    ),
    Question(
        "biases", DATA, "Biases", "Of the LMs, the relations chosen, the prompts and those who judged.",
        Places(rai=("dataBiases",)), 3,
    ),
    Question(
        "social_impact", DATA, "Social impact", "What good and harm publishing the data may do.",
        Places(rai=("dataSocialImpact",)), 3,
    ),
    Question(
        "maintenance", DATA, "Maintenance", "Who keeps the data, for how long, and how errors are reported.",
        Places(rai=("dataReleaseMaintenancePlan",)),
    ),
    Question(
        "licence", DATA, "Licence of the data", "By its name at spdx.org.", Places(citation="license"),
        choices=LICENCES,
    ),
)  # fmt: skip
BY_KEY: Mapping[str, Question] = {question.key: question for question in QUESTIONS}

Answers = Mapping[str, str]  # by key; what is not said is not in it


def groups() -> Mapping[str, list[Question]]:
    """Return the questions by their group, in the order of the form."""
    by_group: dict[str, list[Question]] = {}
    for question in QUESTIONS:
        by_group.setdefault(question.group, []).append(question)
    return by_group


def missing(answers: Answers) -> Sequence[Question]:
    """Return the questions whose answers the documents still need."""
    return [question for question in QUESTIONS if not question.is_optional and not answers.get(question.key)]


def complaint_about(question: Question, answer: str) -> str:
    """Return what is wrong with an answer in one sentence, or nothing. An empty one is right: it is not said yet."""
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
