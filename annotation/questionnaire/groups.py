"""Questionnaire answers in groups of at least five people. Answers are shown and exported only in this form."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, F, Q

from annotation.models import CheckTry, Round, WhoAnswers
from annotation.questionnaire.models import MOST_TRIES
from annotation.questionnaire.questions import who_questions

LEAST_PEOPLE = 5  # minimum size of a reported group
REST = "other or not said"


class Groups(NamedTuple):
    """Grouped answers to a question. groups: (answer, number of people), largest first, REST last."""

    key: str
    question: str
    n: int
    groups: Sequence[tuple[str, int]]


def groups_of(answers: Iterable[str], *, all_answered: bool = False) -> list[tuple[str, int]]:
    """Return each answer of at least LEAST_PEOPLE people with its count, and all other answers combined as REST.

    answers: one per person, "" for no answer. all_answered: True if the answer was required. Ignores case and spacing.
    Returns [] for fewer than LEAST_PEOPLE people. So that no small group can be derived from the total, the smallest
    groups are moved to REST until REST has LEAST_PEOPLE people or is empty. Groups of equal size are moved together. If
    the answer was required and there are small groups, at least one larger group is moved, too: a REST of two small
    groups with eight people in total would reveal that each group has four.
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
    """Return the groups of each question of the round; [] while too few people have answered.

    until: time of the last answer to include; None for no limit. People are added in batches of LEAST_PEOPLE, in the
    order in which they answered. Without batches, comparing the groups before and after one person answered would
    reveal that person's answers.
    """
    questions = who_questions(round)
    if not questions:
        return []
    rows = WhoAnswers.objects.filter(annotator__round=round).order_by("pk")
    if until is not None:
        rows = rows.filter(answered_at__lte=until)
    people = list(rows.values_list("answers", flat=True))
    n = len(people) - len(people) % LEAST_PEOPLE
    if not n:
        return []
    answers = {question.key: [person.get(question.key, "") for person in people[:n]] for question in questions}
    return [
        Groups(question.key, question.text, n, groups_of(answers[question.key], all_answered=question.is_required))
        for question in questions
    ]


def check_counts(round: Round) -> dict[str, int]:
    """Return how many people passed the comprehension check on the first or second attempt, or failed it."""
    is_passed = Q(n_right=F("n_questions"))
    return CheckTry.objects.filter(annotator__round=round).aggregate(
        passed_first=Count("pk", filter=Q(number=1) & is_passed),
        passed_second=Count("pk", filter=Q(number=MOST_TRIES) & is_passed),
        failed=Count("pk", filter=Q(number=MOST_TRIES) & ~is_passed),
    )


def in_words(groups: Sequence[Groups]) -> str:
    """Return one sentence per question, for study documents; "" without groups."""
    if not groups:
        return ""
    sentences = [
        f"{question.question} {'; '.join(f'{answer}: {n}' for answer, n in question.groups)}." for question in groups
    ]
    return " ".join([f"Answers of {groups[0].n} people, in groups of at least {LEAST_PEOPLE}.", *sentences])
