"""Webhook events of rounds: sent once each, without names of annotators."""

from __future__ import annotations

import json
from ipaddress import ip_network

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.models import Label, Round
from annotation.quality.exclusion import exclude_annotator
from annotation.quality.limits import pause_annotator, resume_annotator, set_limits
from annotation.rounds.services import note_complete_rounds
from evaluation.reports.services import create_report
from kgharvest.events.types import TOPICS
from kgharvest.models import Delivery
from kgharvest.webhooks.outbox import create_webhook
from tests.factories import judge, judge_all, make_annotators, make_round

pytestmark = pytest.mark.django_db

T = Label.TRUE


@pytest.fixture
def round(settings, researcher) -> Round:
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    round = make_round(2, name="pilot", by=researcher)
    create_webhook(round.project_id, "http://127.0.0.1:9/hook", list(TOPICS))
    return round


def delivered_events() -> list[tuple[str, dict]]:
    bodies = [json.loads(body) for body in Delivery.objects.order_by("pk").values_list("body", flat=True)]
    return [(body["event"], body["facts"]) for body in bodies]


def test_round_complete_is_sent_once_and_again_after_exclusion(round, settings):
    note_complete_rounds(timezone.now())
    first, *_ = judge_all(round, [T, T], [T, T], [T, T])
    assert delivered_events() == []

    for _ in range(2):
        note_complete_rounds(timezone.now())
    complete = (
        "round.complete",
        {"round": "pilot", "n_statements": 2, "url": f"{settings.ORIGIN}{round.get_absolute_url()}"},
    )
    assert delivered_events() == [complete]

    exclude_annotator(first, "guesses")
    note_complete_rounds(timezone.now())
    assert delivered_events() == [complete]
    judge_all(round, [T, T])
    note_complete_rounds(timezone.now())
    assert delivered_events() == [complete, complete]


def test_pause_and_report_events_identify_annotators_by_code(round):
    set_limits(round, longest_run=2)
    [annotator] = make_annotators(round, 1)
    pause_annotator(annotator)
    resume_annotator(annotator)
    report = create_report(round)

    assert [
        (event, facts.get("annotator"), facts.get("why"), facts.get("report")) for event, facts in delivered_events()
    ] == [
        ("annotator.paused", annotator.code, "by hand", None),
        ("report.made", None, None, report.pk),
    ]
    assert annotator.user.username not in str(delivered_events())


def test_pause_by_limit_sends_event_with_reason(settings, researcher):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    round = make_round(10, by=researcher)
    create_webhook(round.project_id, "http://127.0.0.1:9/hook", ["annotator.paused"])
    set_limits(round, longest_run=5)
    [annotator] = make_annotators(round, 1)

    for task in next_batch(annotator, timezone.now()):
        judge(annotator, task)

    [(event, facts)] = delivered_events()
    assert (event, facts["annotator"], facts["round"]) == ("annotator.paused", annotator.code, round.name)
    assert "equal labels in a row" in facts["why"]
