"""Counts of large rounds, which are kept for a while."""

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


class Aside:
    """Stands for a thread; what it is to do is done when a test says so."""

    waiting: list = []

    def __init__(self, target, args, daemon):
        self.target, self.args = target, args

    def start(self):
        self.waiting.append(lambda: self.target(*self.args))


@pytest.fixture(autouse=True)
def aside(monkeypatch) -> list:
    monkeypatch.setattr(snapshots, "Thread", Aside)
    monkeypatch.setattr(snapshots.connection, "close", lambda: None)
    monkeypatch.setattr(Aside, "waiting", [])
    return Aside.waiting


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(snapshots, "LIVE_JUDGMENTS", 0)
    return make_round()


def counter():
    """Return a count that is one more each time, from 0."""
    numbers = iter(range(100))
    return lambda round: next(numbers)


def test_a_small_round_is_counted_for_each_look():
    round, count = make_round(), counter()

    assert [cached_count(round, "things", count, NOW) for _ in range(2)] == [CachedCount(0, None), CachedCount(1, None)]


def test_a_large_round_is_counted_once_and_told_when(large, aside):
    count = counter()

    first, second = (cached_count(large, "things", count, NOW) for _ in range(2))

    assert first == second
    assert first.content == 0
    assert NOW <= first.counted_at <= timezone.now()
    assert aside == []


def test_an_old_count_shows_until_one_who_looks_has_counted_aside(large, aside):
    count = counter()
    cached_count(large, "things", count, NOW)

    looks = [cached_count(large, "things", count, NOW + LATER).content for _ in range(3)]
    [count_aside] = aside
    count_aside()

    assert looks == [0, 0, 0]
    assert cached_count(large, "things", count, NOW).content == 1


def test_a_count_that_never_ended_is_begun_again(large, aside):
    count = counter()
    cached_count(large, "things", count, NOW)

    cached_count(large, "things", count, NOW + LATER)
    cached_count(large, "things", count, NOW + LATER + ABANDONED_AFTER + timedelta(seconds=1))

    assert len(aside) == 2


def test_what_was_counted_before_a_change_does_not_come_back(large, aside):
    count = counter()
    cached_count(large, "things", count, NOW)
    cached_count(large, "things", count, NOW + LATER)
    [count_aside] = aside

    delete_snapshots(large)
    count_aside()

    assert cached_count(large, "things", count, NOW).content == 2


def test_excluding_and_reinstating_forget_what_was_counted(large):
    [annotator] = judge_all(large, ["true", "true", "true"])
    before = progress(large, NOW)["n_judgments"]

    exclude_annotator(annotator, "guesses")
    between = progress(large, NOW)["n_judgments"]
    reinstate_annotator(annotator)

    assert (before, between, progress(large, NOW)["n_judgments"]) == (3, 0, 3)


def test_annotators_of_a_large_round_are_counted_aside(researcher_client, researcher, monkeypatch, aside):
    monkeypatch.setattr(snapshots, "LIVE_JUDGMENTS", 0)
    round = make_round(name="pilot", by=researcher)
    address = "/projects/default/rounds/pilot/annotators/"
    nobody = researcher_client.get(address).text
    [count_nobody] = aside
    count_nobody()
    judge_all(round, ["true"] * round.n_tasks)
    delete_snapshots(round)

    first = researcher_client.get(address).text
    aside[-1]()
    then = researcher_client.get(address).text

    assert "being computed" not in nobody
    assert "being computed" in first
    assert "being computed" not in then
    assert [row["n"] for row in annotator_statistics(round, NOW).content] == [round.n_tasks]


def test_who_is_paused_shows_so_at_once(large, aside):
    [annotator] = make_annotators(large, 1)
    annotator_statistics(large, NOW)
    aside[-1]()

    pause_annotator(annotator)

    assert [row["status"] for row in annotator_statistics(large, NOW).content] == ["paused"]


def test_the_list_of_statements_says_when_it_was_counted(researcher_client, researcher, monkeypatch):
    monkeypatch.setattr(snapshots, "LIVE_JUDGMENTS", 0)
    make_round(name="pilot", by=researcher)

    assert "Counted <time" in researcher_client.get("/projects/default/rounds/pilot/statements/", {"show": "all"}).text
