"""Limits that pause annotators, and manual pausing."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.judging.assignment import AnnotatorNotActive, next_batch
from annotation.models import Annotator, JudgmentTask, Limits, Round
from annotation.quality import limits
from annotation.quality.limits import pause_annotator, resume_annotator, set_limits
from annotation.quality.profiles import JudgmentRow, exceeded_limits, profile_of
from kgharvest.audit.verification import Verification
from kgharvest.events.models import Event
from kgharvest.events.recording import actor_code
from tests.factories import judge, make_annotators, make_gold, make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db


@pytest.fixture
def annotator() -> Annotator:
    [annotator] = make_annotators(make_round(60, batch_size=10), 1)
    return annotator


def judge_more(annotator: Annotator, n: int, label=None, **fields) -> None:
    """Submit `n` answers, alternating True and False unless a label is given."""
    batch: list[JudgmentTask] = []
    for number in range(n):
        batch = batch or next_batch(annotator, timezone.now())
        judge(annotator, batch.pop(0), label or ("true", "false")[number % 2], **fields)


def status_of(annotator: Annotator) -> str:
    return Annotator.objects.get(pk=annotator.pk).status


def test_run_over_the_limit_pauses_and_is_logged(annotator):
    set_limits(annotator.round, longest_run=9)

    judge_more(annotator, 10, "true")

    with pytest.raises(AnnotatorNotActive):
        next_batch(annotator, timezone.now())
    event = annotator.round.events.first()
    assert event.history_sentence == "was paused by a limit: 10 equal labels in a row"
    assert event.annotator == annotator.code


def test_low_median_time_pauses_after_minimum_number_of_judgments(annotator):
    set_limits(annotator.round, median_seconds=2)

    judge_more(annotator, 19, seconds=0.4)
    assert status_of(annotator) == "active"
    judge_more(annotator, 1, seconds=0.4)

    assert status_of(annotator) == "paused"


def judge_gold(annotator: Annotator, n_right: int, n: int) -> None:
    """Answer `n` gold statements labeled True, the last `n_right` of them correctly."""
    Round.objects.update(gold_reuse=True)  # gold without slots
    annotator.round.refresh_from_db()
    make_gold(annotator.round, annotator.round.tasks.all(), "true")
    for number, task in enumerate(annotator.round.tasks.all()[:n]):
        annotator.assignments.create(task=task, expires_at=timezone.now())
        judge(annotator, task, "true" if number >= n - n_right else "false")


def test_low_gold_accuracy_pauses_the_annotator(annotator):
    set_limits(annotator.round, gold_accuracy=0.6, n_gold=5)

    judge_gold(annotator, n_right=1, n=10)

    assert status_of(annotator) == "paused"
    assert annotator.round.events.first().details["why"] == "1 of 10 gold statements correct"


def test_chance_deviations_below_the_gold_limit_do_not_pause(annotator):
    set_limits(annotator.round, gold_accuracy=0.6, n_gold=5)

    judge_gold(annotator, n_right=5, n=10)

    assert status_of(annotator) == "active"


def test_gold_limit_uses_all_answers(annotator, monkeypatch):
    """Check all answers: a sliding window would restart the sequential test and drop earlier errors."""
    monkeypatch.setattr(limits, "LAST_JUDGMENTS", 5)
    set_limits(annotator.round, gold_accuracy=0.9, n_gold=5)

    judge_gold(annotator, n_right=5, n=10)

    assert annotator.round.events.first().details["why"] == "5 of 10 gold statements correct"


def test_annotator_without_limits_is_not_paused(annotator):
    judge_more(annotator, 20, "true", seconds=0.1)

    assert status_of(annotator) == "active"


def test_judgments_before_a_resume_are_ignored(annotator):
    set_limits(annotator.round, longest_run=9)
    judge_more(annotator, 10, "true")

    resume_annotator(annotator)
    judge_more(annotator, 10)

    assert status_of(annotator) == "active"


def test_limits_are_checked_only_at_every_tenth_judgment(annotator):
    set_limits(annotator.round, longest_run=9)
    judge_more(annotator, 8)

    n_queries = []
    for _ in range(3):  # the 9th, 10th, and 11th judgments
        [task, *_] = next_batch(annotator, timezone.now())
        with CaptureQueriesContext(connection) as queries:
            judge(annotator, task)
        n_queries.append(len(queries))

    assert n_queries[1] - n_queries[0] == 2
    assert n_queries[2] == n_queries[0]


def test_pause_requires_active_and_resume_requires_paused(annotator):
    with refused("CannotPause"):
        resume_annotator(annotator)
    pause_annotator(annotator)

    with refused("CannotPause"):
        pause_annotator(annotator)
    assert [event.kind for event in annotator.round.events.all()] == ["annotator_paused", "joined", "opened"]


def test_manual_pause_and_resume_are_in_audit_log(annotator, researcher):
    pause_annotator(annotator, researcher)
    resume_annotator(annotator)

    entries = Event.objects.filter(action__startswith="annotator.").exclude(action="annotator.joined")
    project = annotator.round.project_id
    assert [(entry.action, entry.project_id, entry.actor) for entry in entries] == [
        ("annotator.paused", project, actor_code(researcher)),
        ("annotator.resumed", project, ""),
    ]
    assert list(Verification()) == []


def test_gold_limit_requires_minimum_number_of_answers():
    wrong = [JudgmentRow("false", None, "true", 0, 0)] * 4

    assert exceeded_limits(profile_of(wrong), Limits(gold_accuracy=0.7, n_gold=5)) == []
    assert exceeded_limits(profile_of(wrong), Limits(gold_accuracy=0.7, n_gold=4)) == ["0 of 4 gold statements correct"]
