"""Accuracies corrected for annotator errors, from evidence to table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.evidence.evidence import Judgments, StratumKey
from evaluation.reports.document import build_document
from evaluation.reports.sections.modelled_rates import corrected_table
from kgharvest.statistics.annotator_errors import BY_CHANCE, TOO_FEW_OPINIONS
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.rates import EMPTY_STRATUM, NOTHING_COUNTED
from tests.evaluation.evidence_factory import make_evidence
from tests.evaluation.report_documents import make_document

FOUR = {CellKey(relation, "lm", "multi"): (12, 8) for relation in "pqrs"}


def evidence_with_labels(cells, labels_of):
    """Create evidence with the labels that `labels_of(verdict, number)` returns for each statement."""
    evidence = make_evidence(cells)
    labels = [labels_of(verdict, number) for number, verdict in enumerate(evidence.verdict.tolist())]
    rows = [(task, annotator, label) for task, row in enumerate(labels) for annotator, label in enumerate(row)]
    judgments = Judgments(*np.array(rows, dtype=np.int64).T, np.full(len(rows), np.nan))
    return replace(evidence, judgments=judgments)


def unanimous(verdict, number):
    return [verdict] * 3


def test_unanimous_annotators_change_accuracy_little():
    document = build_document(evidence_with_labels(FOUR, unanimous))

    for cell in document["cells"]:
        assert cell["corrected"]["value"] == pytest.approx(cell["accuracy"], abs=0.02)
        assert cell["corrected"]["low"] == pytest.approx(cell["accuracy_low"], abs=0.04)
        assert cell["corrected"]["high"] == pytest.approx(cell["accuracy_high"], abs=0.04)
    assert document["annotator_errors"]["sensitivity"]["low"] > 0.9


def test_corrected_total_is_mean_of_corrected_cells():
    cells = {CellKey("p", "lm", "multi"): (18, 2), CellKey("q", "lm", "multi"): (6, 34)}
    document = build_document(evidence_with_labels(cells, unanimous))

    [total] = document["totals"]
    values = [cell["corrected"]["value"] for cell in document["cells"]]

    assert total["corrected"]["value"] == pytest.approx(np.mean(values), abs=1e-6)
    assert total["corrected"]["low"] < total["macro_accuracy"] < total["corrected"]["high"]


def test_two_judgments_per_statement_cannot_be_corrected():
    document = build_document(evidence_with_labels(FOUR, lambda verdict, number: [verdict] * 2))

    assert {cell["corrected"]["reason"] for cell in document["cells"]} == {TOO_FEW_OPINIONS}
    assert document["annotator_errors"]["reason"] == TOO_FEW_OPINIONS
    [row] = corrected_table(document).rows
    assert row.values[0] == "average"
    assert row.values[-1] == TOO_FEW_OPINIONS


def test_gold_enables_correction_with_two_judgments():
    evidence = evidence_with_labels(FOUR, lambda verdict, number: [verdict] * 2)
    task = np.repeat(np.arange(20), 2) + evidence.n_tasks
    truth = np.arange(20) % 2
    gold = Judgments(task, np.tile([0, 1], 20), np.repeat(truth, 2), np.full(40, np.nan))

    document = build_document(replace(evidence, gold=gold, gold_truth=truth))

    assert document["annotator_errors"]["n_gold"] == 20
    assert document["annotator_errors"]["reason"] is None
    assert document["cells"][0]["corrected"]["low"] < 0.6 < document["cells"][0]["corrected"]["high"]
    assert "20 gold statements" in corrected_table(document).notes[1]


def test_chance_agreement_cannot_be_corrected():
    chance_labels = [[0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0]]

    document = build_document(evidence_with_labels(FOUR, lambda verdict, number: chance_labels[number % 6]))

    assert document["totals"][0]["corrected"] == {"value": None, "low": None, "high": None, "reason": BY_CHANCE}


def test_unjudged_cell_is_excluded_from_corrected_average():
    cells = {CellKey("p", "lm", "multi"): (18, 12), CellKey("q", "lm", "multi"): (0, 0, 0, 10)}
    document = build_document(
        evidence_with_labels(cells, lambda verdict, number: [] if verdict == 3 else unanimous(verdict, number))
    )

    judged, open_cell = document["cells"]
    assert open_cell["corrected"]["reason"] == NOTHING_COUNTED
    assert document["totals"][0]["corrected"]["value"] == pytest.approx(judged["corrected"]["value"], abs=1e-12)


def test_unjudged_stratum_has_no_corrected_rate():
    evidence = evidence_with_labels({CellKey("p", "lm", "multi"): (18, 12)}, unanimous)
    strata = [StratumKey(0, 1, 200, 200), StratumKey(0, 201, 400, 200)]

    [cell] = build_document(replace(evidence, strata=strata))["cells"]

    assert cell["corrected"]["reason"] == EMPTY_STRATUM


def test_corrected_table_contains_both_rates_and_averages():
    table = corrected_table(build_document(evidence_with_labels(FOUR, unanimous)))

    assert [row.values[0] for row in table.rows] == ["p", "q", "r", "s", "average"]
    assert [row.is_summary for row in table.rows] == [False] * 4 + [True]
    assert [column.group for column in table.columns[4:10]] == ["by verdicts"] * 3 + ["corrected"] * 3
    assert table.rows[0].values[4] == 0.6


def test_older_reports_have_no_corrected_table():
    assert corrected_table(make_document()).rows == ()
