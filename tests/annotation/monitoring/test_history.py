"""Round history and annotator charts: counts checked by hand, chart geometry, and large rounds."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from annotation.models import Judgment, Round
from annotation.monitoring import progress as snapshots
from annotation.monitoring.progress import UNITS, _periods, count_history, history_picture, strips
from annotation.rounds.services import pause_round
from tests.annotation.monitoring.test_progress import DeferredThread
from tests.factories import judge, judge_all, make_gold, make_round

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"
NINE = datetime(2026, 11, 20, 9, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def round_of_module(module_rows) -> Round:
    """Return a round with 12 statements and two annotators: six agreed at 9:00, six half split at 11:00."""
    round = make_round(12, name="pilot", judgments_per_task=2, batch_size=20)
    first = ["true", "false"] * 6
    judge_all(round, first, first[:6] + ["true"] * 6)
    for judgment in Judgment.objects.select_related("task"):
        judgment.judged_at = NINE + timedelta(hours=2 * (judgment.task.position >= 6))
        judgment.save(update_fields=["judged_at"])
    return round


@pytest.fixture
def round(round_of_module) -> Round:
    return deepcopy(round_of_module)


def test_history_has_judgments_and_agreement_per_hour(round):
    history = count_history(round)

    assert history["unit"] == "hour"
    assert [(period["begin"][11:16], period["n"], period["n_completed"]) for period in history["periods"]] == [
        ("09:00", 12, 6),
        ("10:00", 0, 0),
        ("11:00", 12, 6),
    ]
    shown = [(period["percent_agreement"], period["alpha"]) for period in history["periods"]]
    # At 11:00: 9 True, 3 False; 3 units differ, so D_o = 6 / 12; D_e = 2 * 9 * 3 / (12 * 11): alpha = 1 - 11 / 9.
    assert shown == [(1, 1), (None, None), (0.5, pytest.approx(1 - 11 / 9, abs=1e-6))]


def test_history_counts_changed_answers_once_and_omits_gold_completions(round):
    gold, other = round.tasks.order_by("position")[:2]
    judge(round.annotators.first(), other, "true")
    make_gold(round, [gold], "true")

    periods = count_history(round)["periods"]

    assert sum(period["n"] for period in periods) == 24
    assert sum(period["n_completed"] for period in periods) == 11


@pytest.mark.parametrize(("span", "unit", "n"), [(47, "hour", 48), (72, "day", 4), (24 * 100, "week", 15)])
def test_periods_are_contiguous_hours_days_or_weeks(span, unit, n):
    end = NINE + timedelta(hours=span)
    chosen = next(chosen for chosen in UNITS if end - NINE <= chosen.longest)

    begins = _periods(NINE, end, chosen)

    assert (chosen.name, len(begins)) == (unit, n)
    assert begins == sorted(set(begins))
    assert begins[0] <= NINE
    assert begins[-1] <= end < begins[-1] + 2.5 * chosen.step


def test_history_chart_has_bars_for_judgments_and_marks_for_events(round, researcher):
    pause_round(round, researcher)

    picture = history_picture(round, timezone.now())

    assert [bar["height"] for bar in picture["bars"]] == ["96.0", "0.0", "96.0"]
    assert [point["y"] for point in picture["points"]] == ["0.0", "96.0"]  # alpha below 0 is drawn at 0
    assert [(mark["x"], mark["event"].kind) for mark in picture["marks"]] == [("600.0", "paused")]
    assert history_picture(make_round(), timezone.now())["rows"] == []


def test_strips_show_annotators_with_most_judgments(round):
    judge_all(make_round(2), ["true"] * 2)
    make_gold(round, round.tasks.filter(position__lt=2), "true")

    first, second = strips(round, timezone.now(), 10)

    assert (first["judged_width"], second["judged_width"]) == ("100.0", "100.0")
    assert first["gold"]["value"] == 0.5
    assert "<svg" in first["gold_picture"]
    assert strips(make_round(), timezone.now(), 10) == []


def test_round_page_shows_charts_after_background_count(researcher_client, round, monkeypatch):
    page = researcher_client.get(PILOT).text
    assert "Judgments by hour, maximum 12" in page
    assert 'aria-label="Annotators with the most judgments"' in page

    monkeypatch.setattr(snapshots, "LIVE_HISTORY", 0)
    monkeypatch.setattr(snapshots, "Thread", DeferredThread)
    monkeypatch.setattr(snapshots.connection, "close", lambda: None)
    monkeypatch.setattr(DeferredThread, "waiting", [])
    assert "Counting. Reload the page" in researcher_client.get(PILOT).text
    for run_count in DeferredThread.waiting:
        run_count()

    assert "Judgments by hour, maximum 12" in researcher_client.get(PILOT).text
    assert history_picture(round, timezone.now())["counted_at"] is not None
