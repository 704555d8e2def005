"""Paired comparison of two rounds on the same tuples."""

import pytest
from scipy.stats import binomtest

from annotation.rounds.services import open_round
from evaluation.comparisons.report_comparison import SharedVerdicts, shared_verdicts
from evaluation.reports.services import create_report
from tests.factories import judge_all, make_harvest, make_round

pytestmark = pytest.mark.django_db

N = 9


@pytest.fixture
def rounds(researcher):
    """Two rounds on one harvest. The first accepts all tuples; the second accepts one and has one without a verdict."""
    job = make_harvest([(f"head {number}", f"tail {number}") for number in range(N)])
    spec = {"cells": [{"job": job.pk, "n": None}], "judgments_per_task": 1}
    first, second = (open_round({**spec, "name": name}, by=researcher) for name in ("first", "second"))
    judge_all(first, ["true"] * N)
    ranks = {task.position: task.draws.get().harvested_tuple.rank for task in second.tasks.all()}
    judge_all(second, ["true" if ranks[position] == N else "false" for position in range(N)])
    second.tasks.filter(draws__harvested_tuple__rank=1).update(n_wanted=2, verdict="")
    return first, second


def test_shared_tuples_are_compared_with_exact_mcnemar_test(rounds):
    shared = shared_verdicts(*rounds)

    assert shared[:4] == (1, 7, 0, 0)
    assert shared.p == pytest.approx(binomtest(7, 7).pvalue, abs=1e-12)  # 2 / 2^7
    assert shared.in_words("first", "second") == (
        "8 tuples have a verdict in both rounds: first alone accepts 7, second alone 0 "
        "(McNemar's exact p = .016). first accepts more."
    )
    assert shared_verdicts(*reversed(rounds))[:4] == (1, 0, 7, 0)


def test_similar_rounds_are_not_distinguishable():
    assert SharedVerdicts(5, 2, 1, 4, 1.0).in_words("a", "b").endswith("p = 1.00). The rounds are not distinguishable.")
    assert SharedVerdicts(5, 0, 0, 4, None).in_words("a", "b").endswith("accept the same tuples.")


def test_same_or_disjoint_rounds_are_not_compared(rounds):
    first, _ = rounds

    assert shared_verdicts(first, first) is None
    assert shared_verdicts(first, make_round([("another head", "another tail")])) is None


def test_report_comparison_page_shows_shared_verdicts(rounds, researcher_client):
    a, b = (create_report(round) for round in rounds)

    page = researcher_client.get("/reports/compare/", {"a": a.pk, "b": b.pk}).text

    assert "first alone accepts 7, second alone 0" in page
    assert "The same tuples" not in researcher_client.get("/reports/compare/", {"a": a.pk, "b": "paper"}).text


def test_mcnemar_test_does_not_apply_to_rounds_with_clusters(rounds):
    first, second = rounds
    second.cluster_size = 3

    shared = shared_verdicts(first, second)

    assert (shared[:4], shared.p) == ((1, 7, 0, 0), None)
    assert "first alone accepts 7, second alone 0" in shared.in_words("first", "second")
    assert "exact p" not in shared.in_words("first", "second")
