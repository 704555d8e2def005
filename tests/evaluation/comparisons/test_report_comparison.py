"""Two reports laid beside each other: which relations and LMs are the same."""

from evaluation.comparisons.report_comparison import report_side, shared_relations
from evaluation.reports.sections.comparisons import Side


def document(*cells: tuple[str, str]) -> dict:
    return {"cells": [{"relation": relation, "model": model, "setting": "multi"} for relation, model in cells]}


def test_a_relation_goes_by_its_name_without_set_case_and_separators():
    ours = report_side("ours", document(("need_A_to_do_B", "hub/lm")))
    paper = report_side("paper", document(("human/NEED A TO DO B", "lm")))

    assert shared_relations(ours, paper) == ["need_a_to_do_b"]
    assert ours.cells.keys() == paper.cells.keys() == {Side("lm", "multi")}


def test_relations_of_one_name_in_two_sets_stay_apart():
    both = report_side("both", document(("a/prevent", "lm"), ("b/prevent", "lm")))

    assert both.cells[Side("lm", "multi")].keys() == {"a/prevent", "b/prevent"}


def test_lms_whose_names_end_alike_stay_apart():
    both = report_side("both", document(("prevent", "roberta-large"), ("prevent", "FacebookAI/roberta-large")))

    assert both.cells.keys() == {Side("roberta-large", "multi"), Side("FacebookAI/roberta-large", "multi")}
