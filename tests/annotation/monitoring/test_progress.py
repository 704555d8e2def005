"""Cached counts of large rounds."""

from datetime import timedelta

import pytest
from django.utils import timezone

from annotation.monitoring import progress as snapshots
from annotation.monitoring.progress import ABANDONED_AFTER, CachedCount, cached_count, delete_snapshots, progress
from annotation.quality.annotator_statistics import annotator_statistics
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.quality.limits import pause_annotator
from tests.factories import judge_all, make_annotators, make_round

pytestmark = pytest.mark.django_db

NOW = timezone.now()
LATER = timedelta(days=1)


class DeferredThread:
    """Replacement for Thread that defers its work until a test runs it."""

    waiting: list = []

    def __init__(self, target, args, daemon):
        self.target, self.args = target, args

    def start(self):
        self.waiting.append(lambda: self.target(*self.args))


@pytest.fixture(autouse=True)
def deferred_work(monkeypatch) -> list:
    monkeypatch.setattr(snapshots, "Thread", DeferredThread)
    monkeypatch.setattr(snapshots.connection, "close", lambda: None)
    monkeypatch.setattr(DeferredThread, "waiting", [])
    return DeferredThread.waiting


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(snapshots, "LIVE_JUDGMENTS", 0)
    return make_round()


def counter():
    """Return a count function that returns 0, 1, 2, ... in successive calls."""
    numbers = iter(range(100))
    return lambda round: next(numbers)


def test_small_round_is_counted_on_each_call():
    round, count = make_round(), counter()

    assert [cached_count(round, "things", count, NOW) for _ in range(2)] == [CachedCount(0, None), CachedCount(1, None)]


def test_large_round_is_counted_once_with_timestamp(large, deferred_work):
    count = counter()

    first, second = (cached_count(large, "things", count, NOW) for _ in range(2))

    assert first == second
    assert first.content == 0
    assert NOW <= first.counted_at <= timezone.now()
    assert deferred_work == []


def test_stale_count_is_returned_until_background_count_finishes(large, deferred_work):
    count = counter()
    cached_count(large, "things", count, NOW)

    looks = [cached_count(large, "things", count, NOW + LATER).content for _ in range(3)]
    [run_count] = deferred_work
    run_count()

    assert looks == [0, 0, 0]
    assert cached_count(large, "things", count, NOW).content == 1


def test_abandoned_background_count_is_restarted(large, deferred_work):
    count = counter()
    cached_count(large, "things", count, NOW)

    cached_count(large, "things", count, NOW + LATER)
    cached_count(large, "things", count, NOW + LATER + ABANDONED_AFTER + timedelta(seconds=1))

    assert len(deferred_work) == 2


def test_background_count_started_before_deletion_is_discarded(large, deferred_work):
    count = counter()
    cached_count(large, "things", count, NOW)
    cached_count(large, "things", count, NOW + LATER)
    [run_count] = deferred_work

    delete_snapshots(large)
    run_count()

    assert cached_count(large, "things", count, NOW).content == 2


def test_exclusion_and_reinstatement_invalidate_counts(large):
    [annotator] = judge_all(large, ["true", "true", "true"])
    before = progress(large, NOW)["n_judgments"]

    exclude_annotator(annotator, "guesses")
    between = progress(large, NOW)["n_judgments"]
    reinstate_annotator(annotator)

    assert (before, between, progress(large, NOW)["n_judgments"]) == (3, 0, 3)


def test_annotators_of_large_round_are_counted_in_background(researcher_client, researcher, monkeypatch, deferred_work):
    monkeypatch.setattr(snapshots, "LIVE_JUDGMENTS", 0)
    round = make_round(name="pilot", by=researcher)
    address = "/projects/default/rounds/pilot/annotators/"
    page_without_annotators = researcher_client.get(address).text
    [run_empty_count] = deferred_work
    run_empty_count()
    judge_all(round, ["true"] * round.n_tasks)
    delete_snapshots(round)

    before = researcher_client.get(address).text
    deferred_work[-1]()
    after = researcher_client.get(address).text

    assert "being computed" not in page_without_annotators
    assert "being computed" in before
    assert "being computed" not in after
    assert [row["n"] for row in annotator_statistics(round, NOW).content] == [round.n_tasks]


def test_paused_status_appears_immediately(large, deferred_work):
    [annotator] = make_annotators(large, 1)
    annotator_statistics(large, NOW)
    deferred_work[-1]()

    pause_annotator(annotator)

    assert [row["status"] for row in annotator_statistics(large, NOW).content] == ["paused"]


def test_statement_list_shows_time_of_count(researcher_client, researcher, monkeypatch):
    monkeypatch.setattr(snapshots, "LIVE_JUDGMENTS", 0)
    make_round(name="pilot", by=researcher)

    assert "Counted <time" in researcher_client.get("/projects/default/rounds/pilot/statements/", {"show": "all"}).text
