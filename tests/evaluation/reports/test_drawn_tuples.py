"""Drawn tuples behind a number: selection by verdict, rank, and score, with judgments."""

from copy import deepcopy

import pytest
from django.db.models import F
from django.urls import reverse

from annotation.models import Draw, Judgment, Stratum
from annotation.monitoring import progress
from annotation.rounds.services import open_round
from evaluation.reports import drawn_tuples
from evaluation.reports.drawn_tuples import count_outcomes, in_part
from evaluation.reports.services import create_report
from kgharvest.models import HarvestedTuple, HarvestJob
from tests import factories
from tests.factories import judge_all, make_round

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def report_of_module(module_rows):
    """Report on a harvest of ten tuples. Ranks 1 to 5 are accepted, and ranks 6 to 10 are rejected."""
    round = make_round(10, name="pilot")
    ranked = round.tasks.order_by("draws__harvested_tuple__rank").values_list("pk", flat=True)
    accepted = set(ranked[:5])
    labels = ["true" if task.pk in accepted else "false" for task in round.tasks.order_by("position")]
    judge_all(round, labels, labels, labels)
    return create_report(round)


@pytest.fixture
def report(report_of_module):
    return deepcopy(report_of_module)


def ranks(report, **part) -> list[int]:
    return sorted(
        Draw.objects.filter(in_part(report.round, part)).values_list("harvested_tuple__rank", flat=True)
    )  # fmt: skip


def test_best_share_selects_the_ranks_of_the_curve(report):
    assert ranks(report, best=0.3) == [1, 2, 3]
    assert ranks(report, best=1.0) == list(range(1, 11))
    assert ranks(report, best=0.0) == []


def test_score_range_excludes_harvests_without_scores(report):
    assert ranks(report, score_from=-3) == [1, 2, 3]

    HarvestJob.objects.update(score_scale="order")

    assert ranks(report, score_from=-3) == []


def test_best_share_supports_many_cells_on_sqlite(report):
    [stratum] = report.round.strata.all()
    values = {field.attname: getattr(stratum, field.attname) for field in Stratum._meta.concrete_fields}
    Stratum.objects.bulk_create(
        Stratum(**{**values, "id": None, "setting": f"setting {last}", "rank_to": last}) for last in range(11, 1111)
    )

    assert ranks(report, best=0.3) == [1, 2, 3]


def test_cut_selects_tuples_kept_per_harvest(researcher):
    """base:10 keeps tuples at least a tenth as probable as the tenth. With scores -1, -2, ..., it keeps 12 of 15."""
    round = make_round(15, by=researcher)
    labels = ["true"] * 15
    judge_all(round, labels, labels, labels)
    report = create_report(round, by=researcher)
    HarvestedTuple.objects.update(score=-F("rank"))

    assert ranks(report, cut="base:10") == list(range(1, 13))
    assert ranks(report, cut="base:100") == []  # the harvest has no hundredth tuple
    assert ranks(report, cut="share:0.5") == list(range(1, 9))


def test_score_range_includes_both_ends(report):
    scores = dict(Draw.objects.values_list("harvested_tuple__rank", "harvested_tuple__score"))

    assert ranks(report, score_from=scores[7], score_to=scores[4]) == [4, 5, 6, 7]


def test_outcomes_of_selection_are_counted(report):
    of_best = Draw.objects.filter(in_part(report.round, {"best": 0.6}))

    assert count_outcomes(of_best) == {"accepted": 5, "rejected": 1, "undecided": 0, "incomplete": 0}


def test_unknown_cell_name_selects_no_tuples(report):
    assert ranks(report, model="another") == []


def test_tuples_page_shows_judgments_and_comments(researcher_client, report):
    judgment = Judgment.objects.filter(label="false").first()
    Judgment.objects.filter(pk=judgment.pk).update(comment="Only in winter.")

    page = researcher_client.get(f"/reports/{report.pk}/tuples/?best=0.6&verdict=rejected").text

    assert page.count('class="badge is-rejected"') == 1
    assert "top 60 % of each harvest" in page
    assert f"/annotators/{judgment.annotator.code}/" in page
    rejected = researcher_client.get(f"/reports/{report.pk}/tuples/?verdict=rejected").text
    assert "Only in winter." in rejected


