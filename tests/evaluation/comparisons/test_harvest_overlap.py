"""Overlap of two harvests."""

from __future__ import annotations

import pytest
from django.urls import reverse

from annotation.rounds.services import open_round
from evaluation.comparisons import views
from evaluation.reports.services import create_report
from kgharvest.models import HarvestJob
from tests import factories

pytestmark = pytest.mark.django_db

PAGE = reverse("evaluation:compare_harvests")
SET_PAGE = reverse("evaluation:compare_sets")


@pytest.fixture
def relation():
    return factories.make_relation("prevent")


@pytest.fixture
def a(relation) -> HarvestJob:
    return factories.make_harvest([["dam", "flood"], ["lock", "theft"], ["oil", "rust"]], relation=relation)


@pytest.fixture
def b(relation) -> HarvestJob:
    return factories.make_harvest([["oil", "rust"], ["Dam", "flood"], ["hat", "sunburn"]], relation=relation)


def heads(response) -> list[str]:
    return [row["tuple"].entities[0] for row in response.context["rows"]]


@pytest.mark.parametrize(("part", "expected"), [("only_a", ["lock"]), ("both", ["dam", "oil"]), ("only_b", ["hat"])])
def test_each_part_lists_tuples_by_rank(researcher_client, a, b, part, expected):
    response = researcher_client.get(PAGE, {"a": a.pk, "b": b.pk, "part": part})

    assert heads(response) == expected
    assert {entry["name"]: entry["n"] for entry in response.context["parts"]} == {"only_a": 1, "both": 2, "only_b": 1}
    assert response.context["overlap"].jaccard == 0.5
    assert response.context["overlap"].correlation.spearman == pytest.approx(-1)


def test_accuracy_uses_only_draws_of_the_two_harvests(researcher_client, researcher, relation, a, b):
    other = factories.make_harvest([["hat", "sunburn"]], relation=relation, setting="human")
    first = open_round({"name": "first", "cells": [{"job": a.pk, "n": None}]}, researcher)
    second = open_round({"name": "second", "cells": [{"job": other.pk, "n": None}]}, researcher)
    truth = {"dam": "true", "lock": "false", "oil": "true", "hat": "true"}
    for round in (first, second):
        labels = [truth[task.entities[0]] for task in round.tasks.order_by("position")]
        factories.judge_all(round, labels, labels, labels)

    parts = researcher_client.get(PAGE, {"a": a.pk, "b": b.pk}).context["parts"]

    judged = {part["name"]: (part["judged"].n_judged, part["judged"].accuracy.value) for part in parts}
    assert judged == {"only_a": (1, 0.0), "both": (2, 1.0), "only_b": (0, None)}


def test_rounds_of_other_projects_are_ignored(researcher_client, a, b):
    other_project = factories.make_project()
    round = open_round({"name": "first", "cells": [{"job": a.pk, "n": None}]}, project=other_project)
    factories.judge_all(round, *[["true"] * 3] * 3)

    parts = researcher_client.get(PAGE, {"a": a.pk, "b": b.pk}).context["parts"]

    assert [part["judged"].n_judged for part in parts] == [0, 0, 0]


def test_comparison_query_count_is_constant(researcher_client, relation, django_assert_num_queries):
    jobs = [
        factories.make_harvest([[f"h{n}", "t"] for n in range(start, start + 70)], relation=relation)
        for start in (0, 30)
    ]

    with django_assert_num_queries(
        10
    ):  # session, user, group; a, b; ranks of both; judged rounds of each; rows; choices
        researcher_client.get(PAGE, {"a": jobs[0].pk, "b": jobs[1].pk})


def test_single_harvest_shows_empty_state(researcher_client, a):
    page = researcher_client.get(PAGE, {"a": a.pk}).content.decode()

    assert "Nothing to compare yet" in page


@pytest.mark.parametrize("query", [{}, {"a": "x"}, {"relation": "999999"}, {"a": "9" * 40}])
def test_unknown_harvest_or_relation_is_not_found(researcher_client, query):
    assert researcher_client.get(PAGE, query).status_code == 404


def test_harvests_of_different_relations_cannot_be_compared(researcher_client, a):
    other = factories.make_harvest([["x", "y"]])

    assert researcher_client.get(PAGE, {"a": a.pk, "b": other.pk}).status_code == 404


