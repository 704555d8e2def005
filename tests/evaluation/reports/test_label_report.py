"""`report FILE.csv`: a report on a file of labels, without a database."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from evaluation.evidence.evidence import Judgments, drawn_verdicts
from evaluation.reports.document import report_tables
from evaluation.reports.label_report import document_of_labels
from evaluation.reports.sections.conventions import convention_entries, why_conventions_differ
from kgharvest.errors import ImportRefused
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.rates import population_rate, simple_interval
from tests.evaluation.evidence_factory import make_evidence
from tests.evaluation.label_tables import crowd, dbpedia_records, labels, write_csv

ROOT = Path(__file__).resolve().parents[3]


def conventions(document: dict) -> dict[str, float | None]:
    return {entry["name"]: entry["accuracy"] for entry in document["conventions"]}


def refusal(records: list[dict], **options) -> list[str]:
    with pytest.raises(ImportRefused) as refused:
        document_of_labels(records, **options)
    return [f"{entry.where}: {entry.reason}" for entry in refused.value.entries]


# Without a database


def run_report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KGHARVEST_DATA_DIR": str(folder / "data"), "DEBUG": "1"}
    environment.pop("DATABASE_URL", None)
    command = [sys.executable, "manage.py", "report", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_command_needs_no_database_and_creates_none(tmp_path):
    path = write_csv(tmp_path / "labels.csv", labels({"1": "ttt", "2": "ttf", "3": "ff"}))

    done = run_report(tmp_path, str(path), "-o", str(tmp_path / "report.html"))

    assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path / "report.html") in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "<h1>labels</h1>" in page
    assert ".67" in page
    assert not list((tmp_path / "data").glob("*.sqlite3*"))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "BadOptions"),
        (["labels.csv", "--round", "pilot"], "BadOptions"),
        (["labels.csv", "--judge", "run"], "BadOptions"),
        (["--round", "pilot", "--duplicates", "last"], "BadOptions"),
        (["labels.csv", "-o", "report.pdf"], "BadOptions"),
        (["labels.csv", "--format", "evidence"], "BadOptions"),
        (["labels.csv", "--table", "cells"], "NoSuchTable"),
        (["labels.csv"], "NoSuchFile"),
        (["labels.csv", "--equivalence-margin", "many"], "BadReportOption"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CommandError) as refused:
        call_command("report", *arguments)

    assert refused.value.__cause__.code == code


STARTS = {"html": b"<!doctype html>", "xlsx": b"PK", "tex": b"%", "md": b"# ", "csv": b"source,", "json": b"{"}


@pytest.mark.parametrize("suffix", STARTS)
def test_suffix_of_the_output_sets_the_format_unless_one_is_named(suffix, tmp_path):
    path = write_csv(tmp_path / "labels.csv", labels({"1": "ttt", "2": "ttf", "3": "fft"}))

    call_command("report", str(path), "--output", str(tmp_path / f"report.{suffix.upper()}"))
    assert (tmp_path / f"report.{suffix.upper()}").read_bytes().startswith(STARTS[suffix])

    if suffix in ("csv", "json"):
        call_command("report", str(path), "-o", str(tmp_path / "report.xlsx"), "--format", suffix)
        assert (tmp_path / "report.xlsx").read_bytes().startswith(STARTS[suffix])


def test_a_table_of_the_report_can_be_written(tmp_path):
    path, out = write_csv(tmp_path / "labels.csv", labels({"1": "tt", "2": "tt"})), io.TextIOWrapper(io.BytesIO())

    call_command("report", str(path), "--format", "csv", "--table", "conventions", stdout=out)

    assert out.buffer.getvalue().decode().splitlines()[1].startswith("default,2,1.0,")


# Columns


def test_items_are_one_unnamed_relation_without_population():
    document = document_of_labels(labels({"1": "ttt", "2": "tff", "3": "tf", "4": "t"}))

    [cell] = document["cells"]
    assert (cell["relation"], cell["model"], cell["setting"], cell["population"]) == (None, None, None, None)
    assert (cell["n"], cell["accepted"], cell["rejected"], cell["undecided"]) == (4, 1, 1, 2)
    assert cell["accuracy"] == 0.25
    assert (cell["accuracy_low"], cell["accuracy_high"]) == pytest.approx(simple_interval(1, 4), abs=1e-6)
    assert {table.name for table in report_tables(document)} >= {"relations", "conventions", "agreement", "cells"}


def test_file_and_records_give_the_same_report(tmp_path):
    records = crowd()

    of_file = document_of_labels(write_csv(tmp_path / "labels.csv", records))

    assert of_file == document_of_labels(records) | {"round": "labels"}
    assert [(cell["relation"], cell["setting"], cell["n"]) for cell in of_file["cells"]] == [
        ("helps", "human", 15), ("prevents", "human", 15), ("helps", "multi", 15), ("prevents", "multi", 15),
    ]  # fmt: skip
    assert [comparison["a"] for comparison in of_file["comparisons"]] == ["human"]


def test_entities_are_one_statement_in_any_case_and_with_spaces():
    spellings = ('["Dog", "swim"]', ' [ "dog" , " SWIM "]', '["DOG","swim"]')
    records = [
        {"relation": "can", "entities": entities, "annotator": annotator, "label": "True"}
        for annotator, entities in zip("abc", spellings, strict=True)
    ]

    assert document_of_labels(records)["n_tasks"] == 1


def test_one_label_counts_for_several_cells_and_named_cells_take_precedence():
    judged = labels({"1": "tt", "2": "ff"})
    records = [{**row, "setting": setting} for setting in ("human", "multi", "") for row in judged]

    document = document_of_labels(records)

    assert [(cell["setting"], cell["n"]) for cell in document["cells"]] == [("human", 2), ("multi", 2)]
    assert document["n_judgments"] == 4


def test_bad_rows_are_listed_with_line_column_and_reason(tmp_path):
    rows = [
        {"item": "", "annotator": "a", "label": "True"},
        {"item": "1", "annotator": "", "label": "True"},
        {"item": "2", "annotator": "a", "label": "maybe"},
        *labels({str(number): "x" for number in range(30)}),
    ]

    with pytest.raises(ImportRefused) as refused:
        document_of_labels(write_csv(tmp_path / "labels.csv", rows))

    where = [entry.where for entry in refused.value.entries]
    assert where[:4] == ["line 2, item", "line 3, annotator", "line 4, label", "line 5, label"]
    assert (len(where), refused.value.n_entries) == (20, 33)
    assert "and 13 more" in str(refused.value)


@pytest.mark.parametrize(
    "columns", ["annotator,label", "item,label", "item,annotator", "item,entities,annotator,label"]
)
def test_missing_and_ambiguous_columns_are_refused(columns, tmp_path):
    (tmp_path / "labels.csv").write_text(f"{columns}\n{','.join(['x'] * len(columns.split(',')))}\n")

    with pytest.raises(ImportRefused) as refused:
        document_of_labels(tmp_path / "labels.csv")

    assert [entry.where for entry in refused.value.entries] == ["line 1"]


@pytest.mark.parametrize(("duplicates", "accuracy"), [("first", 1.0), ("last", 0.0)])
def test_repeated_judgments_follow_the_policy(duplicates, accuracy):
    records = [*labels({"1": "tt"}), *labels({"1": "ff"})]

    assert document_of_labels(records, duplicates=duplicates)["cells"][0]["accuracy"] == accuracy
    assert [line.split(":")[0] for line in refusal(records)] == ["row 3, annotator", "row 4, annotator"]


# Strata and clusters


def test_weights_of_strata_weight_every_rate():
    frequent = labels({f"f{number}": "tt" if number < 8 else "ff" for number in range(10)}, stratum="f", weight="0.9")
    rare = labels({f"r{number}": "tt" if number < 2 else "ff" for number in range(10)}, stratum="r", weight="0.1")

    document = document_of_labels([*frequent, *rare])

    expected = population_rate([8, 2], [10, 10], [0, 0], [0.9, 0.1])
    [cell], [total] = document["cells"], document["totals"]
    assert cell["accuracy"] == pytest.approx(0.9 * 0.8 + 0.1 * 0.2)
    assert (cell["accuracy_low"], cell["accuracy_high"]) == pytest.approx((expected.low, expected.high))
    assert cell["weighting"] == "stratified"
    assert total["macro_accuracy"] == pytest.approx(0.74)
    assert conventions(document) == pytest.approx(dict.fromkeys(conventions(document), 0.74))
    rules = {rule["rule"]: rule for rule in document["sensitivity"]["rules"]}
    assert rules
    [of_rules] = document["sensitivity"]["totals"]
    assert of_rules["macro_accuracy"][0] == pytest.approx(0.74)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"weight": "0.5"}, "weights: add up to 1.4"),
        ({"weight": ""}, "row 1, weight: is empty"),
        ({"stratum": ""}, "row 1, stratum: is empty"),
        ({"weight": "0"}, "row 1, weight: is '0'"),
        ({"weight": "1.5"}, "row 1, weight: is '1.5'"),
    ],
)
def test_weights_that_are_no_shares_of_the_population_are_refused(change, error):
    records = [*labels({"1": "t"}, stratum="a", weight="0.1"), *labels({"2": "t"}, stratum="b", weight="0.9")]

    assert refusal([records[0] | change, *records[1:]])[0].startswith(error)


def test_strata_without_any_weight_are_one_error():
    records = labels({str(number): "tt" for number in range(9)}, stratum="a")

    assert [line.split(":")[0] for line in refusal(records)] == ["column weight"]


def test_a_statement_has_one_stratum_weight_and_cluster():
    first = {"item": "1", "annotator": "a", "label": "t", "stratum": "s", "weight": "1", "cluster": "c"}

    for name, other in (("stratum", "u"), ("weight", "0.5"), ("cluster", "d")):
        assert any(
            line.startswith(f"row 2, {name}: is") for line in refusal([first, {**first, "annotator": "b", name: other}])
        )


def test_clusters_widen_intervals_and_leave_shares():
    items = {f"{cluster}{number}": "tt" if cluster % 3 else "ff" for cluster in range(30) for number in range(4)}
    records = labels(items)
    clustered = [{**row, "cluster": row["item"][:-1]} for row in records]

    simple, document = document_of_labels(records), document_of_labels(clustered)

    for name in ("accuracy", "rejection"):
        widths = [part["cells"][0][f"{name}_high"] - part["cells"][0][f"{name}_low"] for part in (simple, document)]
        assert document["cells"][0][name] == pytest.approx(simple["cells"][0][name])
        assert 1.9 * widths[0] < widths[1] < 2.3 * widths[0]  # four statements count as one
    assert conventions(document) == pytest.approx(conventions(simple))
    assert (document["n_clusters"], "n_clusters" in simple) == (30, False)


# Conventions


def test_conventions_by_hand():
    # c contradicts a and b in statements 1 to 5, so the labels of c weigh least.
    items = {"1": "ttf", "2": "fft", "3": "ttf", "4": "fft", "5": "ttf", "6": "t.", "7": "tf", "8": "uu", "9": "fu"}

    document = document_of_labels(labels(items))

    assert conventions(document) == pytest.approx({
        "default": 3 / 9,  # 1, 3, 5
        "true_among_decided": 3 / 5,  # 2 and 4 are rejected
        "unjudgeable_as_false": 3 / 9,
        "by_reliability": 4 / 6,  # 6 has a single label; 7, 8 and 9 are undecided
    })  # fmt: skip
    by_name = {entry["name"]: entry for entry in document["conventions"]}
    assert [by_name[name]["n"] for name in by_name] == [9, 5, 9, 6]
    assert all(entry["accuracy_low"] < entry["accuracy"] < entry["accuracy_high"] for entry in by_name.values())
    assert "4 statements of 9 are undecided" in why_conventions_differ(document)


def test_equal_conventions_need_no_explanation():
    assert why_conventions_differ(document_of_labels(labels({"1": "ttt", "2": "fff", "3": "ttt"}))) == ""


def test_explanation_without_undecided_statements_names_the_weights():
    # a and b always contradict the majority, so c outweighs them in the last statement.
    items = {f"{n}": "ffttt" for n in range(6)} | {f"{n}": "ttfff" for n in range(6, 12)} | {"12": "ttf.."}

    document = document_of_labels(labels(items))

    values = conventions(document)
    assert values["default"] == values["true_among_decided"] == pytest.approx(7 / 13, abs=1e-6)
    assert values["by_reliability"] == pytest.approx(6 / 13, abs=1e-6)
    assert "undecided" not in why_conventions_differ(document)
    assert "by_reliability" in why_conventions_differ(document)


def test_incomplete_statements_of_a_round_are_not_decided_by_reliability():
    """Statements 4 and 5 have fewer than the three required judgments; the file has no required number."""
    labels = [(0, 0, 1), (1, 1, 0), (0, 0, 0), (0,), (1, 1), ()]  # by statement: 0 is True, 1 is False
    task = np.repeat(range(6), list(map(len, labels)))
    judgments = Judgments(
        task,
        np.array([annotator for of_task in labels for annotator in range(len(of_task))]),
        np.array([label for of_task in labels for label in of_task]),
        np.full(len(task), np.nan),
    )
    evidence = make_evidence({CellKey("helps", "lm", "human"): [2, 1, 0, 3]}, judgments=judgments,
                             verdict=[0, 1, 0, 3, 3, 3])  # fmt: skip

    without_k = replace(evidence, verdict=np.array([0, 1, 0, 2, 1, 3]), wanted=np.array(list(map(len, labels))))

    of_round, of_file = (
        {entry["name"]: entry for entry in convention_entries(of, drawn_verdicts(of))}["by_reliability"]
        for of in (evidence, without_k)
    )

    assert (of_round["n"], of_round["accuracy"]) == (3, pytest.approx(2 / 3))
    assert (of_file["n"], of_file["accuracy"]) == (5, pytest.approx(3 / 5))
    expected = population_rate([2], [3], [60])
    assert (of_round["accuracy_low"], of_round["accuracy_high"]) == (expected.low, expected.high)


def test_default_is_the_accuracy_of_a_single_cell_with_its_interval():
    document = document_of_labels(labels({str(number): "tt" if number % 4 else "ff" for number in range(40)}))

    [cell], default = document["cells"], document["conventions"][0]
    for name in ("accuracy", "accuracy_low", "accuracy_high"):
        assert default[name] == cell[name]


def test_default_of_several_cells_is_their_mean():
    document = document_of_labels(crowd())

    assert document["conventions"][0]["accuracy"] == pytest.approx(np.mean([c["accuracy"] for c in document["cells"]]))


def test_dbpedia_study_gives_its_published_accuracy_by_reliability(public_data, tmp_path):
    path = write_csv(tmp_path / "laymen.csv", dbpedia_records(public_data))
    out = io.TextIOWrapper(io.BytesIO())

    call_command("report", str(path), "--duplicates", "last", stdout=out)

    document = json.loads(out.buffer.getvalue())
    published = {entry["name"]: entry for entry in document["conventions"]}["by_reliability"]
    assert published["accuracy"] == pytest.approx(0.83, abs=0.02)
    assert (published["accuracy_low"], published["accuracy_high"]) == pytest.approx((0.81, 0.85), abs=0.01)
    assert conventions(document)["default"] < 0.7 < 0.85 < conventions(document)["true_among_decided"]
    [note] = [note for table in report_tables(document) if table.name == "conventions" for note in table.notes]
    assert note == why_conventions_differ(document)
    assert note.count(".") <= 5  # one sentence with two shares


# Judges


def judged(n_items: int, n_judged: int, annotators: str = "abc"):
    people = labels({str(number): "ttt" if number % 4 else "fff" for number in range(n_judged)}, annotators)
    judge = [{"item": str(number), "label": "true" if number % 4 else "false"} for number in range(n_items)]
    return people, judge


def test_judge_labels_of_more_statements_narrow_the_interval():
    people, judge = judged(400, 40)

    document = document_of_labels(people, judge)

    [cell] = document["cells"]
    assert (cell["population"], cell["judge"]["n_labelled"]) == (400, 400)
    assert cell["judge"]["accuracy"] == pytest.approx(0.75)
    alone, with_judge = (
        cell["accuracy_high"] - cell["accuracy_low"],
        cell["judge"]["accuracy_high"] - cell["judge"]["accuracy_low"],
    )
    assert with_judge < alone / 2
    assert document["judge_card"]["relations"][0]["sensitivity"]["value"] == 1
    assert (document["curves"], document["cuts"]) == ([], [])
    assert not any("ranked" in note for note in document["notes"])


def test_judged_share_by_label_of_the_judge_shows_selected_statements():
    """Of 300 statements that the judge labels true, 30 are judged; of 100 false ones, 10. Then, only true ones are."""
    people, judge = judged(400, 40)
    chosen = [row for row in people if int(row["item"]) % 4]

    documents = [document_of_labels(rows, judge) for rows in (people, chosen)]

    assert [[tuple(entry.values()) for entry in document["judged_by_label"]] for document in documents] == [
        [("true", 300, 30, 30), ("false", 100, 10, 10), ("other", 0, 0, 0)],
        [("true", 300, 30, 30), ("false", 100, 0, 0), ("other", 0, 0, 0)],
    ]
    assert "true: 30 of 30 drawn, among 300 tuples; false: 0 of 0 drawn, among 100 tuples" in documents[1]["notes"][0]


def test_report_without_judge_says_that_selection_cannot_be_seen():
    document = document_of_labels(judged(0, 40)[0])

    assert document["judged_by_label"] is None
    assert "Without the labels of a judge for all tuples, this cannot be seen." in document["notes"][0]


def test_judge_labels_of_several_cells_name_their_lm():
    people = [{**row, "model": model, "item": f"{model} {row['item']}"} for model in "ab" for row in judged(0, 20)[0]]
    judge = [{**row, "model": model, "item": f"{model} {row['item']}"} for model in "ab" for row in judged(50, 0)[1]]
    unnamed = [{"item": row["item"], "label": row["label"]} for row in judge]

    assert [cell["population"] for cell in document_of_labels(people, judge)["cells"]] == [50, 50]
    assert [cell["population"] for cell in document_of_labels(people, unnamed)["cells"]] == [None, None]


def test_judge_labels_of_the_judged_statements_give_the_judge_card_only():
    people, judge = judged(40, 40)

    document = document_of_labels(people, judge)

    assert document["cells"][0]["population"] is None
    assert document["cells"][0]["accuracy_low"] < document["cells"][0]["accuracy_high"]
    assert document["judge"] is None
    assert document["judge_card"]["n_verdicts"] == 40


def test_judge_labels_that_contradict_or_miss_all_statements_are_refused():
    people, judge = judged(10, 10)

    assert refusal(people, judge_labels=[*judge, {"item": "1", "label": "false"}])[0].startswith(
        "row 11, label: is false"
    )
    assert "no statement" in refusal(people, judge_labels=[{"item": "elsewhere", "label": "true"}])[0]


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_reports_with_judge_labels_are_written(suffix, tmp_path):
    people, judge = judged(60, 20)
    files = [write_csv(tmp_path / "people.csv", people), write_csv(tmp_path / "judge.csv", judge)]

    call_command("report", str(files[0]), "--judge-labels", str(files[1]), "-o", str(tmp_path / f"report.{suffix}"))

    assert (tmp_path / f"report.{suffix}").stat().st_size > 100
