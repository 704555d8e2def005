"""Rounds that sample clusters of tuples with the same subject: draws, order of statements, gold, and plan."""

from itertools import groupby

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.judges.cost import Wish
from annotation.judging.assignment import next_batch
from annotation.models import Draw, Judgment, Round
from annotation.rounds.builder import freeze_round
from annotation.rounds.plan import ASSUMED_DESIGN_EFFECT, costs_of_statements, plan_lines, plan_round
from annotation.rounds.serializers import round_from_spec
from annotation.rounds.services import create_draft, open_round
from evaluation.rehearsals.rehearsal import draft_evidence
from tests.factories import judge, judge_all, make_annotators, make_harvest, make_relation
from tests.refusals import refused

pytestmark = pytest.mark.django_db

SUBJECTS = [(f"head {number // 4}", f"tail {number}") for number in range(80)]  # 20 subjects with four tuples


def spec(*jobs, n=24, name="pilot", **fields):
    return {"name": name, "cells": [{"job": job.pk, "n": n} for job in jobs], "cluster_size": 3, **fields}


def runs_of_subjects(tasks) -> list[str]:
    return [subject for subject, _ in groupby(task.entities[0] for task in tasks)]


def test_draws_store_clusters_of_one_subject_and_equal_inclusion_probabilities():
    open_round(spec(make_harvest(SUBJECTS)))

    clusters: dict[int, list[str]] = {}
    for draw in Draw.objects.select_related("task"):
        clusters.setdefault(draw.cluster, []).append(draw.task.entities[0])
    assert {draw.inclusion_probability for draw in Draw.objects.all()} == {24 / 80}
    assert all(len(set(subjects)) == 1 and len(subjects) <= 3 for subjects in clusters.values())
    assert len(clusters) <= 24 / 2 + 2  # clusters of two; the first and the last can be incomplete


def test_strata_and_cells_have_different_clusters():
    jobs = make_harvest(SUBJECTS), make_harvest(SUBJECTS)
    cells = [{"job": job.pk, "n": 24, "strata": 2} for job in jobs]

    open_round({"name": "pilot", "cells": cells, "cluster_size": 3})

    assert all(len({*of_cluster}) == 1 for of_cluster in strata_by_cluster().values())


def strata_by_cluster() -> dict[int, list[int]]:
    strata: dict[int, list[int]] = {}
    for cluster, stratum in Draw.objects.values_list("cluster", "stratum"):
        strata.setdefault(cluster, []).append(stratum)
    return strata


def test_same_seed_draws_same_clusters_in_same_order():
    job = make_harvest(SUBJECTS)

    rounds = [open_round(spec(job, name=name, seed=seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2))]

    first, second, other = (
        list(round.tasks.order_by("position").values_list("statement", "draws__cluster")) for round in rounds
    )
    assert first == second != other


def test_statements_of_a_subject_follow_one_another():
    round = open_round(spec(make_harvest(SUBJECTS)))

    runs = runs_of_subjects(round.tasks.order_by("position"))
    assert len(runs) == len(set(runs)) < 24
    assert runs != sorted(runs, key=lambda subject: int(subject.split()[1]))


def add_gold(round: Round) -> Round:
    for number in range(4):
        known = make_harvest([(f"gold {number}", "tail")]).tuples.get().knowledge_tuple
        round.tasks.create(
            knowledge_tuple=known, statement=f"gold {number}", entities=[f"gold {number}", "tail"], spans=[],
            is_gold=True, gold_label="true", position=100 + number, n_wanted=0,
        )  # fmt: skip
    Round.objects.filter(pk=round.pk).update(gold_share=0.2, gold_reuse=True, n_gold=4, n_tasks=round.n_tasks + 4)
    return Round.objects.get(pk=round.pk)


def judged_runs(annotator) -> list[str]:
    judged = []
    while batch := next_batch(annotator, timezone.now()):
        judged += batch
        for task in batch:
            judge(annotator, task)
    tasks = {task.pk: task for task in annotator.round.tasks.all()}
    assert len(judged) == len({task.pk for task in judged})
    return runs_of_subjects(tasks[task.pk] for task in judged)


