"""Assigned statements: list of holders and release, also during concurrent answers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from annotation.judging.assignment import LEASE, next_batch
from annotation.models import Annotator, Assignment, Judgment, Round
from annotation.monitoring.progress import holders, release_assigned
from annotation.rounds.services import pause_round
from kgharvest.errors import NotFound
from tests.annotation.quality.test_exclusion import assert_counters_match_judgments
from tests.api import JSON, client_of, error_of
from tests.factories import judge, make_annotators, make_gold, make_researcher, make_round
from tests.postgres import at_once, on_postgresql, run_on_postgresql

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"
NOW = timezone.now()


@pytest.fixture
def round(db) -> Round:
    """Return a round of four statements: one annotator got three of them an hour ago, the other one now."""
    round = make_round(4, name="pilot", judgments_per_task=1, batch_size=3)
    absent, present = make_annotators(round, 2)
    next_batch(present, NOW)
    Assignment.objects.filter(annotator=present).update(annotator=absent, expires_at=NOW - timedelta(minutes=30))
    Annotator.objects.filter(pk=present.pk).update(next_position=0)
    Assignment.objects.create(
        task=round.tasks.exclude(assignments__annotator=absent).get(), annotator=present, expires_at=NOW + LEASE
    )
    round.tasks.update(n_leased=1)
    return round


@pytest.fixture
def absent(round) -> Annotator:
    return round.annotators.order_by("pk").first()


def test_holders_are_sorted_by_last_activity(round):
    assert [(holder["n"], holder["last_active_at"], holder["expires_at"]) for holder in holders(round)] == [
        (3, NOW - timedelta(hours=1), NOW - timedelta(minutes=30)),
        (1, NOW, NOW + LEASE),
    ]


def test_released_statements_are_reassigned_and_release_is_recorded(round, absent):
    assert release_assigned(round, [absent.code]) == 3

    assert [holder["n"] for holder in holders(round)] == [1]
    assert len(next_batch(make_annotators(round, 1)[0], NOW)) == 3
    [event] = round.events.filter(kind="given_back")
    assert (event.annotator, event.history_sentence) == (absent.code, "released 3 assigned statements")
    assert event.sentence == f"released 3 assigned statements of {absent.code} in the round pilot"


def test_release_in_paused_round_includes_gold_and_is_idempotent(round):
    gold = round.tasks.filter(assignments__annotator=round.annotators.last())
    make_gold(round, gold, "true")
    pause_round(round)

    assert [release_assigned(round) for _ in range(2)] == [4, 0]
    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}
    assert round.events.filter(kind="given_back").count() == 2


def test_answer_after_release_counts_while_task_is_incomplete(round, absent):
    first, second, _ = [lease.task for lease in absent.assignments.order_by("pk")]
    release_assigned(round, [absent.code])
    other = make_annotators(round, 1)[0]

    assert judge(absent, first).is_counted
    next_batch(other, NOW)
    assert judge(absent, second).is_counted is False
    assert judge(other, second).is_counted
    assert_counters_match_judgments(round)


def test_release_rejects_annotators_of_other_rounds(round):
    stranger = make_annotators(make_round(), 1)[0]

    for code in (stranger.code, "a-\x00"):
        with pytest.raises(NotFound, match="has no annotator"):
            release_assigned(round, [code])


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(60)
def test_counters_stay_correct_during_concurrent_release_and_answers():
    round = make_round(12, judgments_per_task=1, batch_size=3)
    annotators = make_annotators(round, 4)
    batches = [next_batch(annotator, timezone.now()) for annotator in annotators]

    def answer(annotator, batch):
        for task in batch:
            judge(annotator, task)
            next_batch(annotator, timezone.now())

    at_once(
        *[lambda work=work: answer(*work) for work in zip(annotators, batches, strict=True)],
        *[lambda: release_assigned(round)] * 2,
    )
    release_assigned(round)

    assert Judgment.objects.current().count() >= 12
    assert_counters_match_judgments(round)
    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}
    assert not Assignment.objects.filter(status=Assignment.Status.LEASED).exists()


@pytest.mark.django_db(transaction=True)
@on_postgresql
def test_assignment_tests_pass_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout


# Pages and API


def test_round_page_lists_holders_and_releases_one_or_all(researcher_client, round, absent):
    page = researcher_client.get(PILOT).content.decode()
    assert "2 annotators with assigned statements" in page
    assert f'aria-label="Release the statements of {absent.code}"' in page

    one = researcher_client.post(f"{PILOT}release/", {"annotator": absent.code}, follow=True).content.decode()
    assert "3 assigned statements released." in one
    assert "1 annotator with assigned statements" in one
    rest = researcher_client.post(f"{PILOT}release/", follow=True).content.decode()
    assert "1 assigned statement released." in rest
    assert "Assigned statements by annotator" not in rest


def test_release_of_unknown_annotator_shows_error(researcher_client, round):
    page = researcher_client.post(f"{PILOT}release/", {"annotator": "nobody"}, follow=True).content.decode()

    assert "has no annotator &#x27;nobody&#x27;" in page
    assert len(holders(round)) == 2


def test_api_lists_holders_and_releases_statements(round, absent):
    api = client_of(make_researcher("ada"))
    address = f"/api/v1/rounds/{round.pk}/"

    [first, _] = api.get(f"{address}assigned/").json()["holders"]
    assert (first["annotator"], first["n"]) == (absent.code, 3)
    data = {"annotators": [absent.code]}
    assert api.post(f"{address}release/", data, content_type=JSON).json() == {"n": 3}
    assert api.post(f"{address}release/", {}, content_type=JSON).json() == {"n": 1}
    unknown = api.post(f"{address}release/", {"annotators": ["nobody"]}, content_type=JSON)
    assert error_of(unknown)["code"] == "NotFound"
