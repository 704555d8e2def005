"""Events of a round: order, actors, and wording."""

import json

import pytest

from annotation.rounds.services import WrongStatus, close_round, pause_round, reopen_round
from kgharvest.events.recording import record
from tests.factories import make_annotators, make_researcher, make_round

pytestmark = pytest.mark.django_db


def test_status_changes_are_logged_in_order():
    researcher = make_researcher("ada")
    round = make_round(4, by=researcher)

    pause_round(round, by=researcher)
    reopen_round(round, by=researcher)
    close_round(round)

    lines = [json.loads(line) for line in round.events.json_lines()]
    assert [(line["kind"], line["by"]) for line in lines] == [
        ("opened", "ada"),
        ("paused", "ada"),
        ("reopened", "ada"),
        ("closed", None),
    ]
    assert lines[-1]["n_incomplete"] == 4


def test_rejected_status_change_is_not_logged():
    round = make_round()

    with pytest.raises(WrongStatus):
        reopen_round(round)

    assert [event.kind for event in round.events.all()] == ["opened"]


def test_annotator_event_has_code_and_sentence():
    round = make_round()
    [annotator] = make_annotators(round, 1)

    counts = {"n_counted_again": 3, "n_left_out": 1}
    event = record("annotator.counted_again", annotator, None, round=round, annotator=annotator, **counts)

    assert event.history_sentence == "reinstated the annotator, 3 judgments counted again, 1 not counted"
    assert json.loads(list(round.events.json_lines())[-1])["annotator"] == annotator.code


def test_event_with_missing_detail_raises_key_error():
    with pytest.raises(KeyError):
        record("round.closed", round := make_round(), None, round=round)
