"""Questionnaire groups: answers are shown in groups of at least five that do not reveal smaller groups."""

from collections import defaultdict
from itertools import product

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from annotation.models import WhoAnswers
from annotation.questionnaire.groups import LEAST_PEOPLE, REST, check_counts, groups_of, in_words, questionnaire_groups
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.datasheets.facts import gather_facts
from kgharvest.contrib.publishing.statements.services import proposed_on, save_statements, unsaid_on
from tests.factories import judge_all, make_annotators, make_round

people = st.lists(st.sampled_from(["", "English", "Welsh", "Irish", "Basque", "Maltese"]), max_size=60)


def answers_of(**counts: int) -> list[str]:
    return [answer.replace("unsaid", "") for answer, n in counts.items() for _ in range(n)]


def test_small_groups_are_merged():
    assert groups_of(answers_of(English=9, Welsh=4, Irish=1)) == [("English", 9), (REST, 5)]


def test_missing_answers_are_counted_in_the_rest():
    assert groups_of(answers_of(English=9, unsaid=6)) == [("English", 9), (REST, 6)]


def test_small_rest_absorbs_the_smallest_group():
    """Merge Welsh (6) into the rest: otherwise 16 - 9 - 6 = 1 would reveal the Irish answer."""
    assert groups_of(answers_of(English=9, Welsh=6, Irish=1)) == [("English", 9), (REST, 7)]


def test_small_groups_of_required_answers_absorb_a_larger_group():
    """Merge all of 4 + 4 + 5: a rest of 8 with at most 4 per answer would reveal two groups of 4."""
    assert groups_of(answers_of(a=4, b=4, c=5), all_answered=True) == [(REST, 13)]
    assert groups_of(answers_of(a=9, b=9, c=5)) == [("a", 9), ("b", 9), ("c", 5)]


def test_single_minority_answer_merges_all_groups():
    assert groups_of(answers_of(English=20, Welsh=1)) == [(REST, 21)]


def test_fewer_than_five_people_have_no_groups():
    assert groups_of(answers_of(English=4)) == []


def test_groups_ignore_case_and_spacing():
    assert groups_of(["North Welsh", "north  welsh"] * 3) == [("North Welsh", 6)]


@given(people, st.booleans())
def test_groups_have_at_least_five_people_and_include_everyone(answers, all_answered):
    groups = groups_of(answers, all_answered=all_answered)

    assert all(n >= LEAST_PEOPLE for _, n in groups)
    assert sum(n for _, n in groups) == (len(answers) if len(answers) >= LEAST_PEOPLE else 0)


@given(people)
def test_groups_are_correct_and_independent_of_order(answers):
    groups = groups_of(answers)

    assert all(n == answers.count(answer) for answer, n in groups if answer != REST)
    assert groups == groups_of(sorted(answers, reverse=True))


@pytest.mark.parametrize(("n_answers", "is_optional"), [(3, True), (3, False), (4, False)])
def test_displayed_groups_do_not_reveal_small_groups(n_answers, is_optional):
    """Enumerate all counts of up to 18 people: no displayed result determines the size of a group of one to four.

    The rule, the total, and the possible answers are assumed to be public.
    """
    counts_by_display = defaultdict(list)
    for counts in product(range(19), repeat=n_answers + is_optional):
        if LEAST_PEOPLE <= sum(counts) <= 18:
            names = [*"abcd"[:n_answers], *([""] if is_optional else [])]
            answers = [name for name, n in zip(names, counts, strict=True) for _ in range(n)]
            counts_by_display[tuple(groups_of(answers, all_answered=not is_optional)), sum(counts)].append(counts)

    revealed = [
        (display, sizes)
        for display, possible in counts_by_display.items()
        for sizes in [{counts[position] for counts in possible} for position in range(n_answers)]
        if len(sizes) == 1 and 0 < min(sizes) < LEAST_PEOPLE
    ]

    assert revealed == []


# Rounds


def answer(round, *languages: str) -> None:
    for annotator, language in zip(make_annotators(round, len(languages)), languages, strict=True):
        answers = {"language": language} if language else {}
        WhoAnswers.objects.create(annotator=annotator, answers=answers, answered_at=timezone.now())


@pytest.mark.django_db
def test_groups_are_updated_after_five_more_answers():
    round = make_round(2, ask_language="optional")
    answer(round, *["Welsh"] * 4)
    assert questionnaire_groups(round) == []

    answer(round, "Welsh", *["Irish"] * 4)
    assert questionnaire_groups(round)[0].groups == [("Welsh", 5)]

    answer(round, "Irish")
    assert questionnaire_groups(round)[0].groups == [("Irish", 5), ("Welsh", 5)]


@pytest.mark.django_db
def test_pages_and_exports_show_groups_but_no_individual_answers(researcher_client):
    round = make_round(2, ask_language="optional", own_questions="Which dialect?", check_questions="Dog?\n+ a\n- b")
    answer(round, *["Welsh"] * 9, "Maltese")
    WhoAnswers.objects.update(answers={"language": "Welsh", "own-1": "Cofi"})
    WhoAnswers.objects.filter(pk=WhoAnswers.objects.last().pk).update(answers={"language": "Maltese", "own-1": "Gozo"})

    page = researcher_client.get(round.get_absolute_url()).text
    api = researcher_client.get(f"/api/v1/rounds/{round.pk}/questionnaire/").json()

    assert "What is your first language?" in page
    assert '<td dir="auto">other or not said</td><td class="num">10</td>' in page
    assert "Comprehension check: 0 passed on the first attempt" in page
    assert [question["groups"] for question in api["questions"]] == [[{"answer": REST, "n": 10}]] * 2
    exports = [
        researcher_client.get(f"{round.get_absolute_url()}{file}") for file in ("judgments.jsonl", "events.jsonl")
    ]
    for text in (page, str(api), *(b"".join(export.streaming_content).decode() for export in exports)):
        assert "Maltese" not in text
        assert "Gozo" not in text
    assert check_counts(round) == {"passed_first": 0, "passed_second": 0, "failed": 0}


@pytest.mark.django_db
def test_study_documents_contain_groups_unless_overridden():
    round = make_round(2, judgments_per_task=1)
    judge_all(round, ["true", "false"])
    type(round).objects.filter(pk=round.pk).update(ask_language="optional")
    round.refresh_from_db()
    answer(round, *["Welsh"] * 7, *["Irish"] * 6, "Maltese", "")
    report = create_report(round)
    answer(round, *["Basque"] * 5)  # answers given after the report

    words = proposed_on(report)["demographics"]
    assert words == in_words(questionnaire_groups(round, report.created_at))
    assert "Answers of 15 people" in words
    assert "Welsh: 7; other or not said: 8." in words
    assert gather_facts(report)["answers"]["demographics"] == words
    assert "demographics" not in {question.key for question in unsaid_on(report)}

    save_statements(round, {"demographics": "We did not ask."})
    assert gather_facts(report)["answers"]["demographics"] == "We did not ask."
