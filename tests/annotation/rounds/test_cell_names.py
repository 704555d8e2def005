"""Cell names: cells with equal short names get separate rows, each under its shortest unique name."""

import pytest

from annotation.monitoring.cells import count_cells
from annotation.quality.exclusion import exclusion_effect
from annotation.rounds.plan import plan_round
from annotation.rounds.serializers import round_from_spec
from annotation.rounds.services import open_round
from tests.factories import (
    judge_all,
    make_harvest,
    make_language_model,
    make_project,
    make_relation,
    make_relation_set,
    make_researcher,
)

pytestmark = pytest.mark.django_db

NAMES = [
    ("old/capital", "one/bert", "multi"),
    ("old/capital", "two/bert", "multi"),
    ("river", "one/bert", "multi"),
    ("young/capital", "one/bert", "multi"),
]


@pytest.fixture
def spec() -> dict:
    """Return a spec with four cells of two tuples: relations capital (twice) and river, and two LMs named bert."""
    old, young, river = (
        make_relation(name, relation_set=make_relation_set(set_name))
        for name, set_name in (("capital", "old"), ("capital", "young"), ("river", "rivers"))
    )
    first, second = map(make_language_model, ("one/bert", "two/bert"))
    cells = [(old, first), (old, second), (river, first), (young, first)]
    jobs = [
        make_harvest([(f"{number}", "x"), (f"{number}", "y")], relation=relation, language_model=language_model)
        for number, (relation, language_model) in enumerate(cells)
    ]
    return {"name": "pilot", "cells": [{"job": job.pk, "n": None} for job in jobs]}


def test_round_page_and_exclusion_preview_have_one_row_per_cell(spec):
    round = open_round(spec)
    annotator, *_ = judge_all(round, *[["true"] * 8] * 3)

    of_page, of_preview = count_cells(round), exclusion_effect(annotator)["cells"]

    for cells in (of_page, of_preview):
        assert [(cell["relation"], cell["model"], cell["setting"]) for cell in cells] == NAMES
    assert [cell["accepted"] for cell in of_page] == [2] * 4
    assert [cell["before"]["n"] for cell in of_preview] == [2] * 4


def test_plan_averages_over_relations_of_one_lm(spec):
    plan = plan_round(round_from_spec(spec))

    assert [cell.name for cell in plan.cells] == [" × ".join(name) for name in NAMES]
    assert [(macro.name, macro.n_relations) for macro in plan.macros] == [("one/bert × multi", 3)]


def test_unambiguous_names_are_short(spec):
    round = open_round(spec | {"cells": spec["cells"][2:]})

    names = [(cell["relation"], cell["model"]) for cell in count_cells(round)]

    assert names == [("capital", "bert"), ("river", "bert")]


def test_relation_name_does_not_match_other_projects():
    relation = make_relation("capital", relation_set=make_relation_set("ours"))
    make_relation("capital", relation_set=make_relation_set("theirs", project=make_project()))
    harvest = make_harvest([("a", "x"), ("b", "y")], relation=relation)
    cell = {"relation": "capital", "model": harvest.language_model.name, "setting": harvest.setting, "n": None}

    round = open_round({"name": "pilot", "cells": [cell]}, make_researcher())

    assert round.strata.get().relation == relation
