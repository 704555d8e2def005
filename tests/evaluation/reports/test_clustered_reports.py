"""Reports of rounds that sample clusters: accuracy, interval by hand, census, and refused intervals."""

import numpy as np
import pytest

from annotation.rounds.services import open_round
from evaluation.evidence.judged_harvests import judged_harvest
from evaluation.reports.document import method_of
from evaluation.reports.services import create_report
from kgharvest.statistics.clusters import design_effects
from kgharvest.statistics.rates import population_rate
from tests.factories import judge_all, make_harvest

pytestmark = pytest.mark.django_db

SUBJECTS = [(f"head {number // 4}", f"tail {number}") for number in range(80)]


def judged_round(n=24, **fields):
    """Judge statements about every third subject as false, and the first statement of every fifth subject."""
    job = make_harvest(SUBJECTS)
    cells = [{"job": job.pk, "n": n}]
    round = open_round({"name": "pilot", "cluster_size": 4, "judgments_per_task": 1, "cells": cells, **fields})
    entities = dict(round.tasks.values_list("position", "entities"))
    numbers = [int(entities[position][1].split()[1]) for position in range(len(entities))]
    judge_all(round, ["false" if number // 4 % 3 == 0 or number % 20 == 0 else "true" for number in numbers])
    return round


def test_interval_of_a_cell_has_the_design_effect_of_its_clusters():
    round = judged_round()
    report = create_report(round)

    [cell] = report.document["cells"]
    draws = list(round.strata.get().draws.values_list("task__verdict", "cluster"))
    is_hit = np.array([verdict == "accepted" for verdict, _ in draws])
    [effect] = design_effects(
        is_hit, np.zeros(24, dtype=int), np.array([cluster for _, cluster in draws]), 1, np.array([80.0])
    )
    rate = population_rate([is_hit.sum() / effect], [24 / effect], [80])
    assert effect > 1.3
    assert (cell["n"], cell["accuracy"]) == (24, pytest.approx(is_hit.mean(), abs=1e-6))
    assert [cell["accuracy_low"], cell["accuracy_high"]] == pytest.approx([rate.low, rate.high], abs=1e-6)
    simple = population_rate([is_hit.sum()], [24], [80])
    assert rate.high - rate.low > simple.high - simple.low


def test_every_table_of_accuracies_prints_the_design_effect(researcher_client):
    report = create_report(judged_round())
    [cell] = report.document["cells"]
    effect = f"{cell['strata'][0]['design_effect']:.2f}"

    page = researcher_client.get(report.get_absolute_url()).text
    files = [researcher_client.get(f"/reports/{report.pk}/report.{suffix}").text for suffix in ("md", "tex", "html")]

    assert all(f"design effect ({effect})" in text for text in (page, *files))


def test_cuts_have_the_design_effects_of_their_statements():
    """Verdicts depend only on the subject, so the design effect of the stratum is large."""
    job = make_harvest([(f"head {number % 20}", f"tail {number}") for number in range(200)])
    cells = [{"job": job.pk, "n": 60}]
    round = open_round({"name": "pilot", "cluster_size": 10, "judgments_per_task": 1, "cells": cells, "seed": 1})
    entities = [entities for _, entities in sorted(round.tasks.values_list("position", "entities"))]
    judge_all(round, ["true" if int(subject.split()[1]) % 2 else "false" for subject, _ in entities])
    columns = ("harvested_tuple__rank", "cluster", "task__verdict")
    rank, cluster, verdict = map(np.array, zip(*round.strata.get().draws.values_list(*columns), strict=True))
    is_hit = verdict == "accepted"

    document = create_report(round).document

    harvest = judged_harvest(job, type(round).objects.all())
    assert [cut["cut"] for cut in document["cuts"]] == ["base:10", "base:100", "share:0.5", "all"]
    for cut in document["cuts"]:
        is_in, size = rank <= cut["size"], cut["size"]
        stratum = np.zeros(is_in.sum(), dtype=int)
        [effect] = design_effects(is_hit[is_in], stratum, cluster[is_in], 1, np.array([float(size)]))
        rate = population_rate([is_hit[is_in].sum() / effect], [is_in.sum() / effect], [size])
        numbers = [rate.value, rate.low, rate.high]
        assert [cut["accuracy"], cut["low"], cut["high"]] == pytest.approx(numbers, abs=1e-6)
        ranks = dict(job.tuples.filter(rank__lte=size).values_list("knowledge_tuple", "rank"))
        of_part = harvest.part(ranks)[1]
        assert of_part[:3] == pytest.approx(numbers)
    [cell] = document["cells"]
    assert [cut["low"], cut["high"]] == [cell["accuracy_low"], cell["accuracy_high"]]


def test_census_of_clusters_has_the_exact_share_and_no_width():
    document = create_report(judged_round(n=None)).document

    [cell] = document["cells"]
    expected = sum(not (number // 4 % 3 == 0 or number % 20 == 0) for number in range(80)) / 80
    assert [cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"]] == pytest.approx([expected] * 3, abs=1e-6)


def test_anytime_valid_intervals_are_not_defined_for_clusters():
    document = create_report(judged_round()).document

    assert document["cells"][0]["every_look"] == {"low": None, "high": None}
    assert document["totals"][0]["every_look"] == {"low": None, "high": None}


def test_method_describes_the_draw_only_if_clusters_were_drawn():
    clustered, simple = (
        create_report(judged_round(name=name, cluster_size=size)).document for name, size in (("a", 4), ("b", None))
    )

    assert ("n_clusters" in clustered, "n_clusters" in simple) == (True, False)
    assert clustered["n_clusters"] >= 6
    assert "divided at random into clusters" in method_of(clustered)
    assert "clusters" not in method_of(simple)
