"""Round plans: workload, interval widths, and cost."""

from decimal import Decimal

import pytest

from annotation.judges.cost import StratumPlan, Wish, accuracy_of, assumed_strata, statements_for, variance
from annotation.models import Round
from annotation.rounds.plan import half_width, half_width_of, macro_half_width, plan_lines, plan_round, workload
from annotation.rounds.services import create_draft
from kgharvest.statistics.fixed_width import expected_statements
from tests.annotation.judges.test_allocation import judged_draft
from tests.factories import make_harvest


def test_tuples_shared_by_cells_are_judged_once():
    work = workload(Round(judgments_per_task=3), 100, 80, seconds_per_judgment=5)

    assert (work.n_shared, work.n_judgments, work.n_judgments_least) == (20, 240, 240)
    assert work.hours == pytest.approx(240 * 5 / 3600)


def test_third_only_if_split_bounds_number_of_judgments():
    work = workload(Round(judgments_per_task=3, third_only_if_split=True), 100, 100)

    assert (work.n_judgments_least, work.n_judgments) == (200, 300)


def test_gold_share_refers_to_all_shown_statements():
    work = workload(Round(judgments_per_task=1, gold_share=0.1), 90, 90)

    assert work.n_gold_shown == 10


@pytest.mark.parametrize(("gold_reuse", "shown", "rate"), [(False, 15, 15 / 105), (True, 30, 0.25)])
def test_too_few_gold_statements_lower_the_share_unless_reused(gold_reuse, shown, rate):
    draft = Round(judgments_per_task=3, gold_share=0.25, gold_reuse=gold_reuse)

    work = workload(draft, 30, 30, n_gold=5)

    assert (work.n_gold_shown, work.gold_rate) == (shown, pytest.approx(rate))


@pytest.mark.parametrize(
    ("n", "accuracy", "low", "high"),
    [(263, 81 / 263, 0.2553, 0.3662), (148, 15 / 148, 0.0624, 0.1605), (20, 0.0, 0.0, 0.1611)],
)
def test_half_width_matches_wilson_interval(n, accuracy, low, high):
    """Newcombe (1998), Statistics in Medicine 17, Table I, method 3."""
    assert half_width(n, accuracy) == pytest.approx((high - low) / 2, abs=1e-4)


def effective_size(*strata: tuple[int, int]) -> float:
    """Return the effective sample size of (population, sample) strata with accuracy .5."""
    return 0.25 / variance([StratumPlan(population, n, 0.5) for population, n in strata])


def test_proportional_sample_is_as_precise_as_simple_random_sample():
    simple = effective_size((400, 40))

    assert effective_size((100, 10), (300, 30)) == pytest.approx(simple)
    assert simple == pytest.approx(40 / 0.9)  # a tenth of the harvest is judged


def test_equal_allocation_reduces_precision():
    # 1 / (1/16 (1/20 - 1/100) + 9/16 (1/20 - 1/300)), against 40 / .9 of a proportional sample.
    assert effective_size((100, 20), (300, 20)) == pytest.approx(1 / 0.02875)


def test_interval_of_a_census_has_zero_width():
    census = variance([StratumPlan(40, 40, 0.5), StratumPlan(7, 7, 0.5)])

    assert half_width_of(census, 0.5) == 0
    assert macro_half_width([census, census]) == 0


def test_macro_average_interval_is_narrower_than_each_relation():
    assert macro_half_width([0.0025] * 4) == half_width(400) < half_width_of(0.0025, 0.5)
    assert macro_half_width([0.25] * 3) < 0.5  # one statement per relation


# Cost of a given width, with and without a judge


def test_statements_without_judge_follow_wilson_interval():
    """Compare with the smallest n of 400 with a Wilson half-width of at most .05, found by exhaustive search."""
    n = statements_for([StratumPlan(400, 0, 0.8)], half_width_of, 0.05)

    widths = [half_width(1 / (1 / size - 1 / 400), 0.8) for size in range(1, 400)]
    assert n == next(size for size, width in enumerate(widths, start=1) if width <= 0.05)


