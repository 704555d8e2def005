"""Comparison API."""

from __future__ import annotations

import pytest

from evaluation.comparisons.harvest_overlap import overlap_of, pairs_of_set, totals_of
from evaluation.reports.services import create_report
from tests import factories
from tests.api import client_of

pytestmark = pytest.mark.django_db

COMPARISONS = "/api/v1/comparisons/"


@pytest.fixture
def api(db):
    return client_of()


def test_reports_can_be_compared_with_each_other_and_the_paper(api):
    rounds = [factories.make_round(4) for _ in range(2)]
    for round in rounds:
        factories.judge_all(round, *[["true"] * 4] * 3)
    a, b = (create_report(round) for round in rounds)

    compared = api.get(f"{COMPARISONS}reports/", {"a": a.pk, "b": b.pk}).json()
    with_paper = api.get(f"{COMPARISONS}reports/", {"a": a.pk, "b": "paper"}).json()

    assert (compared["a"], compared["b"], compared["n_shared"]) == (rounds[0].name, rounds[1].name, 0)
    assert (with_paper["b"], with_paper["shared_verdicts"]) == ("the paper", None)
    same = api.get(f"{COMPARISONS}reports/", {"a": a.pk, "b": a.pk}).json()
    assert same["n_shared"] == 1
    assert len(same["table"]["columns"]) == len(same["table"]["rows"][0])
    for invalid in (
        {},
        {"a": a.pk},
        {"a": "x", "b": "y"},
        {"a": 10**30, "b": 1},
        {"a": "²", "b": 1},
        {"a": 1, "b": 1, "c": 1},
    ):
        assert api.get(f"{COMPARISONS}reports/", invalid).status_code in (400, 404)
    stranger = client_of(factories.make_researcher(project=factories.make_project()))
    assert stranger.get(f"{COMPARISONS}reports/", {"a": a.pk, "b": b.pk}).status_code == 404


def test_harvests_can_be_compared(api):
    relation = factories.make_relation()
    a = factories.make_harvest([("a", "1"), ("b", "2"), ("c", "3")], relation=relation)
    b = factories.make_harvest([("b", "2"), ("c", "3"), ("d", "4")], relation=relation, setting="human")
    other = factories.make_harvest([("a", "1")])

    compared = api.get(f"{COMPARISONS}harvests/", {"a": a.pk, "b": b.pk}).json()

    assert [compared[part] for part in ("only_a", "both", "only_b")] == [1, 2, 1]
    assert compared["jaccard"] == overlap_of(a, b).jaccard
    assert compared["parts"][1] == {
        "name": "both", "n": 2, "n_judged": 0, "is_simulated": False,
        "accuracy": {"value": None, "low": None, "high": None, "reason": "No statement has a verdict."},
    }  # fmt: skip
    for invalid in ({"a": a.pk, "b": other.pk}, {"a": a.pk, "b": 999999}):
        assert api.get(f"{COMPARISONS}harvests/", invalid).status_code == 404
    for invalid in ({"a": a.pk}, {"a": "x", "b": "y"}, {"a": 0, "b": 10**30}):
        assert api.get(f"{COMPARISONS}harvests/", invalid).status_code == 400


def test_cells_can_be_compared_over_relation_set(api):
    relations = [factories.make_relation(relation_set=factories.make_relation_set("places"))]
    relations += [factories.make_relation(relation_set=relations[0].relation_set)]
    model = factories.make_language_model()
    cells = [
        [
            factories.make_harvest(
                [("a", "1"), (f"b {setting}", "2")], relation=relation, setting=setting, language_model=model
            )
            for relation in relations
        ]
        for setting in ("human", "multi")
    ]
    a, b = (harvests[0] for harvests in cells)

    compared = api.get(f"{COMPARISONS}sets/", {"a": a.pk, "b": b.pk}).json()

    totals = totals_of(pairs_of_set(a, b, None))
    assert (compared["totals"]["n_relations"], compared["totals"]["pooled_both"]) == (2, 2)
    assert compared["totals"]["mean_jaccard"] == totals.mean_jaccard
    assert sorted(row["relation"] for row in compared["relations"]) == sorted(relation.path for relation in relations)
    other = factories.make_harvest([("a", "1")])
    assert api.get(f"{COMPARISONS}sets/", {"a": a.pk, "b": other.pk}).status_code == 404


def test_shared_set_comparison_uses_only_own_project_harvests(api):
    shared = factories.make_relation_set("shared", is_shipped=True)
    own_relation, other_relation = (factories.make_relation(relation_set=shared) for _ in range(2))
    model, other_project = factories.make_language_model(), factories.make_project()

    def harvest(setting: str, relation, **fields):
        return factories.make_harvest([("a", "1")], relation=relation, setting=setting, language_model=model, **fields)

    a, b = (harvest(setting, own_relation) for setting in ("human", "multi"))
    for setting in ("human", "multi"):
        harvest(setting, own_relation, project=other_project)
        harvest(setting, other_relation, project=other_project)

    compared = api.get(f"{COMPARISONS}sets/", {"a": a.pk, "b": b.pk}).json()

    assert [(row["a"], row["b"]) for row in compared["relations"]] == [(a.pk, b.pk)]
