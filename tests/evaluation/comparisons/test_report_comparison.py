"""Comparison of two reports: matching of relations and LMs, tests, and tables."""

from evaluation.comparisons.report_comparison import (
    comparisons_between,
    difference_table,
    report_comparison_table,
    report_side,
    shared_relations,
)
from evaluation.reports.sections.comparisons import Side


def document(*cells: tuple[str, str]) -> dict:
    return {"cells": [{"relation": relation, "model": model, "setting": "multi"} for relation, model in cells]}


def test_relations_match_ignoring_set_case_and_separators():
    first = report_side("ours", document(("need_A_to_do_B", "hub/lm")))
    paper = report_side("paper", document(("human/NEED A TO DO B", "lm")))

    assert shared_relations(first, paper) == ["need_a_to_do_b"]
    assert first.cells.keys() == paper.cells.keys() == {Side("lm", "multi")}


def test_equal_relation_names_in_one_report_stay_separate():
    both = report_side("both", document(("a/prevent", "lm"), ("b/prevent", "lm")))

    assert both.cells[Side("lm", "multi")].keys() == {"a/prevent", "b/prevent"}


def test_lms_with_equal_short_names_stay_separate():
    both = report_side("both", document(("prevent", "roberta-large"), ("prevent", "FacebookAI/roberta-large")))

    assert both.cells.keys() == {Side("roberta-large", "multi"), Side("FacebookAI/roberta-large", "multi")}


def counted_document(n_true: int, n: int, n_relations: int = 3) -> dict:
    stratum = {"population": n, "accepted": n_true, "n": n}
    cell = {"model": "lm", "setting": "multi", "accuracy": n_true / n, "strata": [stratum]}
    return {"cells": [{"relation": f"r{number}", **cell} for number in range(n_relations)]}


def test_reports_on_few_relations_are_compared_by_statements():
    first, second = report_side("ours", counted_document(18, 20)), report_side("theirs", counted_document(8, 20))

    [compared] = comparisons_between(first, second, 0)

    assert (compared["unit"], compared["p_sign_flip"]) == ("statements", None)
    assert compared["p"] == compared["p_holm"] < 0.001
    assert 0.3 < compared["low"] < 0.5 < compared["high"] < 0.65


def test_census_reports_still_have_comparison_interval():
    first, second = report_side("ours", counted_document(18, 20)), report_side("theirs", counted_document(17, 20))

    [compared] = comparisons_between(first, second, 0)

    assert compared["low"] < 0 < compared["high"]
    assert compared["p"] > 0.05


def test_reports_without_counts_are_compared_by_relations():
    document = counted_document(18, 20)
    for cell in document["cells"]:
        del cell["strata"]

    [compared] = comparisons_between(report_side("a", document), report_side("b", counted_document(8, 20)), 0)

    assert compared["unit"] == "relations"


def printed_document() -> dict:
    printed = ("accuracy", "rejection", "accuracy_low", "accuracy_high", "n")
    cell = {"relation": "can", "model": "lm", "setting": "multi", **dict.fromkeys(printed, 0.5)}
    return {"cells": [cell, {**cell, "relation": "may"}]}


def test_demonstrators_keep_their_mark():
    marked = {**printed_document(), "demonstrators": ["lm"]}
    a, b = report_side("pilot", marked), report_side("paper", printed_document())

    table = report_comparison_table(a, b)

    assert [column.title for column in table.columns[1:]] == ["lm* · multi", "lm · multi"]
    assert any("Demonstrator" in note for note in table.notes)
    assert difference_table(a, b).columns[1].title == "lm* · multi − lm · multi"
    assert not any("Demonstrator" in note for note in report_comparison_table(b, b).notes)


def test_design_effects_of_clusters_widen_the_difference_of_reports():
    simple, clustered = counted_document(36, 40), counted_document(36, 40)
    for cell in clustered["cells"]:
        cell["strata"] = [{**stratum, "design_effect": 2.0} for stratum in cell["strata"]]
    other = report_side("theirs", counted_document(20, 40))

    [narrow], [wide], [half] = (
        comparisons_between(report_side("ours", document), other, 0)
        for document in (simple, clustered, counted_document(18, 20))
    )

    assert wide["difference"] == narrow["difference"]
    assert (wide["low"], wide["high"], wide["p"]) == (half["low"], half["high"], half["p"])
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
