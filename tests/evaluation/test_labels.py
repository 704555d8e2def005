"""The Python API of labels: the numbers of `report FILE.csv` as typed objects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evaluation.labels import accuracy, agreement, compare
from evaluation.reports.label_report import document_of_labels
from kgharvest.errors import DomainError, ImportRefused
from tests.evaluation.label_tables import crowd, labels, write_csv

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def document() -> dict:
    return document_of_labels(crowd())


def equal(row, entry: dict) -> bool:
    """Return whether all fields that the report's entry contains have its values."""
    return all(entry[name] == value for name, value in asdict(row).items() if name in entry)


def test_accuracy_equals_the_report(document):
    result = accuracy(crowd())

    assert all(equal(*pair) for pair in zip(result.cells, document["cells"], strict=True))
    assert all(equal(*pair) for pair in zip(result.totals, document["totals"], strict=True))
    assert [asdict(convention) for convention in result.conventions] == document["conventions"]
    default = document["conventions"][0]
    assert (result.value, result.low, result.high) == tuple(
        default[name] for name in ("accuracy", "accuracy_low", "accuracy_high")
    )
    assert result.n == document["n_complete"]


def test_single_labels_are_warned_of(recwarn):
    accuracy(crowd())
    assert not recwarn

    with pytest.warns(UserWarning, match="by_reliability"):
        result = accuracy(labels({"1": "t", "2": "t", "3": "f"}))

    by_name = {convention.name: convention.accuracy for convention in result.conventions}
    assert (result.value, by_name["by_reliability"]) == (0.0, pytest.approx(2 / 3, abs=1e-6))


def test_agreement_equals_the_report(document):
    result = agreement(crowd())

    alpha = document["alpha"]
    assert (result.value, result.low, result.high, result.n) == (*(alpha[k] for k in ("value", "low", "high")), 60)
    assert result.alpha_without_unjudgeable == document["alpha_without_unjudgeable"]["value"]
    everything, *parts = result.parts
    assert (everything.percent_agreement, everything.gwet_ac1) == (
        document["percent_agreement"], document["gwet_ac1"]["value"],
    )  # fmt: skip
    for part, entry in zip(parts, document["agreement"], strict=True):
        assert (part.by, part.relation, part.setting, part.n_judgments) == (
            entry["by"], entry["relation"], entry["setting"], entry["n_judgments"],
        )  # fmt: skip
        assert (part.alpha, part.alpha_low, part.alpha_high) == tuple(
            entry["alpha"][k] for k in ("value", "low", "high")
        )


def test_comparisons_equal_the_report(document):
    result = compare(crowd())

    assert (result.n, result.reason) == (1, None)
    assert all(equal(*pair) for pair in zip(result.pairs, document["comparisons"], strict=True))
    assert result.pairs[0].difference == document["comparisons"][0]["difference"]


def test_files_frames_and_records_give_the_same_result(tmp_path):
    records = crowd()

    of_records = accuracy(records)

    assert accuracy(write_csv(tmp_path / "labels.csv", records)) == of_records
    assert accuracy(str(tmp_path / "labels.csv")) == of_records
    assert accuracy(pd.DataFrame(records)) == of_records


def test_frames_may_hold_booleans_lists_and_missing_values():
    frame = pd.DataFrame({
        "relation": "can", "entities": [["dog", "swim"], ["dog", "swim"], ("cat", "bark")],
        "annotator": [1, 2, 1], "label": pd.array([True, True, False], dtype="boolean"),
        "seconds": pd.array([1.5, pd.NA, pd.NA], dtype="Float64"), "model": None,
    })  # fmt: skip
    frame["entities"] = frame["entities"].map(np.array)

    [cell] = accuracy(frame).cells

    assert (cell.relation, cell.model, cell.accepted, cell.undecided) == ("can", None, 1, 1)


def test_undefined_numbers_have_a_reason():
    assert compare(labels({"1": "tt"})).reason
    single = agreement(labels({"1": "t", "2": "t"}))
    assert single.value is None
    assert single.reason
    assert single.reason in single.sentence()


def test_errors_name_the_row():
    with pytest.raises(ImportRefused, match="row 2, label"):
        accuracy([*labels({"1": "t"}), {"item": "1", "annotator": "b", "label": "maybe"}])
    with pytest.raises(DomainError, match="cannot be read"):
        accuracy("missing.csv")
    with pytest.raises(DomainError, match=r"newest.*error, first, last"):
        accuracy(labels({"1": "t"}), duplicates="newest")


def test_results_are_frozen_and_convert_to_frames_and_html():
    for result in (accuracy(crowd()), agreement(crowd()), compare(crowd())):
        with pytest.raises(FrozenInstanceError):
            result.reason = ""
        frame = result.to_pandas()
        assert len(frame) == len(result.rows())
        assert list(frame.columns) == list(asdict(result.rows()[0]))
        assert result._repr_html_().count("<tr>") == 1 + len(result.rows())
        assert repr(result) == f"<{type(result).__name__}: {result.sentence()}>"
    assert "&lt;b&gt;" in accuracy([{**row, "relation": "<b>"} for row in labels({"1": "tt"})])._repr_html_()
    assert compare(labels({"1": "tt"}))._repr_html_()


def test_without_pandas_the_error_names_the_fix(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(DomainError, match="pip install pandas") as refusal:
        accuracy(crowd()).to_pandas()
    assert refusal.value.code == "NeedsPandas"


def test_frame_without_rows_has_the_columns():
    assert "p_holm" in compare(labels({"1": "tt"})).to_pandas().columns


def test_long_results_show_their_first_rows():
    result = accuracy([{**row, "relation": row["item"]} for row in labels({str(n): "tt" for n in range(30)})])

    html = result._repr_html_()

    assert html.count("<tr>") == 1 + 20
    assert "to_pandas()" in html


def test_neither_django_nor_celery_nor_pandas_is_imported(tmp_path):
    path = write_csv(tmp_path / "labels.csv", crowd())
    code = (
        "import sys; from evaluation.labels import accuracy, agreement, compare\n"
        "for function in (accuracy, agreement, compare): function(sys.argv[1])._repr_html_()\n"
        "print(*[name for name in ('django', 'celery', 'pandas', 'torch') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
