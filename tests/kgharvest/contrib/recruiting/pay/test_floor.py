"""Pay floor: a panel below its hourly minimum pauses, and minimal bonuses raise pay to the minimum."""

from __future__ import annotations

from fractions import Fraction

import pytest
from django.core.cache import cache
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from kgharvest.contrib.recruiting.models import Panel, Submission
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.pay.bonuses import (
    LONGEST_REASON,
    bonus_to_floor,
    floor_bonuses,
    floor_sentence,
    make_good,
    open_bonuses,
    pause_underpaid_panels,
)
from kgharvest.contrib.recruiting.pay.hourly import HourlyPay, Work, hourly_pay
from kgharvest.contrib.recruiting.pay.ledger import Balance, balance_of
from kgharvest.contrib.recruiting.platforms import PlatformUnavailable
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.kgharvest.contrib.recruiting.pay.standing_in import StandIn, complete_place
from tests.kgharvest.contrib.recruiting.pay.test_commands import run_job
from tests.refusals import refused

in_database = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]


def test_bonus_to_floor_is_rounded_up_to_a_cent():
    assert bonus_to_floor(200, 1200, 900) == 100
    assert bonus_to_floor(200, 1201, 900) == 101  # 300.25 cents are needed
    assert bonus_to_floor(300, 1200, 900) == 0
    assert bonus_to_floor(500, 1200, 900) == 0


times = st.floats(0.001, 100_000, allow_nan=False)
cents = st.integers(0, 100_000)


@given(cents, times, cents)
def test_bonus_to_floor_is_the_minimum_that_reaches_it(earned, active_s, floor):
    bonus = bonus_to_floor(earned, active_s, floor)

    def hourly(pay: int) -> Fraction:
        return Fraction(pay) * 3600 / Fraction(active_s)

    assert hourly(earned + bonus) >= floor
    assert bonus == 0 or hourly(earned + bonus - 1) < floor


@given(st.lists(st.tuples(cents, times), max_size=30), st.integers(1, 100_000))
def test_bonuses_raise_all_participants_to_the_floor(people, floor):
    works = [Work(Submission(pk=pk), time, Balance(owed, 0)) for pk, (owed, time) in enumerate(people, start=1)]

    bonuses = dict(floor_bonuses(HourlyPay(works, None, len(works)), floor))

    assert all(Fraction(work.earned + bonuses.get(work, 0)) * 3600 >= floor * Fraction(work.active_s) for work in works)
    assert all(amount > 0 and work.hourly < floor for work, amount in bonuses.items())


# Pausing


def make_underpaid_panel(make_panel, n: int = 5, **fields) -> Panel:
    """Create a panel of n people who each earned 5 cents in a hundredth of an hour: 5.00 per hour."""
    panel = make_panel(reward=5, hourly_floor=900, completion_code="C0DE", **fields)
    for number in range(n):
        complete_place(panel, f"person {number}", seconds=(36,))
    return panel


def check_floors() -> None:
    """Run the periodic check of workers."""
    cache.clear()
    pause_underpaid_panels(timezone.now())
    for job in Job.objects.filter(kind="pause_panel", status="queued"):
        ledger.run_job(job.pk)


@pytest.mark.django_db
def test_panel_below_its_floor_is_paused_with_the_missing_bonuses(make_panel, enqueued):
    panel = make_underpaid_panel(make_panel)
    codes = list(panel.submissions.order_by("pk").values_list("annotator__code", flat=True))

    check_floors()
    panel.refresh_from_db()

    assert panel.status == Panel.Status.PAUSED
    assert StandIn.paused == [panel.pk]
    assert panel.ended_reason == (
        "The median pay of 5 participants is USD 5.00 per hour, below the minimum of USD 9.00. Bonuses totaling USD "
        f"0.20 make up the difference: {', '.join(f'{code} USD 0.04' for code in codes)}."
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("n", "fields"), [(4, {}), (5, {"hourly_floor": 500}), (5, {"hourly_floor": 0})], ids=["few", "at it", "no floor"]
)
def test_panels_without_a_low_median_or_floor_continue(make_panel, enqueued, n, fields):
    panel = make_underpaid_panel(make_panel, n)
    Panel.objects.filter(pk=panel.pk).update(**fields)

    check_floors()

    assert not Job.objects.filter(kind="pause_panel").exists()


@pytest.mark.django_db
def test_panel_is_paused_once_its_platform_is_available(make_panel, enqueued):
    panel = make_underpaid_panel(make_panel)
    StandIn.trouble = [PlatformUnavailable("Later.")]

    check_floors()
    assert Panel.objects.get().status == Panel.Status.PUBLISHED
    check_floors()

    assert Panel.objects.get().status == Panel.Status.PAUSED
    assert StandIn.paused == [panel.pk]


def test_pause_reason_counts_people_if_the_list_is_too_long():
    works = [Work(Submission(pk=pk), 36.0, Balance(5, 0)) for pk in range(1, 100)]
    pay, panel = HourlyPay(works, 500.0, 99), Panel(hourly_floor=900, currency="USD")

    sentence = floor_sentence(panel, pay, floor_bonuses(pay, 900))

    assert len(sentence) <= LONGEST_REASON
    assert sentence.endswith("totaling USD 3.96 make up the difference: 99 participants, listed on the pay page.")


# Bonuses to the floor


@pytest.mark.django_db
def test_make_good_pays_bonuses_and_resumes_the_panel(make_panel, enqueued, researcher):
    panel = make_underpaid_panel(make_panel)
    check_floors()

    assert make_good(panel, researcher) == 20
    run_job()
    check_floors()
    panel.refresh_from_db()

    assert panel.status == Panel.Status.PUBLISHED
    assert hourly_pay(panel).median == 900
    assert balance_of(panel) == Balance(5 * (5 + 4), 5 * 4)
    assert set(panel.pay_entries.filter(purpose="bonus").values_list("key", flat=True)) == {"bonus:floor:1"}


@pytest.mark.django_db
def test_repeated_make_good_pays_nothing(make_panel, enqueued):
    panel = make_underpaid_panel(make_panel)
    make_good(panel)

    with refused("NothingMissing"):
        make_good(panel)

    assert balance_of(panel).owed == 5 * 9


@pytest.mark.django_db
def test_second_fall_below_the_floor_gets_a_separate_bonus(make_panel, enqueued):
    panel = make_underpaid_panel(make_panel)
    make_good(panel)
    Panel.objects.filter(pk=panel.pk).update(hourly_floor=1000)
    panel.refresh_from_db()

    assert make_good(panel) == 5
    keys = panel.pay_entries.filter(purpose="bonus").order_by().values_list("key", flat=True).distinct()
    assert set(keys) == {"bonus:floor:1", "bonus:floor:2"}


@pytest.mark.django_db
def test_manual_bonuses_are_owed_until_recorded_as_paid(make_panel, enqueued):
    panel = make_underpaid_panel(make_panel, by_hand=True)
    make_good(panel)

    assert sum(bonus.amount for bonus in open_bonuses(panel)) == 20
    assert balance_of(panel) == Balance(45, 0)
    assert money(balance_of(panel).open, panel.currency) == "USD 0.45"