def test_gold_does_not_separate_statements_of_a_subject():
    round = add_gold(open_round(spec(make_harvest(SUBJECTS), batch_size=6)))
    for annotator in make_annotators(round, 3):
        runs = judged_runs(annotator)
        n_gold = sum(run.startswith("gold") for run in runs)
        assert n_gold > 1
        # The cycle of an annotator can begin within a subject, which then comes last, too.
        assert len(runs) - len(set(runs)) <= 1


@pytest.mark.parametrize("batch_size", [1, 6])
def test_batches_within_a_subject_have_no_gold_and_later_batches_have_it(batch_size):
    subjects = [(f"head {number // 10}", f"tail {number}") for number in range(40)]
    fields = {"n": 40, "cluster_size": 10, "batch_size": batch_size, "judgments_per_task": 3}
    round = add_gold(open_round(spec(make_harvest(subjects), **fields)))

    for annotator in make_annotators(round, 3):
        annotator.next_position = 5  # in the middle of the first subject, which therefore comes last, too
        annotator.save()
        runs = judged_runs(annotator)
        assert len(runs) - len(set(runs)) == 1
        # One of 11 statements is gold: at least one is due before the second boundary, and two before the third.
        assert sum(run.startswith("gold") for run in runs) >= 2


@pytest.mark.parametrize("word", ["1990", "null", "true", "[1]", '{"a": 1}'])
def test_subjects_can_be_json(word):
    job = make_harvest([(word if number < 4 else subject, tail) for number, (subject, tail) in enumerate(SUBJECTS)])
    round = add_gold(open_round(spec(job, n=None, batch_size=100, judgments_per_task=1)))
    [annotator] = make_annotators(round, 1)

    assert word in judged_runs(annotator)

    Judgment._base_manager.update(seconds=4)
    assert plan_round(create_draft(spec(job, name="later"))).cells[0].design_effect >= 1


def test_clusters_cannot_close_at_a_half_width():
    job = make_harvest(SUBJECTS)

    with refused("BadRoundSpec", "cluster_size"):
        round_from_spec(spec(job, closes_when="narrow", closes_at_half_width=0.1))


def test_census_judges_every_tuple_once():
    round = open_round(spec(make_harvest(SUBJECTS), n=None))

    assert round.tasks.count() == Draw.objects.count() == 80
    assert set(Draw.objects.values_list("inclusion_probability", flat=True)) == {1}


def test_rehearsals_use_the_clusters_of_the_draft():
    draft = create_draft(spec(make_harvest(SUBJECTS)))

    evidence = draft_evidence(draft, freeze_round(draft))

    names = evidence.cluster.tolist()
    assert len(names) == 24
    assert len(set(names)) < 24


# Plan


def test_plan_compares_designs_with_the_assumed_effect():
    draft = create_draft(spec(make_harvest(SUBJECTS), judgments_per_task=2))

    plan = plan_round(draft, 0.8, wish=Wish(half_width=0.1))

    simple, clusters = plan.designs
    assert plan.cells[0].design_effect == pytest.approx(0.3 + 0.7 * ASSUMED_DESIGN_EFFECT)  # 24 of 80
    assert simple.costs == clusters.costs == pytest.approx((27 / 7, 15 / 7, False))  # 6 s in the ratio 45 : 25
    # Clusters require more statements: p (1 - p) (1 / n - 1 / N) is divided by the effect.
    ratio = (1 / simple.n_statements - 1 / 80) / (1 / clusters.n_statements - 1 / 80)
    assert ratio == pytest.approx(1.5, rel=0.05)
    # A cluster size of 3 divides four tuples into two clusters.
    n, m = simple.n_statements / 80, clusters.n_statements / 80
    assert simple.n_subjects == pytest.approx(20 * (1 - (1 - n) ** 4), abs=1)
    assert clusters.n_subjects == pytest.approx(20 * (1 - (1 - m) ** 2), abs=1)
    seconds = 2 * (clusters.n_subjects * 27 + clusters.n_statements * 15) / 7
    assert clusters.hours == pytest.approx(seconds / 3600, rel=0.05)
    assert plan.ways[0].hours == clusters.hours
    drawn = len({task.entities[0] for task in freeze_round(draft).tasks})  # subjects of the drawn statements
    assert plan.workload.hours == pytest.approx(2 * (drawn * 27 + 24 * 15) / 7 / 3600)
    [line] = [line for line in plan_lines(plan) if "per judgment" in line or "per subject" in line]
    assert line.endswith("per judgment (assumed): 3.9 s per subject and 2.1 s per statement (ratio of Gao et al. 2019)")
    assert any("design effect 1.35" in line for line in plan_lines(plan))


