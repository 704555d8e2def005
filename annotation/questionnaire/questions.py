"""What a round asks people before they judge: who they are, and whether they understood the instructions. No database.

Researchers write questions as lines: a question, then its choices, each after "-"; a blank line parts questions. A
question without choices takes a short text, one that ends with "*" must be answered. In a check every question has
choices, and the right one stands after "+".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db import models

from annotation.questionnaire.countries import COUNTRIES, LANGUAGES

MOST_QUESTIONS = 20
MOST_CHOICES = 20
LONGEST_LINE = 300  # characters of a question or choice
LONGEST_ANSWER = 200


class Asked(models.TextChoices):
    NO = "no", "Not asked"
    OPTIONAL = "optional", "Asked; people may prefer not to say"
    REQUIRED = "required", "Asked, and must be answered"


class OnWithdrawal(models.TextChoices):
    KEEP = "keep", "are kept without a name"
    DELETE = "delete", "count no more, and what they wrote is deleted"


class Question(NamedTuple):
    """key: names it in answers. choices: none for a short text. right: the right choice of a question of a check."""

    key: str
    text: str
    choices: tuple[str, ...] = ()
    is_required: bool = False
    right: str = ""


class BadQuestions(ValueError):
    """Questions that cannot be read; the sentence names the line."""


# The option of a round that asks each of these, what it asks, and what people choose from.
READY_MADE = {
    "ask_language": Question("language", "What is your first language?", LANGUAGES),
    "ask_country": Question("country", "In which country do you live?", COUNTRIES),
    "ask_age_group": Question(
        "age_group", "How old are you?", ("18 to 24", "25 to 34", "35 to 44", "45 to 54", "55 to 64", "65 or older")
    ),
    "ask_expertise": Question(
        "expertise",
        "How well do you know what the statements are about?",
        ("I work in it or study it", "Better than most people", "As most people do", "Less than most people"),
    ),
}


def who_questions(round) -> list[Question]:
    """Return what a round asks people about themselves: ready-made questions first, then its own."""
    ready = [
        question._replace(is_required=getattr(round, option) == Asked.REQUIRED)
        for option, question in READY_MADE.items()
        if getattr(round, option) != Asked.NO
    ]
    return ready + (parse_questions(round.own_questions, "own") if round.own_questions else [])


def check_questions(round) -> list[Question]:
    """Return the questions of a round's comprehension check, with the right choices: never for annotators' eyes."""
    return parse_questions(round.check_questions, "check", is_check=True)


def asks_first(round) -> bool:
    return bool(round.check_questions or round.own_questions) or any(
        getattr(round, option) != Asked.NO for option in READY_MADE
    )


def parse_questions(text: str, prefix: str, *, is_check: bool = False) -> list[Question]:
    """Return the questions that lines of text ask, with keys such as own-1. Raises BadQuestions."""
    questions: list[Question] = []
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    for start, block in _blocks(lines):
        for number, line in block:
            if len(line) > LONGEST_LINE:
                raise BadQuestions(f"Line {number} has {len(line)} characters; write {LONGEST_LINE} at most.")
        (_, first), *rest = block
        if first[0] in "-+":
            raise BadQuestions(f"Line {start}: {first!r:.60} is a choice without a question; write the question above.")
        marks = [line[0] for _, line in rest]
        choices = tuple(line[1:].strip() for _, line in rest)
        _check_choices(rest, marks, choices, is_check=is_check)
        if is_check and (not choices or marks.count("+") != 1):
            raise BadQuestions(
                f"Line {start}: {first!r:.60} needs at least two choices and exactly one right one, after +."
            )
        right = choices[marks.index("+")] if is_check else ""
        key = f"{prefix}-{len(questions) + 1}"
        question = first.removesuffix("*").strip()
        questions.append(Question(key, question, choices, is_check or first.endswith("*"), right))
    if len(questions) > MOST_QUESTIONS:
        raise BadQuestions(f"There are {len(questions)} questions; ask {MOST_QUESTIONS} at most.")
    if len({question.text.casefold() for question in questions}) < len(questions):
        raise BadQuestions("Two questions have the same words; word one of them differently.")
    return questions


def _blocks(lines: Sequence[tuple[int, str]]) -> list[tuple[int, list[tuple[int, str]]]]:
    """Return what stands between blank lines, each with the number of its first line."""
    blocks: list[list[tuple[int, str]]] = [[]]
    for number, line in lines:
        if line:
            blocks[-1].append((number, line))
        elif blocks[-1]:
            blocks.append([])
    return [(block[0][0], block) for block in blocks if block]


def _check_choices(
    lines: Sequence[tuple[int, str]], marks: Sequence[str], choices: Sequence[str], *, is_check: bool
) -> None:
    for (number, line), mark, choice in zip(lines, marks, choices, strict=True):
        if mark not in "-+" or not choice:
            raise BadQuestions(
                f"Line {number}: {line!r:.60} is no choice; begin it with -, or leave a line blank before a question."
            )
        if mark == "+" and not is_check:
            raise BadQuestions(f"Line {number}: + marks right answers, which only a check has; begin it with -.")
    if len(choices) == 1 or len(choices) > MOST_CHOICES:
        raise BadQuestions(f"Line {lines[0][0]}: give 2 to {MOST_CHOICES} choices, or none for a short text.")
    if len({choice.casefold() for choice in choices}) < len(choices):
        raise BadQuestions(f"Line {lines[0][0]}: two choices are the same; delete one.")


def complaint_about(question: Question, answer: str) -> str:
    """Return what is wrong with an answer to a question in one sentence, or nothing. "" is preferring not to say."""
    if not answer:
        return "This one must be answered." if question.is_required else ""
    if question.choices and answer not in question.choices:
        return "This is none of the choices; choose one of them."
    if len(answer) > LONGEST_ANSWER:
        return f"This has {len(answer)} characters; shorten it to {LONGEST_ANSWER}."
    if any(ord(letter) < 32 for letter in answer):
        return "This has a control character; delete it."
    return ""
