"""Questions before the first statement: the questionnaire and the comprehension check. No database access.

Researchers write questions as text: one line for the question, then one line per choice starting with "-"; blank lines
separate questions. A question without choices accepts a short text; a question ending with "*" is required. In a check,
every question has choices, and the correct choice starts with "+".
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from django.db import models

MOST_QUESTIONS = 20
MOST_CHOICES = 20
LONGEST_LINE = 300  # characters of a question or choice
LONGEST_ANSWER = 200


class Asked(models.TextChoices):
    NO = "no", "Not asked"
    OPTIONAL = "optional", "Optional"
    REQUIRED = "required", "Required"


class OnWithdrawal(models.TextChoices):
    KEEP = "keep", "are kept without a name"
    DELETE = "delete", "no longer count, and everything the annotator wrote is deleted"


class Question(NamedTuple):
    """Question before judging. choices: empty for a short text. right: correct choice of a check question."""

    key: str
    text: str
    choices: tuple[str, ...] = ()
    is_required: bool = False
    right: str = ""


class BadQuestions(ValueError):
    """Invalid question text; the message names the line."""


def _lines_of(name: str) -> tuple[str, ...]:
    return tuple(Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines())


# Built-in questions by the round option that enables them.
BUILT_IN_QUESTIONS = {
    "ask_language": Question("language", "What is your first language?", _lines_of("languages.txt")),
    "ask_country": Question("country", "In which country do you live?", _lines_of("countries.txt")),
    "ask_age_group": Question(
        "age_group", "How old are you?", ("18 to 24", "25 to 34", "35 to 44", "45 to 54", "55 to 64", "65 or older")
    ),
    "ask_expertise": Question(
        "expertise",
        "How well do you know the subject of the statements?",
        ("I work in it or study it", "Better than most people", "As most people do", "Less than most people"),
    ),
}


def who_questions(round) -> list[Question]:
    """Return the questionnaire of a round: built-in questions first, then custom questions."""
    built_in = [
        question._replace(is_required=getattr(round, option) == Asked.REQUIRED)
        for option, question in BUILT_IN_QUESTIONS.items()
        if getattr(round, option) != Asked.NO
    ]
    return built_in + (parse_questions(round.own_questions, "own") if round.own_questions else [])


def check_questions(round) -> list[Question]:
    """Return a round's comprehension check with the correct choices, which annotators must never see."""
    return parse_questions(round.check_questions, "check", is_check=True)


def parse_questions(text: str, prefix: str, *, is_check: bool = False) -> list[Question]:
    """Parse questions from text. Raises BadQuestions.

    The key of a question is `prefix` followed by a hyphen and a number, such as own-1.
    """
    questions: list[Question] = []
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    for has_text, block in groupby(lines, key=lambda numbered_line: bool(numbered_line[1])):
        if not has_text:
            continue
        (start, first), *rest = numbered_lines = list(block)
        for number, line in numbered_lines:
            if len(line) > LONGEST_LINE:
                raise BadQuestions(f"Line {number} has {len(line)} characters. The maximum is {LONGEST_LINE}.")
        if first[0] in "-+":
            raise BadQuestions(
                f"Line {start}: {first!r:.60} is a choice without a question above it. Add the question."
            )
        marks = [line[0] for _, line in rest]
        choices = tuple(line[1:].strip() for _, line in rest)
        _check_choices(rest, choices, is_check=is_check)
        if is_check and (not choices or marks.count("+") != 1):
            raise BadQuestions(
                f"Line {start}: {first!r:.60} needs at least two choices. Mark exactly one as correct with +."
            )
        right = choices[marks.index("+")] if is_check else ""
        key = f"{prefix}-{len(questions) + 1}"
        question = first.removesuffix("*").strip()
        questions.append(Question(key, question, choices, is_check or first.endswith("*"), right))
    if len(questions) > MOST_QUESTIONS:
        raise BadQuestions(f"Too many questions: {len(questions)}. The maximum is {MOST_QUESTIONS}.")
    if len({question.text.casefold() for question in questions}) < len(questions):
        raise BadQuestions("Two questions have the same text. Change one of them.")
    return questions


def _check_choices(lines: Sequence[tuple[int, str]], choices: Sequence[str], *, is_check: bool) -> None:
    for (number, line), choice in zip(lines, choices, strict=True):
        if line[0] not in "-+" or not choice:
            raise BadQuestions(
                f"Line {number}: {line!r:.60} is not a choice. Start choices with -, and separate questions by blank "
                "lines."
            )
        if line[0] == "+" and not is_check:
            raise BadQuestions(f"Line {number}: + marks correct answers of a comprehension check. Use - instead.")
    if len(choices) == 1 or len(choices) > MOST_CHOICES:
        raise BadQuestions(f"Line {lines[0][0]}: enter 2 to {MOST_CHOICES} choices, or none for a short text.")
    if len({choice.casefold() for choice in choices}) < len(choices):
        raise BadQuestions(f"Line {lines[0][0]}: two choices are equal. Delete one.")


def answer_error(question: Question, answer: str) -> str:
    """Return an error message for an answer, or "" if it is valid. An empty answer means "prefer not to say"."""
    if not answer:
        return "This question requires an answer." if question.is_required else ""
    if question.choices and answer not in question.choices:
        return "Invalid choice. Select one of the choices."
    if len(answer) > LONGEST_ANSWER:
        return f"This answer has {len(answer)} characters. The maximum is {LONGEST_ANSWER}."
    if any(ord(letter) < 32 for letter in answer):
        return "This answer contains a control character. Delete it."
    return ""
