"""Anytime-valid intervals of report cells."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.evidence.evidence import Judgments, StratumKey, cells_of, drawn_verdicts, macro_closing
from evaluation.reports.document import build_document, method_of
from evaluation.reports.sections.modelled_rates import every_look_entries
from kgharvest.statistics.fixed_width import interval_at_stop
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.sequential import SeenStrata, anytime_average, anytime_interval
from tests.evaluation.evidence_factory import make_evidence

CELL = CellKey("capital_of", "lm", "multi")


def strata(*rows: tuple[int, int, int, int]) -> SeenStrata:
    """rows: n, minimum accepted, maximum accepted, and population."""
    return SeenStrata(*np.array(rows).T)


def interval_of(evidence, *judge):
    [entry] = every_look_entries(evidence, [{}] * len(evidence.cells), *judge)
    return entry["every_look"]["low"], entry["every_look"]["high"]


def test_cell_interval_is_confidence_sequence_of_its_strata():
    evidence = make_evidence({CELL: (30, 8, 2)}, strata=[StratumKey(0, 1, 400, 400)])

    assert interval_of(evidence) == anytime_interval(strata((40, 30, 30, 400)))


def test_unlabeled_statements_are_ignored():
    evidence = make_evidence({CELL: (30, 8, 2, 25)}, strata=[StratumKey(0, 1, 400, 400)])

    assert interval_of(evidence) == anytime_interval(strata((40, 30, 30, 400)))


def test_disputed_statement_widens_both_limits():
    """One of three labels is missing. T and F can still get either verdict, and T and T are already accepted."""
    evidence = make_evidence({CELL: (30, 10)}, strata=[StratumKey(0, 1, 400, 400)])
    last_of = {task: np.flatnonzero(evidence.judgments.task == task)[-1] for task in (0, 1, 31)}
    kept = np.setdiff1d(np.arange(len(evidence.judgments.task)), list(last_of.values()))

    open_evidence = make_evidence(
        {CELL: (30, 10)},
        strata=[StratumKey(0, 1, 400, 400)],
        judgments=Judgments(*(column[kept] for column in evidence.judgments)),
    )
    counts = open_evidence.counts[[0, 1, 31]].tolist()

    assert counts == [[2, 0, 0], [2, 0, 0], [1, 1, 0]]
    assert interval_of(open_evidence) == anytime_interval(strata((40, 30, 31, 400)))


def test_judge_groups_are_separate_strata():
    evidence = make_evidence({CELL: (30, 10)}, strata=[StratumKey(0, 1, 400, 400)])
    group = (evidence.verdict[evidence.draws.task] > 0).astype(np.int64)  # a judge without errors

    with_judge = interval_of(evidence, group, np.array([[300, 100, 0]]))

    expected = anytime_interval(strata((40, 30, 30, 400)), strata((30, 30, 30, 300), (10, 0, 0, 100), (0, 0, 0, 0)))
    assert with_judge == expected
    assert np.diff(with_judge) < np.diff(interval_of(evidence))


def test_average_interval_of_one_relation_equals_its_cell():
    other, single = CELL._replace(relation="language_of"), CELL._replace(setting="human")
    sizes = [StratumKey(number, 1, 400, 400) for number in range(3)]
    document = build_document(make_evidence({CELL: (30, 10), other: (20, 20), single: (30, 10)}, strata=sizes))

    looks = {total["setting"]: tuple(total["every_look"].values()) for total in document["totals"]}
    seen_strata = strata((40, 30, 30, 400), (40, 20, 20, 400))
    assert looks["multi"] == pytest.approx(
        anytime_average(seen_strata, np.array([0.5, 0.5]), np.array([40, 40])), abs=1e-6
    )
    assert (
        looks["human"]
        == tuple(document["cells"][2]["every_look"].values())
        == tuple(anytime_interval(strata((40, 30, 30, 400))))
    )


def test_unjudged_or_unknown_population_cells_have_no_interval():
    evidence = make_evidence(
        {CELL: (0, 0, 0, 5), CELL._replace(setting="human"): (3, 2)},
        strata=[StratumKey(0, 1, 50, 50), StratumKey(1, None, None, None)],
    )

    entries = every_look_entries(evidence, [{}, {}])
    assert [entry["every_look"] for entry in entries] == [{"low": None, "high": None}] * 2


# Rounds that close at a target half-width


def test_report_of_a_round_closed_at_a_half_width_uses_the_interval_at_the_stop():
    strata = [StratumKey(0, 1, 400, 400)]
    evidence = make_evidence({CELL: (90, 8, 2)}, strata=strata, closed_at=0.08)

    document = build_document(evidence)

    [cell], [total] = document["cells"], document["totals"]
    closing = macro_closing(cells_of(evidence, drawn_verdicts(evidence)), 0.08)
    assert closing is not None
    low, high = interval_at_stop(closing.center, 0.08)
    assert closing.half_width < 0.08
    assert (cell["accuracy_low"], cell["accuracy_high"]) == pytest.approx((low, high), abs=1e-6)
    for name in ("accuracy", "macro_accuracy", "macro_accuracy_these", "weighted_accuracy"):
        assert (total[f"{name}_low"], total[f"{name}_high"]) == (cell["accuracy_low"], cell["accuracy_high"])
    assert document["closed_at_half_width"] == 0.08
    assert "fixed-width interval" in method_of(document)
    assert any("± 8.0 points" in note for note in document["notes"])
    other = build_document(make_evidence({CELL: (90, 8, 2)}, strata=strata))
    assert other["closed_at_half_width"] is None
    assert other["cells"][0]["accuracy_low"] != cell["accuracy_low"]


def test_closing_applies_to_the_average_over_relations_but_not_to_each_relation():
    other = CellKey("shares_border_with", "lm", "multi")
    cells = {CELL: (40, 8, 2), other: (30, 15, 5)}
    closed, fixed = (build_document(make_evidence(cells, closed_at=margin)) for margin in (0.1, None))

    assert [cell["accuracy_low"] for cell in closed["cells"]] == [cell["accuracy_low"] for cell in fixed["cells"]]
    [total] = closed["totals"]
    assert total["macro_accuracy_high"] - total["macro_accuracy_low"] == pytest.approx(0.2, abs=2e-6)


def test_census_of_a_closed_round_has_no_width():
    evidence = make_evidence({CELL: (6, 3, 1)}, strata=[StratumKey(0, 1, 10, 10)], closed_at=0.1)

    [cell] = build_document(evidence)["cells"]

    assert cell["accuracy_low"] == cell["accuracy_high"] == 0.6
