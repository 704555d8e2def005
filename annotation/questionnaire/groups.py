"""Answers about people in groups of five or more: the only form in which they are shown or leave the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, F, Q

from annotation.models import CheckTry, Round, WhoAnswers
from annotation.questionnaire.models import MOST_TRIES
from annotation.questionnaire.questions import who_questions

LEAST_PEOPLE = 5  # in a group that anything is said of
REST = "other or not said"


class Groups(NamedTuple):
    """What people answered to a question. groups: (answer, number of people), the largest first, REST last."""

    key: str
    question: str
    n: int
    groups: Sequence[tuple[str, int]]


def groups_of(answers: Iterable[str], *, all_answered: bool = False) -> list[tuple[str, int]]:
    """Return the answers that LEAST_PEOPLE or more gave, each with their number, and all others together as REST.

    answers: one of each person, "" of who did not say; all_answered: whether everybody had to. So that no small group
    follows from the total, the smallest groups, those of one size together, join REST until it has LEAST_PEOPLE or
    nobody; where all answered, one at least joins any small group: two small ones of eight people could only have four
    each. Nothing is said of fewer people than that. Whether capitals and spaces differ does not matter.
    """
    counts: Counter[str] = Counter()
    wording: dict[str, str] = {}
    for answer in answers:
        key = " ".join(answer.split()).casefold()
        wording[key] = min(answer, wording.get(key, answer))
        counts[key] += 1
    n, not_said = counts.total(), counts.pop("", 0)
    if n < LEAST_PEOPLE:
        return []
    shown = sorted((item for item in counts.items() if item[1] >= LEAST_PEOPLE), key=lambda item: (-item[1], item[0]))
    n_small = sum(n for n in counts.values() if n < LEAST_PEOPLE)
    rest = not_said + n_small
    needs_another = all_answered and n_small > 0
    while shown and (needs_another or 0 < rest < LEAST_PEOPLE):
        smallest = shown[-1][1]
        rest += sum(n for _, n in shown if n == smallest)
        shown = [item for item in shown if item[1] > smallest]
        needs_another = False
    named = [(wording[key], n) for key, n in shown]
    return named + ([(REST, rest)] if rest else [])


def questionnaire_groups(round: Round, until: datetime | None = None) -> list[Groups]:
    """Return the groups of each question that the round asks, [] while too few people have answered.

    until: of people who had answered then; None of all.

    Of the people who answered, in the order in which they did, the last that do not make another LEAST_PEOPLE are left
    out: so that what one answered does not follow from looking before and after them.
    """
    questions = who_questions(round)
    if not questions:
        return []
    given = WhoAnswers.objects.filter(annotator__round=round).order_by("pk")
    if until is not None:
        given = given.filter(answered_at__lte=until)
    answers = list(given.values_list("answers", flat=True))
    answers = answers[: len(answers) - len(answers) % LEAST_PEOPLE]
    if not answers:
        return []
    return [
        Groups(
            question.key,
            question.text,
            len(answers),
            groups_of((own.get(question.key, "") for own in answers), all_answered=question.is_required),
        )
        for question in questions
    ]


class CheckCounts(NamedTuple):
    """How many people passed the comprehension check in the first or second try, and how many failed it."""

    passed_first: int
    passed_second: int
    failed: int


def check_counts(round: Round) -> CheckCounts:
    is_passed = Q(n_right=F("n_questions"))
    counts = CheckTry.objects.filter(annotator__round=round).aggregate(
        first=Count("pk", filter=Q(number=1) & is_passed),
        second=Count("pk", filter=Q(number=MOST_TRIES) & is_passed),
        failed=Count("pk", filter=Q(number=MOST_TRIES) & ~is_passed),
    )
    return CheckCounts(counts["first"], counts["second"], counts["failed"])


def in_words(groups: Sequence[Groups]) -> str:
    """Return what people are, a sentence for each question: for documents about a study."""
    if not groups:
        return ""
    sentences = [
        f"{of_question.question} " + "; ".join(f"{answer}: {n}" for answer, n in of_question.groups) + "."
        for of_question in groups
    ]
    return f"Of {groups[0].n} people who were asked, in groups of {LEAST_PEOPLE} or more. " + " ".join(sentences)
