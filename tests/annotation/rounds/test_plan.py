"""What a round will cost and tell."""

from decimal import Decimal

import pytest

from annotation.judges.cost import StratumPlan, Wish, accuracy_of, assumed_strata, statements_for, variance
from annotation.models import Round
from annotation.rounds.plan import half_width, half_width_of, macro_half_width, plan_round, workload
from annotation.rounds.services import create_draft
from tests.annotation.judges.test_allocation import judged_draft
from tests.factories import make_harvest


def test_tuples_that_cells_share_are_judged_once():
    work = workload(Round(judgments_per_task=3), 100, 80, seconds_per_judgment=5)

    assert (work.n_shared, work.n_judgments, work.n_judgments_least) == (20, 240, 240)
    assert work.hours == pytest.approx(240 * 5 / 3600)


def test_a_third_person_is_asked_between_never_and_always():
    work = workload(Round(judgments_per_task=3, third_only_if_split=True), 100, 100)

    assert (work.n_judgments_least, work.n_judgments) == (200, 300)


def test_gold_is_a_share_of_all_that_is_shown():
    work = workload(Round(judgments_per_task=1, gold_share=0.1), 90, 90)

    assert work.n_gold_shown == 10


@pytest.mark.parametrize(
    ("n", "accuracy", "low", "high"),
    [(263, 81 / 263, 0.2553, 0.3662), (148, 15 / 148, 0.0624, 0.1605), (20, 0.0, 0.0, 0.1611)],
)
def test_the_half_width_is_that_of_wilsons_interval(n, accuracy, low, high):
    """Newcombe (1998), Statistics in Medicine 17, Table I, method 3."""
    assert half_width(n, accuracy) == pytest.approx((high - low) / 2, abs=1e-4)


def effective_size(*strata: tuple[int, int]) -> float:
    """strata: tuples and how many are judged, all of accuracy .5."""
    return 0.25 / variance([StratumPlan(population, n, 0.5) for population, n in strata])


def test_a_proportional_sample_is_as_exact_as_a_simple_one():
    together = effective_size((400, 40))

    assert effective_size((100, 10), (300, 30)) == pytest.approx(together)
    assert together == pytest.approx(40 / 0.9)  # a tenth of the harvest is known


def test_an_equal_share_for_a_small_stratum_costs_exactness():
    # 1 / (1/16 (1/20 - 1/100) + 9/16 (1/20 - 1/300)), against 40 / .9 of a proportional sample.
    assert effective_size((100, 20), (300, 20)) == pytest.approx(1 / 0.02875)


def test_where_all_tuples_are_judged_the_interval_has_no_width():
    everything = variance([StratumPlan(40, 40, 0.5), StratumPlan(7, 7, 0.5)])

    assert half_width_of(everything, 0.5) == 0
    assert macro_half_width([everything, everything]) == 0


def test_the_average_over_relations_is_narrower_than_each():
    assert macro_half_width([0.0025] * 4) == pytest.approx(1.959964 * 0.5 / 20)


# -- the price of a width, by people alone and with a judge ------------------------------------------------------------


def test_people_alone_need_what_wilson_asks_for():
    """Of 400 at .8 the first n whose Wilson half-width at n / (1 - n / 400) is .05 or less, by trying all."""
    n = statements_for([StratumPlan(400, 0, 0.8)], half_width_of, 0.05)

    widths = [half_width(1 / (1 / size - 1 / 400), 0.8) for size in range(1, 400)]
    assert n == next(size for size, width in enumerate(widths, start=1) if width <= 0.05)


def test_a_judge_of_the_assumed_skill_splits_a_cell_as_its_errors_say():
    """Of 1,000 at .8: 720 + 40 called true, 720 of them true; 160 + 80 called false, 80 of them true."""
    called_true, called_false = assumed_strata(1000, 0.8)

    assert (called_true.population, called_false.population) == (760, 240)
    assert (called_true.accuracy, called_false.accuracy) == pytest.approx((720 / 760, 80 / 240))
    assert accuracy_of([called_true, called_false]) == pytest.approx(0.8)


def test_a_good_judge_saves_statements_and_one_who_tells_nothing_none():
    alone = statements_for([StratumPlan(400, 0, 0.8)], half_width_of, 0.05)

    assert statements_for(assumed_strata(400, 0.8), half_width_of, 0.05) < 0.75 * alone
    apart = [StratumPlan(200, 0, 0.8), StratumPlan(200, 0, 0.8)]
    assert abs(statements_for(apart, half_width_of, 0.05) - alone) <= 1


def test_a_width_out_of_reach_takes_everything():
    assert statements_for([StratumPlan(30, 0, 0.5)], half_width_of, 0.0) == 30


@pytest.mark.django_db
def test_the_plan_prices_both_ways():
    draft = judged_draft(n=20)
    draft.judge_runs.get().answers.update(cost=Decimal("0.01"))

    plan = plan_round(draft, wish=Wish(0.1, pay_per_hour=12.0))

    alone, with_judge = plan.ways
    assert (alone.judge, with_judge.judge) == ("", "lm (judge-lm)")
    assert with_judge.n_statements < alone.n_statements
    assert alone.cost == pytest.approx(alone.n_judgments * 6 / 3600 * 12)
    assert with_judge.cost == pytest.approx(with_judge.n_judgments * 6 / 3600 * 12 + 0.4)


@pytest.mark.django_db
def test_without_a_judge_the_plan_assumes_one_whose_price_is_not_known():
    job = make_harvest([(f"head {rank}", f"tail {rank}") for rank in range(200)])
    draft = create_draft({"name": "pilot", "cells": [{"job": job.pk, "n": 20}]})

    alone, with_judge = plan_round(draft, 0.8, wish=Wish(pay_per_hour=10)).ways

    assert with_judge.judge == "a judge of sensitivity 0.9 and specificity 0.8"
    assert with_judge.n_statements < alone.n_statements
    assert (with_judge.judge_cost, with_judge.cost) == (None, None)


@pytest.mark.django_db
def test_the_form_of_a_draft_plans_with_its_judge_and_a_new_one_says_what_to_do(researcher_client):
    draft = judged_draft()
    sent = {"jobs": [draft.spec["cells"][0]["job"]], "n": 24, "judge": "lm", "allocation": "optimal"}
    sent |= {"wished_points": "10", "pay_per_hour": "12"}

    page = researcher_client.post(f"/rounds/plan/?draft={draft.path}", sent).text
    assert "people with lm (judge-lm)" in page
    assert "Cost of ± 10.0 points per cell" in page
    assert "has no judge run &#x27;lm&#x27;" in researcher_client.post("/rounds/plan/", sent).text
