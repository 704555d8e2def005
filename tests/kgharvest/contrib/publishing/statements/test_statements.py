"""What people say about a study: asked once, kept with the round, written by who works in it."""

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
from tests.kgharvest.contrib.publishing.study import SAID

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(researcher):
    return create_report(make_round(2, name="pilot", by=researcher), by=researcher)


def page(report) -> str:
    return f"/reports/{report.pk}/paper/statements/"


def test_every_key_is_asked_once_and_goes_where_there_is_such_a_place():
    keys = [question.key for question in QUESTIONS]

    assert len(set(keys)) == len(keys)
    numbers = {question.number for question in heds.QUESTIONS}
    assert {number for question in QUESTIONS for number in question.places.heds} <= numbers
    assert set(SAID) == set(keys)
    assert [question.key for question in QUESTIONS if complaint_about(question, SAID[question.key])] == []


def test_what_was_said_is_kept_with_the_round_for_its_next_report(report):
    save_statements(report.round, {"languages": " English\r\n", "pay": "no"})

    assert statements_on(create_report(report.round).round) == {"languages": "English", "pay": "no"}


def test_an_empty_answer_takes_back_what_was_said_and_nothing_else(report):
    save_statements(report.round, {"languages": "English", "pay": "no"})

    assert save_statements(report.round, {"languages": "", "pay": "no"}) == ["languages"]
    assert statements_on(report.round) == {"pay": "no"}


def test_what_changed_is_in_the_audit_trail_without_its_text(report):
    save_statements(report.round, {"title": "Secret title", "pay": "no"})
    save_statements(report.round, {"pay": "no"})

    [entry] = Event.objects.filter(action="paper.stated")
    assert entry.sentence == "changed 2 statements about the round pilot for a paper"
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
def test_bad_answers_are_refused_whole_with_a_sentence(report, key, answer, reason):
    with pytest.raises(BadStatement, match=reason):
        save_statements(report.round, {"languages": "English", key: answer})

    assert not PaperStatement.objects.exists()


def test_who_only_looks_reads_but_says_nothing(client, report):
    viewer = make_member("viewer", report.project)
    client.force_login(viewer)

    shown = client.get(page(report))

    assert shown.status_code == 200
    assert 'button class="button primary">Save' not in shown.text
    assert client.post(page(report), {"languages": "English"}).status_code == 403
    with pytest.raises(NotAllowed):
        save_statements(report.round, {"languages": "English"}, viewer)


def test_the_page_asks_all_and_says_what_is_left(client, report, researcher):
    client.force_login(researcher)

    empty = client.get(page(report)).text
    saved = client.post(page(report), {"languages": "English", "pay": "money"}, follow=True).text

    assert all(f'id="id_{question.key}"' in empty for question in QUESTIONS)
    n_questions = len(missing({}, {}))
    assert f"0 of {n_questions} answered" in empty
    assert f"2 of {n_questions} answered" in saved
    assert "2 answers changed." in saved
    assert 'value="English"' in saved
    assert statements_on(report.round) == {"languages": "English", "pay": "money"}


def test_the_page_shows_a_reason_beside_its_field_and_keeps_what_was_typed(client, report, researcher):
    client.force_login(researcher)

    answer = client.post(page(report), {"languages": "English", "limitations": "Ask jane@example.org"})

    assert answer.status_code == 200
    assert "remove email addresses" in answer.text
    assert "Ask jane@example.org" in answer.text
    assert not PaperStatement.objects.exists()


def test_what_a_form_does_not_send_stays(client, report, researcher):
    save_statements(report.round, {"languages": "English"})
    client.force_login(researcher)

    client.post(page(report), {"pay": "no"})

    assert statements_on(report.round) == {"languages": "English", "pay": "no"}


def test_the_report_page_leads_to_it(client, report, researcher):
    client.force_login(researcher)

    assert page(report) in client.get(report.get_absolute_url()).text


def test_the_api_reads_and_changes_what_was_said(report, researcher):
    client = client_of(researcher)
    address = f"/api/v1/reports/{report.pk}/paper/statements/"

    changed = client.patch(address, json.dumps({"languages": "English"}), "application/json")
    refused = client.patch(address, json.dumps({"licence": "mine"}), "application/json")
    misspelt = client.patch(address, json.dumps({"license": "CC0-1.0"}), "application/json")

    assert changed.status_code == 200
    asked = {row["key"]: row for row in client.get(address).json()["statements"]}
    assert asked["languages"]["answer"] == "English"
    assert asked["licence"]["choices"][0] == "CC0-1.0"
    assert "languages" not in changed.json()["missing"]
    assert (refused.status_code, misspelt.status_code) == (400, 400)
    assert statements_on(report.round) == {"languages": "English"}


def test_authors_are_read_from_their_lines():
    authors = authors_of({"authors": "Lovelace, Ada; Analytical Society\n\nvon Neumann, John"})

    assert [(author.name, author.affiliation) for author in authors] == [
        ("Ada Lovelace", "Analytical Society"),
        ("John von Neumann", ""),
    ]


def test_nothing_is_missing_once_all_is_said_and_optional_ones_never_are():
    assert missing(SAID, {}) == []
    assert not any(question.is_optional for question in missing({}, {}))
    assert BY_KEY["paper_url"].is_optional