def test_plan_counts_a_subject_once_if_its_tuples_are_in_several_strata():
    cells = [{"job": make_harvest(SUBJECTS).pk, "n": 24, "strata": strata} for strata in (None, [1, 31])]
    drafts = (create_draft(spec(name=f"pilot-{number}", cells=[cell])) for number, cell in enumerate(cells))

    (simple, _), (of_strata, _) = (plan_round(draft, wish=Wish(half_width=0.1)).designs for draft in drafts)

    assert of_strata.n_statements == simple.n_statements
    assert of_strata.n_subjects == simple.n_subjects


def test_plan_has_no_designs_without_clusters():
    plan = plan_round(create_draft(spec(make_harvest(SUBJECTS), cluster_size=None)))

    assert (plan.designs, plan.cells[0].design_effect) == ([], 1)


def test_plan_estimates_the_effect_and_the_times_from_earlier_judgments():
    job = make_harvest(SUBJECTS)
    round = open_round(spec(job, n=None, name="earlier", judgments_per_task=1))
    subjects = dict(round.tasks.values_list("position", "entities__0"))
    labels = ["true" if int(subjects[position].split()[1]) % 2 else "false" for position in range(80)]
    judge_all(round, labels)
    times = {"repeated": 4, "first": 20}
    before = None
    for judgment in [*round.annotators.get().judgments.order_by("judged_at").select_related("task")]:
        is_first = judgment.task.entities[0] != before
        type(judgment)._base_manager.filter(pk=judgment.pk).update(seconds=times["first" if is_first else "repeated"])
        before = judgment.task.entities[0]

    draft = create_draft(spec(job))

    # All statements of a subject have the same verdict: the effect is the mean size of a cluster.
    assert plan_round(draft).cells[0].design_effect == pytest.approx(0.3 + 0.7 * 2)
    assert costs_of_statements(None) == pytest.approx(
        (27 / 7, 15 / 7, False)
    )  # 19 first statements of other subjects are too few
    assert costs_of_statements(7) == pytest.approx((4.5, 2.5, False))


def test_plan_reads_earlier_verdicts_once_per_relation(django_assert_num_queries):
    relation = make_relation("cause")
    jobs = [make_harvest(SUBJECTS, relation=relation) for _ in range(3)]
    one, three = create_draft(spec(*jobs[:1], name="one")), create_draft(spec(*jobs, name="three"))
    frozen_one, frozen_three = freeze_round(one), freeze_round(three)
    with CaptureQueriesContext(connection) as queries:
        plan_round(one, frozen=frozen_one)

    with django_assert_num_queries(len(queries)):
        plan_round(three, frozen=frozen_three)


def test_draft_page_and_api_show_the_designs(researcher_client, researcher):
    draft = create_draft(spec(make_harvest(SUBJECTS)), researcher)

    page = researcher_client.get(draft.get_absolute_url()).text
    plan = researcher_client.get(f"/api/v1/rounds/{draft.pk}/plan/").json()

    simple, clusters = plan["designs"]
    assert (simple["name"], clusters["name"]) == ("simple", "clusters")
    assert plan["cells"][0]["design_effect"] == pytest.approx(1.35)
    assert "design effect 1.35" in page
    for design in (simple, clusters):
        assert f"{design['n_statements']} statements about {design['n_subjects']} subjects" in page
