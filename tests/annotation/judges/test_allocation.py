"""Allocation to strata of judge labels: comparison with brute force, rounds, and reports."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.judges.allocation import ASSUMED_ACCURACY, accuracy_by_label, allocate
from annotation.judges.labels import SeveralJudges
from annotation.models import Draw, Judgment, Round
from annotation.rounds.builder import freeze_round
from annotation.rounds.services import clone_round, create_draft, open_draft, open_round
from evaluation.evidence.evidence import drawn_verdicts, ranked_strata
from evaluation.evidence.judged_harvests import judged_harvest
from evaluation.evidence.rows import gather_evidence
from evaluation.reports.document import build_document
from kgharvest.models import Job
from tests.factories import judge_all, make_harvest, make_judge_answer, make_judge_run
from tests.refusals import refused


def variance(shares, sizes, spreads) -> float:
    rows = zip(shares, sizes, spreads, strict=True)
    return sum((size * spread) ** 2 * (1 / share - 1 / size) for share, size, spread in rows)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.01, 0.5)), min_size=1, max_size=4).flatmap(
        lambda strata: st.tuples(st.just(strata), st.integers(len(strata), sum(size for size, _ in strata)))
    )
)
def test_optimal_allocation_minimizes_variance(problem):
    strata, n = problem
    sizes, spreads = zip(*strata, strict=True)

    shares = allocate(n, sizes, "optimal", spreads)

    ways = [way for way in product(*(range(1, size + 1) for size in sizes)) if sum(way) == n]
    assert sum(shares) == n
    assert all(1 <= share <= size for share, size in zip(shares, sizes, strict=True))
    assert variance(shares, sizes, spreads) == pytest.approx(min(variance(way, sizes, spreads) for way in ways))


def test_neyman_allocation_matches_hand_calculation():
    """Allocate 12 in proportion to N S = 30, 20, 10."""
    assert allocate(12, [100, 50, 20], "optimal", [0.3, 0.4, 0.5]) == [6, 4, 2]


def test_strata_get_the_minimum_sample_if_possible():
    assert allocate(30, [900, 90, 10], "optimal", [0.3, 0.1, 0.1], least=5) == [20, 5, 5]
    assert allocate(30, [900, 90, 3], "proportional", least=5) == [22, 5, 3]
    assert allocate(4, [900, 90, 10], "equal", least=5) == [2, 1, 1]


# Rounds

JUDGE_LABELS = ["true"] * 8 + ["false", "true"] * 10 + ["false"] * 8 + ["unjudgeable", ""] * 2  # in rank order
TRUTH = [rank <= 24 for rank in range(1, 41)]


def judged_draft(allocation="optimal", n=24, name="pilot", **fields):
    """Create a draft on 40 tuples with JUDGE_LABELS assigned by the judge "lm"."""
    job = make_harvest([(f"head {rank}", f"tail {rank}") for rank in range(1, 41)])
    cell = {"job": job.pk, "n": n, "allocation": allocation}
    draft = create_draft({"name": name, "cells": [cell], "judge": "lm", "judgments_per_task": 1, **fields})
    run = make_judge_run(draft, "lm")
    for harvested, label in zip(job.tuples.order_by("rank"), JUDGE_LABELS, strict=True):
        make_judge_answer(run, harvested.knowledge_tuple, label)
    return draft


def judge_by_truth(round):
    rank = dict(Draw.objects.filter(stratum__round=round).values_list("task__position", "harvested_tuple__rank"))
    judge_all(round, ["true" if TRUTH[rank[position] - 1] else "false" for position in sorted(rank)])


@pytest.mark.django_db
def test_strata_group_tuples_by_judge_label():
    round = open_draft(judged_draft())

    strata = {stratum.judge_label: stratum for stratum in round.strata.all()}
    assert {label: stratum.population for label, stratum in strata.items()} == {"true": 18, "false": 18, "other": 4}
    assert strata["other"].ranks == [37, 38, 39, 40]
    for label, stratum in strata.items():
        draws = list(stratum.draws.select_related("harvested_tuple"))
        assert len(draws) == stratum.sample_size
        assert {draw.inclusion_probability for draw in draws} == {stratum.sample_size / stratum.population}
        assert {draw.harvested_tuple.rank for draw in draws} <= set(stratum.ranks), label
    # N S for the assumed accuracies .9, .3, .5: 5.4, 8.2, 2. The 20 besides the four of "other" are split 8 to 12.
    assert [strata[label].sample_size for label in ("true", "false", "other")] == [8, 12, 4]


@pytest.mark.django_db
def test_report_weights_strata_and_cuts_by_tuple_ranks():
    round = open_draft(judged_draft(n=None))
    judge_by_truth(round)
    # Two of the 18 tuples labeled false stay incomplete: ranks 29 and 31.
    Judgment.objects.filter(task__draws__harvested_tuple__rank__in=(29, 31)).update(is_counted=False)
    round.tasks.filter(draws__harvested_tuple__rank__in=(29, 31)).update(verdict="", n_judgments=0, n_false=0)

    document = build_document(gather_evidence(round))

    [cell] = document["cells"]
    assert {stratum["judge_label"] for stratum in cell["strata"]} == {"true", "false", "other"}
    # By hand: 16 of the 18 tuples labeled true (ranks 1-8, 10, 12, ..., 28) and 8 of the 16 labeled false are true.
    assert cell["accuracy"] == pytest.approx((16 + 18 * 8 / 16) / 40)
    cuts = {entry["cut"]: entry for entry in document["cuts"]}
    # The best 20 are all true. An even spread over ranks 9-36 would put 8 tuples labeled false there instead of 6.
    assert (cuts["share:0.5"]["size"], cuts["share:0.5"]["accuracy"]) == (20, 1.0)
    evidence = gather_evidence(round)
    _, parts = ranked_strata(evidence, drawn_verdicts(evidence)).rate(np.arange(3), np.full(3, 20))
    assert sorted(parts.population.tolist()) == [0, 6, 14]


@pytest.mark.django_db
def test_part_of_harvest_weights_strata_by_contained_tuples():
    round = open_draft(judged_draft(n=None))
    judge_by_truth(round)
    [job] = {stratum.job for stratum in round.strata.all()}
    harvest = judged_harvest(job, type(round).objects.filter(pk=round.pk))
    ranks = dict(job.tuples.filter(rank__gte=17, rank__lte=32).values_list("knowledge_tuple", "rank"))

    n, rate = harvest.part(ranks)

    assert (n, rate.value, rate.low, rate.high) == (16, 0.5, 0.5, 0.5)  # all judged: ranks 17-24 of 17-32


@pytest.mark.django_db
def test_opening_requires_a_finished_judge_run():
    draft = judged_draft()
    run = draft.judge_runs.get()

    Job.objects.filter(pk=run.pk).update(status=Job.Status.QUEUED)
    with refused("JudgeNotReady", match="run lm is queued"):
        open_draft(draft)
    draft.judge_runs.update(name="another")
    with refused("JudgeNotReady", match="has no judge run 'lm'"):
        open_draft(draft)


@pytest.mark.django_db
def test_clone_keeps_judge_name_without_judge_run():
    clone = clone_round(judged_draft())

    assert clone.judge == "lm"
    with refused("JudgeNotReady", match="has no judge run"):
        freeze_round(clone)


@pytest.mark.django_db
def test_answers_of_two_judges_cannot_define_strata():
    draft = judged_draft()
    answer = draft.judge_runs.get().answers.first()
    answer.model_reported = "another"
    answer.save()

    with pytest.raises(SeveralJudges):
        open_draft(draft)


@pytest.mark.django_db
def test_judge_excludes_rank_strata_and_optimal_requires_judge():
    with refused("BadRoundSpec", match=r"cells\[0\]\.allocation: 'optimal'"):
        open_round({"name": "a", "cells": [{"job": make_harvest([("a", "b")]).pk, "n": 1, "allocation": "optimal"}]})

    draft = judged_draft()
    draft.spec["cells"][0]["strata"] = 2
    with refused("BadRoundSpec", match="already define strata"):
        freeze_round(draft)


@pytest.mark.django_db
def test_label_accuracy_is_estimated_from_earlier_rounds_of_same_judge():
    first = open_draft(judged_draft(n=None))
    judge_by_truth(first)
    again = judged_draft(name="again").judge_runs.get()

    assert accuracy_by_label(first.judge_runs.get()) == ASSUMED_ACCURACY
    # 16 of 18 true, 8 of 18 false, 0 of 4 other, plus one accepted and one rejected each.
    assert accuracy_by_label(again) == {"true": 17 / 20, "false": 9 / 20, "other": 1 / 6}
    again.dtype = "nf4"
    assert accuracy_by_label(again) == ASSUMED_ACCURACY  # results of another dtype do not apply
    again.dtype = "float32"
    Round.objects.filter(pk=first.pk).update(source=Round.Source.SIMULATED)
    assert accuracy_by_label(again) == ASSUMED_ACCURACY  # simulated judgments do not apply


@pytest.mark.django_db
def test_different_prompt_counts_as_different_judge():
    first = open_draft(judged_draft(n=None))
    judge_by_truth(first)
    again = judged_draft(name="again").judge_runs.get()
    again.prompt_sha256 = "another"
    again.save()

    assert accuracy_by_label(again) == ASSUMED_ACCURACY
