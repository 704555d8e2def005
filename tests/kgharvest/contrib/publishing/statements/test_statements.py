"""Statements about a study: questions, storage, permissions, page, and API."""

import json

import pytest

from evaluation.reports.services import create_report
from kgharvest.access import NotAllowed
from kgharvest.contrib.publishing.datasheets import heds
from kgharvest.contrib.publishing.models import PaperStatement
from kgharvest.contrib.publishing.statements.services import (
    BY_KEY,
    QUESTIONS,
    BadStatement,
    authors_of,
    complaint_about,
    missing,
    save_statements,
    statements_on,
)
from kgharvest.events.models import Event
from tests.api import client_of
from tests.factories import make_member, make_round
from tests.kgharvest.contrib.publishing.study import STATEMENTS

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(researcher):
    return create_report(make_round(2, name="pilot", by=researcher), by=researcher)


def page_of(report) -> str:
    return f"/reports/{report.pk}/paper/statements/"


def test_question_keys_are_unique_and_refer_to_existing_fields():
    keys = [question.key for question in QUESTIONS]

    assert len(set(keys)) == len(keys)
    numbers = {question.number for question in heds.QUESTIONS}
    assert {number for question in QUESTIONS for number in question.places.heds} <= numbers
    assert set(STATEMENTS) == set(keys)
    assert [question.key for question in QUESTIONS if complaint_about(question, STATEMENTS[question.key])] == []


def test_statements_carry_over_to_the_next_report(report):
    save_statements(report.round, {"languages": " English\r\n", "pay": "no"})

    assert statements_on(create_report(report.round).round) == {"languages": "English", "pay": "no"}


def test_empty_answer_deletes_only_its_statement(report):
    save_statements(report.round, {"languages": "English", "pay": "no"})

    assert save_statements(report.round, {"languages": "", "pay": "no"}) == ["languages"]
    assert statements_on(report.round) == {"pay": "no"}


def test_audit_log_records_changed_keys_without_text(report):
    save_statements(report.round, {"title": "Secret title", "pay": "no"})
    save_statements(report.round, {"pay": "no"})

    [entry] = Event.objects.filter(action="paper.stated")
    assert entry.sentence == "changed 2 answers about the round pilot in the paper metadata"
    assert entry.known_facts["keys"] == ["pay", "title"]
    assert "Secret" not in entry.facts


@pytest.mark.parametrize(
    ("key", "answer", "reason"),
    [
        ("licence", "mine", "Choose one of CC0-1.0"),
        ("pay", "cash", "Choose one of money"),
        ("limitations", "Ask jane@example.org.", "remove email addresses"),
        ("contact_email", "jane", "invalid email address"),
        ("paper_url", "javascript:alert(1)", "must begin with https://"),
        ("authors", "Ada Lovelace", "family name, given names"),
        ("biases", "x" * 5001, "maximum is 5,000"),
        ("biases", "a\x00b", "control character"),
        ("unheard", "of", "Unknown question: 'unheard'"),
    ],
)
def test_invalid_answer_rejects_all_answers_with_a_message(report, key, answer, reason):
    with pytest.raises(BadStatement, match=reason):
        save_statements(report.round, {"languages": "English", key: answer})

    assert not PaperStatement.objects.exists()


def test_viewer_can_read_but_not_change_statements(client, report):
    viewer = make_member("viewer", report.project)
    client.force_login(viewer)

    response = client.get(page_of(report))

    assert response.status_code == 200
    assert 'button class="button primary">Save' not in response.text
    assert client.post(page_of(report), {"languages": "English"}).status_code == 403
    with pytest.raises(NotAllowed):
        save_statements(report.round, {"languages": "English"}, viewer)


def test_page_shows_all_questions_and_progress(client, report, researcher):
    client.force_login(researcher)

    empty = client.get(page_of(report)).text
    saved = client.post(page_of(report), {"languages": "English", "pay": "money"}, follow=True).text

    assert all(f'id="id_{question.key}"' in empty for question in QUESTIONS)
    n_questions = len(missing({}, {}))
    assert f"0 of {n_questions} answered" in empty
    assert f"2 of {n_questions} answered" in saved
    assert "2 answers changed." in saved
    assert 'value="English"' in saved
    assert statements_on(report.round) == {"languages": "English", "pay": "money"}


def test_page_shows_field_error_and_keeps_input(client, report, researcher):
    client.force_login(researcher)

    answer = client.post(page_of(report), {"languages": "English", "limitations": "Ask jane@example.org"})

    assert answer.status_code == 200
    assert "remove email addresses" in answer.text
    assert "Ask jane@example.org" in answer.text
    assert not PaperStatement.objects.exists()


def test_missing_form_fields_keep_their_statements(client, report, researcher):
    save_statements(report.round, {"languages": "English"})
    client.force_login(researcher)

    client.post(page_of(report), {"pay": "no"})

    assert statements_on(report.round) == {"languages": "English", "pay": "no"}


def test_report_page_links_to_statements(client, report, researcher):
    client.force_login(researcher)

    assert page_of(report) in client.get(report.get_absolute_url()).text


def test_api_reads_and_changes_statements(report, researcher):
    client = client_of(researcher)
    address = f"/api/v1/reports/{report.pk}/paper/statements/"

    changed = client.patch(address, json.dumps({"languages": "English"}), "application/json")
    refused = client.patch(address, json.dumps({"licence": "mine"}), "application/json")
    misspelt = client.patch(address, json.dumps({"license": "CC0-1.0"}), "application/json")

    assert changed.status_code == 200
    questions = {row["key"]: row for row in client.get(address).json()["statements"]}
    assert questions["languages"]["answer"] == "English"
    assert questions["licence"]["choices"][0] == "CC0-1.0"
    assert "languages" not in changed.json()["missing"]
    assert (refused.status_code, misspelt.status_code) == (400, 400)
    assert statements_on(report.round) == {"languages": "English"}


def test_authors_are_parsed_from_lines():
    authors = authors_of({"authors": "Lovelace, Ada; Analytical Society\n\nvon Neumann, John"})

    assert [(author.name, author.affiliation) for author in authors] == [
        ("Ada Lovelace", "Analytical Society"),
        ("John von Neumann", ""),
    ]


def test_optional_and_answered_questions_are_not_missing():
    assert missing(STATEMENTS, {}) == []
    assert not any(question.is_optional for question in missing({}, {}))
    assert BY_KEY["paper_url"].is_optional
