"""The interval of each cell that holds at every look."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.evidence.evidence import Judgments, StratumKey
from evaluation.reports.document import build_document, report_tables
from evaluation.reports.sections.modelled_rates import every_look_entries
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.sequential import SeenStrata, anytime_average, anytime_interval
from tests.evaluation.evidence_factory import make_evidence

CELL = CellKey("capital_of", "lm", "multi")


def strata(*rows: tuple[int, int, int, int]) -> SeenStrata:
    """rows: n, least, most and population."""
    return SeenStrata(*np.array(rows).T)


def interval_of(evidence, *judge):
    [entry] = every_look_entries(evidence, [{}] * len(evidence.cells), *judge)
    return entry["every_look"]["low"], entry["every_look"]["high"]


def test_it_is_the_confidence_sequence_of_the_cells_strata():
    evidence = make_evidence({CELL: (30, 8, 2)}, strata=[StratumKey(0, 1, 400, 400)])

    assert interval_of(evidence) == anytime_interval(strata((40, 30, 30, 400)))


def test_statements_without_a_label_were_not_seen_yet():
    evidence = make_evidence({CELL: (30, 8, 2, 25)}, strata=[StratumKey(0, 1, 400, 400)])

    assert interval_of(evidence) == anytime_interval(strata((40, 30, 30, 400)))


def test_a_disputed_statement_counts_against_both_limits():
    """One label of three is missing: True and False may become either; two Trues are accepted already."""
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


def test_a_judges_groups_are_strata_of_their_own():
    evidence = make_evidence({CELL: (30, 10)}, strata=[StratumKey(0, 1, 400, 400)])
    group = (evidence.verdict[evidence.draws.task] > 0).astype(np.int64)  # a judge who is always right

    with_judge = interval_of(evidence, group, np.array([[300, 100, 0]]))

    expected = anytime_interval(strata((40, 30, 30, 400)), strata((30, 30, 30, 300), (10, 0, 0, 100), (0, 0, 0, 0)))
    assert with_judge == expected
    assert np.diff(with_judge) < np.diff(interval_of(evidence))


def test_an_average_is_over_its_relations_and_of_one_relation_it_is_the_cells():
    other, alone = CELL._replace(relation="language_of"), CELL._replace(setting="human")
    sizes = [StratumKey(number, 1, 400, 400) for number in range(3)]
    document = build_document(make_evidence({CELL: (30, 10), other: (20, 20), alone: (30, 10)}, strata=sizes))

    looks = {total["setting"]: tuple(total["every_look"].values()) for total in document["totals"]}
    seen = strata((40, 30, 30, 400), (40, 20, 20, 400))
    assert looks["multi"] == anytime_average(seen, np.array([0.5, 0.5]), np.array([40, 40]))
    assert (
        looks["human"]
        == tuple(document["cells"][2]["every_look"].values())
        == tuple(anytime_interval(strata((40, 30, 30, 400))))
    )
    [table] = [table for table in report_tables(document) if table.name == "every-look"]
    assert [row.values[0] for row in table.rows] == [*(cell["relation"] for cell in document["cells"]), "average"]


def test_cells_nobody_judged_or_of_unknown_population_have_none():
    evidence = make_evidence(
        {CELL: (0, 0, 0, 5), CELL._replace(setting="human"): (3, 2)},
        strata=[StratumKey(0, 1, 50, 50), StratumKey(1, None, None, None)],
    )

    entries = every_look_entries(evidence, [{}, {}])
    assert [entry["every_look"] for entry in entries] == [{"low": None, "high": None}] * 2


@pytest.mark.parametrize("n_judged", [40, 0])
def test_the_table_has_the_cells_that_have_one(n_judged):
    document = build_document(make_evidence({CELL: (n_judged, 0, 0, 1)}))

    assert ("every-look" in {table.name for table in report_tables(document)}) == bool(n_judged)