@pytest.mark.parametrize("query", ["best=7", "best=nan", "cut=base:7", "score_from=much", "verdict=maybe"])
def test_invalid_filter_shows_error(researcher_client, report, query):
    response = researcher_client.get(f"/reports/{report.pk}/tuples/?{query}")

    assert response.status_code == 200
    assert 'class="callout error"' in response.text
    assert "No matching tuples" in response.text


def test_api_accepts_the_same_filters(researcher_client, report):
    entries = researcher_client.get(f"/api/v1/reports/{report.pk}/tuples/?best=0.6&outcome=rejected").json()

    assert [entry["rank"] for entry in entries["results"]] == [6]


def test_figure_svg_uses_requested_width(researcher_client, report):
    address = f"/reports/{report.pk}/figures/averages.svg"
    page = researcher_client.get(f"/reports/{report.pk}/?all").text
    drawing = researcher_client.get(address, {"width": 360})
    cached = researcher_client.get(address, {"width": 360}, headers={"if-none-match": drawing["ETag"]})

    assert f'data-plot="/reports/{report.pk}/figures/sizes.svg"' in page
    assert f'data-plot="/reports/{report.pk}/figures/flow' not in page  # this figure is only an image
    assert 'width="360"' in drawing.text
    assert 'class="mark"' in drawing.text
    assert cached.status_code == 304
    assert 'class="mark"' not in researcher_client.get(address, {"width": 360, "off": "0"}).text
    assert 'width="280"' in researcher_client.get(address, {"width": 1}).text
    assert researcher_client.get(f"/reports/{report.pk}/figures/none.svg", {"width": 360}).status_code == 404
    for wrong in ({"width": "wide"}, {"width": 360, "off": "a"}):
        assert researcher_client.get(address, wrong).status_code == 400


# Large lists without sorting


@pytest.fixture
def large_round():
    """Round with a sample of one long harvest and all tuples of a short one."""
    relation = factories.make_relation("r", relation_set=factories.make_relation_set("s"))
    jobs = [
        factories.make_harvest([(f"{name}{n}", "x") for n in range(n_tuples)], relation=relation, setting=setting)
        for name, n_tuples, setting in (("a", 60, "human"), ("b", 7, "top1"))
    ]
    return open_round({"name": "deep", "cells": [{"job": jobs[0].pk, "n": 9}, {"job": jobs[1].pk, "n": None}]})


@pytest.mark.parametrize("size", [1, 3, 5, 16])
def test_best_draws_match_complete_ordering(large_round, size):
    draws = Draw.objects.filter(stratum__round=large_round)
    expected = list(draws.order_by("harvested_tuple__rank", "-pk"))

    best = drawn_tuples.BestDraws(draws, len(expected), [stratum.job_id for stratum in large_round.strata.all()])

    assert [draw for start in range(0, 16, size) for draw in best[slice(start, min(start + size, 16))]] == expected


def test_draws_without_rank_come_last(large_round):
    first = Draw.objects.filter(stratum__round=large_round).order_by("harvested_tuple__rank", "-pk").first()
    Draw.objects.filter(pk=first.pk).update(harvested_tuple=None)
    draws = Draw.objects.filter(stratum__round=large_round)

    best = drawn_tuples.BestDraws(draws, 16, [stratum.job_id for stratum in large_round.strata.all()])

    assert [draw.pk for draw in best[slice(0, 16)]][-1] == first.pk
    assert list(best[slice(0, 4)]) == list(draws.exclude(pk=first.pk).order_by("harvested_tuple__rank", "-pk")[:4])


def test_large_tuples_page_is_always_sorted_by_rank(researcher_client, large_round, monkeypatch):
    report = create_report(large_round)
    address = reverse("evaluation:tuples", args=[report.pk])
    small = researcher_client.get(address)
    monkeypatch.setattr(drawn_tuples, "SORTED_UP_TO", 5)
    monkeypatch.setattr(progress, "LIVE_JUDGMENTS", 0)

    large = researcher_client.get(address, {"sort": "-statement"})
    of_side = researcher_client.get(address, {"setting": "top1", "sort": "-rank"})

    assert list(large.context["page_obj"]) == list(small.context["page_obj"])
    assert (large.context["can_sort"], large.context["counts"]) == (False, small.context["counts"])
    assert large.context["counted_at"] is not None
    assert of_side.context["counts"][""] == 7
    assert "?sort=" not in large.text.partition("<thead>")[2].partition("</thead>")[0]