def test_assumed_judge_splits_cell_by_sensitivity_and_specificity():
    """Split 1,000 tuples of accuracy .8 into 760 positive (720 true) and 240 negative (80 true)."""
    called_true, called_false = assumed_strata(1000, 0.8)

    assert (called_true.population, called_false.population) == (760, 240)
    assert (called_true.accuracy, called_false.accuracy) == pytest.approx((720 / 760, 80 / 240))
    assert accuracy_of([called_true, called_false]) == pytest.approx(0.8)


def test_informative_judge_saves_statements_and_random_judge_does_not():
    alone = statements_for([StratumPlan(400, 0, 0.8)], half_width_of, 0.05)

    assert statements_for(assumed_strata(400, 0.8), half_width_of, 0.05) < 0.75 * alone
    uninformative = [StratumPlan(200, 0, 0.8), StratumPlan(200, 0, 0.8)]
    assert abs(statements_for(uninformative, half_width_of, 0.05) - alone) <= 1


def test_unreachable_width_requires_all_tuples():
    assert statements_for([StratumPlan(30, 0, 0.5)], half_width_of, 0.0) == 30


@pytest.mark.django_db
def test_plan_estimates_cost_with_and_without_judge():
    draft = judged_draft(n=20)
    draft.judge_runs.get().answers.update(cost=Decimal("0.01"))

    plan = plan_round(draft, wish=Wish(0.1, pay_per_hour=12.0))

    alone, with_judge = plan.ways
    assert (alone.judge, with_judge.judge) == ("", "lm (judge-lm)")
    assert with_judge.n_statements < alone.n_statements
    assert alone.cost == pytest.approx(alone.n_judgments * 6 / 3600 * 12)
    assert with_judge.cost == pytest.approx(with_judge.n_judgments * 6 / 3600 * 12 + 0.4)


@pytest.mark.django_db
def test_plan_without_judge_run_assumes_judge_of_unknown_cost():
    job = make_harvest([(f"head {rank}", f"tail {rank}") for rank in range(200)])
    draft = create_draft({"name": "pilot", "cells": [{"job": job.pk, "n": 20}]})

    alone, with_judge = plan_round(draft, 0.8, wish=Wish(pay_per_hour=10)).ways

    assert with_judge.judge == "a judge with sensitivity 0.9 and specificity 0.8"
    assert with_judge.n_statements < alone.n_statements
    assert (with_judge.judge_cost, with_judge.cost) == (None, None)


@pytest.mark.django_db
def test_plan_shows_expected_work_until_the_round_closes_at_its_half_width():
    job = make_harvest([(f"head {rank}", f"tail {rank}") for rank in range(200)])
    document = {"name": "pilot", "cells": [{"job": job.pk, "n": 100}], "closes_when": "narrow"}
    draft = create_draft(document | {"closes_at_half_width": 0.1})

    plan = plan_round(draft, 0.8)

    n = expected_statements(0.8, 0.1, 200)
    assert 40 < n < 70
    assert plan.closing == (0.1, n, 3 * n, pytest.approx(3 * n * 6 / 3600), True)
    line = f"expected until the round closes at +- 10.0 points: {n} statements, {3 * n} judgments, {n / 200:.1f} h"
    assert line in list(plan_lines(plan))
    draft.spec["cells"][0]["n"] = 30
    assert plan_round(draft, 0.8).closing[1:] == (30, 90, pytest.approx(0.15), False)
    draft.closes_at_half_width = None
    assert plan_round(draft, 0.8).closing is None


@pytest.mark.django_db
def test_draft_form_plans_with_its_judge_and_new_form_shows_error(researcher_client):
    draft = judged_draft()
    data = {"jobs": [draft.spec["cells"][0]["job"]], "n": 24, "judge": "lm", "allocation": "optimal"}
    data |= {"who_can_join": "account", "wished_points": "10", "pay_per_hour": "12"}

    page = researcher_client.post(f"/rounds/plan/?draft={draft.path}", data).text
    assert "people with lm (judge-lm)" in page
    assert "Cost of ± 10.0 points per cell" in page
    assert "has no judge run &#x27;lm&#x27;" in researcher_client.post("/rounds/plan/", data).text