def test_cells_are_compared_over_relations_of_set(researcher_client, relation):
    second = factories.make_relation("help", relation_set=relation.relation_set)
    lm = factories.make_language_model()
    jobs = {}
    for cell_relation in (relation, second):
        for setting, tuples in (("human", [["a", "b"]]), ("multi", [["c", "d"], ["a", "b"]])):
            jobs[cell_relation, setting] = factories.make_harvest(
                tuples, relation=cell_relation, language_model=lm, setting=setting
            )
    query = {"a": jobs[relation, "human"].pk, "b": jobs[relation, "multi"].pk}

    overlaps = researcher_client.get(SET_PAGE, query).context["overlaps"]

    assert [(overlap.a.relation.name, *overlap.sizes) for overlap in overlaps] == [
        ("help", 0, 1, 1),
        ("prevent", 0, 1, 1),
    ]


def cells_of_a_set(*lists: tuple[str, str]) -> tuple[HarvestJob, HarvestJob]:
    """Create a pair of harvests per relation of a set. Each letter is a tuple. Return the first pair."""
    relation_set, lm = factories.make_relation_set(), factories.make_language_model()
    pairs = []
    for letters in lists:
        cell = {"relation": factories.make_relation(relation_set=relation_set), "language_model": lm}
        human, multi = ([[letter, "x"] for letter in heads] for heads in letters)
        pairs.append(
            (
                factories.make_harvest(human, setting="human", **cell),
                factories.make_harvest(multi, setting="multi", **cell),
            )
        )
    return pairs[0]


def test_set_totals_contain_pooled_and_mean_overlap(researcher_client):
    a, b = cells_of_a_set(("abcde", "abcdf"), ("ab", "ba"), ("a", "b"))

    totals = researcher_client.get(SET_PAGE, {"a": a.pk, "b": b.pk}).context["totals"]

    # Shared tuples of the union: 4 of 6 in the same order, 2 of 2 in reverse order, and 0 of 2.
    assert totals.pooled == (2, 6, 2)
    assert totals.pooled.jaccard == pytest.approx(6 / 10)
    assert totals.mean_jaccard == pytest.approx((4 / 6 + 1 + 0) / 3)
    assert (totals.n_relations, totals.n_correlated) == (3, 2)
    assert totals.mean_spearman == pytest.approx((1 - 1) / 2)
    assert totals.mean_kendall == pytest.approx((1 - 1) / 2)


def test_large_set_totals_are_computed_on_request(researcher_client, monkeypatch):
    monkeypatch.setattr(views, "MOST_ADDED_UNASKED", 11)
    a, b = cells_of_a_set(("abc", "abd"), ("abc", "bca"))

    page = researcher_client.get(SET_PAGE, {"a": a.pk, "b": b.pk})
    assert page.context["totals"] is None
    assert "Show totals of 2 relations" in page.content.decode()

    page = researcher_client.get(SET_PAGE, {"a": a.pk, "b": b.pk, "totals": 1})
    assert page.context["totals"].pooled == (1, 5, 1)


def test_set_comparison_query_count_is_constant(researcher_client, django_assert_max_num_queries):
    a, b = cells_of_a_set(*[("abc", "abd")] * 15)

    with django_assert_max_num_queries(12):
        page = researcher_client.get(SET_PAGE, {"a": a.pk, "b": b.pk})

    assert (len(page.context["overlaps"]), page.context["totals"].n_relations) == (10, 15)


def test_comparison_is_forbidden_for_annotators(client, a, b):
    client.force_login(factories.make_user())

    assert client.get(PAGE, {"a": a.pk, "b": b.pk}).status_code == 403


def test_part_accuracy_equals_report_cell(researcher_client, researcher, relation, b):
    """A and B share no tuple, so all of A is in one part. Its top stratum of four tuples has a different weight."""
    a = factories.make_harvest([[f"h{n}", "t"] for n in range(40)], relation=relation, setting="human")
    round = open_round({"name": "strata", "cells": [{"job": a.pk, "n": 8, "strata": [1, 5]}]}, researcher)
    best = round.strata.order_by("rank_from").first()
    tasks = round.tasks.order_by("position")
    labels = ["true" if task.draws.filter(stratum=best).exists() else "false" for task in tasks]
    factories.judge_all(round, labels, labels, labels)
    [cell] = create_report(round).document["cells"]

    parts = researcher_client.get(PAGE, {"a": a.pk, "b": b.pk}).context["parts"]

    [judged] = [part["judged"] for part in parts if part["name"] == "only_a"]
    assert judged.n_judged == cell["n"] == 8
    assert judged.accuracy[:3] == (cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"])
    assert cell["accuracy"] == pytest.approx(0.1)
