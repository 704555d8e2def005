"""Pack verification: altered files fail checksums, and altered values differ from recomputed numbers."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet
import pytest
from django.core.management import call_command

from annotation.quality.exclusion import exclude_annotator
from evaluation.evidence.tables import TABLES, Columns, RowTable, n_rows
from kgharvest.contrib.publishing.packs.archive import (
    SUMS,
    Pack,
    PackFile,
    checksum_differences,
    sums_of,
    write_pack,
)
from kgharvest.contrib.publishing.packs.pack import pack_files
from kgharvest.contrib.publishing.packs.row_files import BadPack, read_rows, row_files
from kgharvest.contrib.publishing.packs.verification import (
    REPORT,
    TABLES_OF_AVERAGES,
    DocumentComparison,
    Verification,
    rendered_tables,
    verify_contents,
    verify_pack,
    with_students_intervals,
)
from kgharvest.management.command import Error
from kgharvest.statistics import rates
from tests.kgharvest.contrib.publishing.packs.studies import STUDIES
from tests.programs import run_program
from tests.refusals import refused

pytestmark = pytest.mark.django_db


def problems_of(contents: Mapping[str, bytes]) -> list[str]:
    try:
        return list(verify_contents(contents).problems)
    except BadPack as refusal:
        return [str(refusal)]


def with_value(contents: Mapping[str, bytes], table: str, column: str, line: int, value) -> dict[str, bytes]:
    """Return the pack with one value of a JSONL file replaced."""
    path = f"rows/{table}.jsonl"
    lines = contents[path].decode().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | {column: value})
    return {**contents, path: ("\n".join(lines) + "\n").encode()}


def with_parquet(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the pack with Parquet files rebuilt from its JSONL files."""
    return {**contents, **{file.path: file.content for file in row_files(read_rows(contents))}}


def altered_value(value, kind: str):
    if kind == "boolean":
        return not value
    if kind in ("integer", "number"):
        return 1 if value is None else value + 1
    if kind == "datetime":
        return "2001-02-03T04:05:06+00:00"
    return {"true": "false", "false": "true", "counted": "late"}.get(value, f"{value} altered")


BY_STUDY = pytest.mark.parametrize(
    ("study", "tables"),
    [
        ("of_samples", None),
        ("of_clusters", {"clusters"}),
        ("with_gold", {"statements", "judgments"}),
        ("with_judge", {"judge_runs", "judge_answers"}),
    ],
)


def tables_of(contents: Mapping[str, bytes], tables: set[str] | None) -> Iterator[tuple[RowTable, Columns]]:
    """Yield the nonempty tables named in `tables`, or all nonempty tables if `tables` is None."""
    rows = read_rows(contents)
    for table in TABLES:
        if n_rows(rows[table.name]) and (tables is None or table.name in tables):
            yield table, rows[table.name]


@BY_STUDY
def test_altered_cells_are_detected_in_every_table(study, tables, pack_of):
    contents = pack_of(study)
    undetected = []
    for table, rows in tables_of(contents, tables):
        column = table.columns[len(table.columns) // 2]
        value = altered_value(rows[column.name][0], column.type)
        if not problems_of(with_value(contents, table.name, column.name, 0, value)):
            undetected.append((table.name, column.name))

    assert undetected == []


@pytest.mark.exhaustive
@BY_STUDY
def test_altered_cells_are_detected_in_every_column(study, tables, pack_of):
    contents = pack_of(study)
    undetected = [
        (table.name, column)
        for table, rows in tables_of(contents, tables)
        for column in undetected_columns(contents, table, rows, table.columns)
    ]

    assert undetected == []


def undetected_columns(contents: Mapping[str, bytes], table: RowTable, rows: Columns, columns) -> list[str]:
    """Alter one cell of each column and return the columns that verification does not report.

    Verification is slow, so one pack contains all alterations. If some are not reported, the columns are split in half.
    """
    packed = contents
    for column in columns:
        line = (7 * table.columns.index(column)) % n_rows(rows)
        packed = with_value(packed, table.name, column.name, line, altered_value(rows[column.name][line], column.type))
    problems = problems_of(packed)
    named = {line.partition(":")[0].rpartition(", ")[2] for line in problems if line.startswith(f"{table.parquet}, ")}
    if named >= {column.name for column in columns}:
        return []
    if len(columns) == 1:
        return [] if problems else [columns[0].name]
    half = len(columns) // 2
    halves = (columns[:half], columns[half:])
    return [name for part in halves for name in undetected_columns(contents, table, rows, part)]


def exhaustive_case(*values):
    """Return a parametrize case for exhaustive runs; a default case covers the same table."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("table", "column", "value", "path"),
    [
        ("judgments", "label", "unjudgeable", "agreement"),
        exhaustive_case("judgments", "status", "late", "n_judgments"),
        exhaustive_case("judgments", "annotator", "nobody", "rows of this package yield no report"),
        exhaustive_case("judgments", "statement", 99_999, "is out of range"),
        exhaustive_case("judgments", "judged_at", "2001-02-03T04:05:06+00:00", "conduct.dates.first_judgment_at"),
        exhaustive_case("statements", "n_wanted", 5, "verdict"),
        ("statements", "verdict", "undecided", "verdict"),
        exhaustive_case("statements", "adjudication", "true", "conduct.adjudications.n_statements"),
        ("annotators", "status", "paused", "conduct.people.n_paused"),
        ("strata", "population", 40, "population"),
        exhaustive_case("draws", "rank", 1000, "curves"),
        exhaustive_case("draws", "score", 9.0, "curves"),
        ("draws", "inclusion_probability", 0.9, "inclusion_probability"),
        exhaustive_case("harvests", "model", "another/lm", "cuts[0].model"),
        ("harvests", "n_tuples", 25, "conduct.cells"),
        ("harvested", "left_out", "hidden", "conduct.cells"),
        ("prompts", "weight", 0.5, "prompts[0].weight"),
    ],
)
def test_altered_rows_are_detected_despite_matching_files_and_checksums(table, column, value, path, of_samples):
    contents = with_parquet(with_value(of_samples, table, column, 0, value))

    problems = problems_of(contents)

    assert any(path in line for line in problems), problems[:5]


@pytest.fixture
def of_samples(pack_of) -> dict[str, bytes]:
    return pack_of("of_samples")


def with_altered_number(table: bytes) -> bytes:
    """Return a CSV table with 0.01 added to or subtracted from its first decimal number."""
    altered, n = re.subn(rb"(?<=,0\.\d)\d", lambda digit: b"%d" % abs(int(digit[0]) - 1), table, count=1)
    assert n == 1
    return altered


def test_altered_numbers_in_report_and_tables_are_detected(of_samples):
    document = json.loads(of_samples[REPORT])
    document["cells"][0]["accuracy"] += 0.01
    [in_report, *tables] = problems_of({**of_samples, REPORT: json.dumps(document).encode()})
    assert in_report.startswith("cells[0].accuracy: packed 0.")
    assert any(line.startswith("tables/cells.csv, line 2: packed") for line in tables)

    table = with_altered_number(of_samples["tables/settings.csv"])
    assert problems_of({**of_samples, "tables/settings.csv": table})[0].startswith("tables/settings.csv, line ")


def test_altered_audit_log_entries_are_detected(of_samples):
    lines = of_samples["audit.jsonl"].decode().splitlines()
    entries = [json.loads(line) for line in lines]
    number = next(n for n, entry in enumerate(entries) if "judgments.sealed" in (entry["hashed"] or ""))
    forged = entries[number] | {"hashed": entries[number]["hashed"].replace("judgments", "judgements")}
    log = "\n".join([*lines[:number], json.dumps(forged), *lines[number + 1 :]])

    assert "hash does not match" in problems_of({**of_samples, "audit.jsonl": log.encode()})[0]
    assert "the report names" in problems_of({**of_samples, "audit.jsonl": "\n".join(lines[:-1]).encode()})[0]
    assert "the report names" in problems_of({**of_samples, "audit.jsonl": b""})[0]


def test_checksums_name_missing_extra_and_altered_files(of_samples, tmp_path):
    write_pack([PackFile(name, content, "", "") for name, content in of_samples.items()], tmp_path / "pack")
    assert list(checksum_differences(Pack(tmp_path / "pack"))) == []

    (tmp_path / "pack/report.json").write_bytes(of_samples["report.json"] + b" ")
    (tmp_path / "pack/more.txt").touch()
    (tmp_path / "pack/tables/cells.csv").unlink()
    assert sorted(checksum_differences(Pack(tmp_path / "pack"))) == [
        "more.txt: not in SHA256SUMS",
        "report.json: altered; the checksum differs",
        "tables/cells.csv: missing",
    ]


def test_verification_lists_numbers_it_cannot_recompute(pack_of):
    verification = verify_contents(pack_of("with_reference"))

    assert list(verification.problems) == []
    text = "\n".join(verification.lines())
    assert f"{verification.n_numbers:,} numbers recomputed" in text
    assert "Not recomputed: novelty" in text


def test_another_version_can_change_wording_but_not_numbers(of_samples):
    document = json.loads(of_samples[REPORT]) | {"code_version": "0.0.1"}
    cells = of_samples["tables/cells.csv"].replace(b"accuracy", b"share accepted", 1)
    rephrased = {**of_samples, REPORT: json.dumps(document).encode(), "tables/cells.csv": cells}

    verification = verify_contents(rephrased)
    assert list(verification.problems) == []
    assert "0.0.1" in "\n".join(verification.lines())

    document["cells"][0]["accuracy"] += 0.01
    assert problems_of({**rephrased, REPORT: json.dumps(document).encode()})[0].startswith("cells[0].accuracy")
    settings = with_altered_number(of_samples["tables/settings.csv"])
    assert problems_of({**rephrased, "tables/settings.csv": settings})


def test_packages_of_older_versions_may_lack_keys(of_samples):
    document = json.loads(of_samples[REPORT])
    del document["conventions"], document["closed_at_half_width"]
    older = document | {"code_version": "0.0.1"}
    rest = {path: content for path, content in of_samples.items() if not path.startswith("tables/")}

    def packed(document):
        tables = {file.path: file.content for file in rendered_tables(document)}
        return {**rest, **tables, REPORT: json.dumps(document).encode()}

    assert problems_of(packed(older)) == []
    assert any(line.startswith("conventions") for line in problems_of(packed(document)))


def as_of_older_version(document: Mapping) -> dict:
    """Return the document with keys that later versions do not compute."""
    stability = {"k": 3, "flips": 0.25, "low": 0.1, "high": 0.4, "reason": None}
    return {
        **document,
        "code_version": "0.0.1",
        "verdict_stability": stability,
        "agreement": [{**part, "verdict_stability": stability} for part in document["agreement"]],
        "cells": [{**cell, "pooled": {"value": 0.5, "low": 0.3, "high": 0.7}} for cell in document["cells"]],
        "annotators": [{**annotator, "mace": {"competence": 0.75}} for annotator in document["annotators"]],
        "annotator_models": [*document["annotator_models"], {"model": "mace", "accepted": 17}],
    }


def test_removed_keys_of_older_versions_are_named_and_not_compared(of_samples):
    document = json.loads(of_samples[REPORT])
    older = as_of_older_version(document)

    verification = verify_contents({**of_samples, REPORT: json.dumps(older).encode()})
    assert list(verification.problems) == []
    names = "agreement.verdict_stability, annotators.mace, cells.pooled, verdict_stability"
    assert f"Not recomputed, because this version does not compute them: {names}." in verification.notes

    current = {**older, "code_version": document["code_version"]}
    paths = [problem.split(":")[0] for problem in problems_of({**of_samples, REPORT: json.dumps(current).encode()})]
    assert {"verdict_stability", "annotators[0].mace", "annotator_models (entries)"} <= set(paths)
    older["annotators"][0]["other"] = 1
    assert problems_of({**of_samples, REPORT: json.dumps(older).encode()})[0].startswith("annotators[0].other")


def test_removed_rows_and_columns_of_older_tables_are_not_compared(of_samples):
    document = json.loads(of_samples[REPORT]) | {"code_version": "0.0.1"}
    tables = {path: of_samples[f"tables/{path}.csv"] for path in ("agreement", "annotators")}

    def with_competence(table: bytes) -> bytes:
        header, *rows = table.splitlines(keepends=True)
        return header.replace(b"specificity", b"specificity,competence", 1) + b"".join(
            row.rstrip() + b",0.625\r\n" for row in rows
        )

    older = {
        **of_samples,
        REPORT: json.dumps(document).encode(),
        "tables/annotators.csv": with_competence(tables["annotators"]),
        "tables/agreement.csv": tables["agreement"] + b"Fleiss' kappa,0.4,,,,,9,\r\nverdict flip rate,0.2,,,,,,\r\n",
    }

    assert older["tables/annotators.csv"] != tables["annotators"]
    assert problems_of(older) == []
    altered = with_competence(with_altered_number(tables["annotators"]))
    assert problems_of({**older, "tables/annotators.csv": altered})
    other = older["tables/agreement.csv"].replace(b"Fleiss' kappa", b"Scott's pi")
    assert problems_of({**older, "tables/agreement.csv": other})
    current = {**older, REPORT: of_samples[REPORT]}
    assert problems_of(current)


def test_packages_with_students_intervals_of_averages_verify(of_samples):
    document = json.loads(of_samples[REPORT]) | {"code_version": "0.0.1"}
    totals = with_students_intervals(document, document["cells"])["totals"]
    older = {**document, "totals": [without(total, "similar_relations") for total in totals]}
    tables = rendered_tables(with_students_intervals(document, document["cells"], "macro_{}_these_{}"))
    older_tables = {file.path: file.content for file in tables if file.path in TABLES_OF_AVERAGES}
    rest = {path: content for path, content in of_samples.items() if path != "tables/similar.csv"}
    contents = {**rest, **older_tables, REPORT: json.dumps(older).encode()}

    assert older_tables["tables/settings.csv"] != of_samples["tables/settings.csv"]
    assert problems_of(contents) == []
    settings = with_altered_number(older_tables["tables/settings.csv"])
    assert problems_of({**contents, "tables/settings.csv": settings})
    older["totals"][0]["macro_accuracy_low"] = 0.123
    assert problems_of({**contents, REPORT: json.dumps(older).encode()})[0].startswith("totals[0].macro_accuracy_low")


def test_packages_without_intervals_of_thin_strata_verify(pack_of, monkeypatch):
    contents = pack_of("of_strata")
    monkeypatch.setattr(rates, "MANY_STRATA", 1)
    monkeypatch.setattr(rates, "FEW_DRAWS", 1000)
    older = json.loads(contents[REPORT]) | {"code_version": "0.0.1"}

    assert problems_of({**contents, REPORT: json.dumps(older).encode()}) == []
    assert problems_of(contents)[0].startswith("cells[0].accuracy_low")
    older["cells"][0]["accuracy_low"] = 0.123
    assert problems_of({**contents, REPORT: json.dumps(older).encode()})[0].startswith("cells[0].accuracy_low")


def without(entry: Mapping, key: str) -> dict:
    return {name: value for name, value in entry.items() if name != key}


def test_sentences_are_compared_only_within_a_version():
    documents = {"reason": "No verdict yet.", "model": "lm"}, {"reason": "Nothing was judged.", "model": "other"}

    assert [row.path for row in DocumentComparison(*documents).differences] == ["reason", "model"]
    assert [row.path for row in DocumentComparison(*documents, same_wording=False).differences] == ["model"]


def test_output_shows_twenty_differences_and_counts_the_rest():
    lines = list(Verification([f"n{number}" for number in range(25)]).lines())

    assert lines == [*(f"n{number}" for number in range(20)), "and 5 more"]


def test_documents_are_compared_number_by_number():
    comparison = DocumentComparison(
        {"a": [1, 2.0, {"b": None}], "said": {"n": 3}, "gone": 1, "name": "x"},
        {"a": [1, 2.0 + 1e-13, {"b": 0.5}], "said": {"n": 4}, "name": "x"},
        repeated=["said"],
    )

    assert [str(difference) for difference in comparison.differences] == [
        "a[2].b: packed None, recomputed 0.5",
        "said.n: packed 3, recomputed 4",
        "gone: packed 1, recomputed missing",
    ]
    assert (comparison.n_numbers, comparison.n_repeated) == (4, 1)


def test_changed_round_is_not_packed(tmp_path, without_figures):
    report = STUDIES["incomplete"](tmp_path)
    report.refresh_from_db()
    exclude_annotator(report.round.annotators.first(), "guesses")

    with refused("RoundChanged", match=str(report.pk)):
        pack_files(report)


@pytest.mark.parametrize("value", ["1" + 400 * "0", exhaustive_case("-1" + 400 * "0")])
def test_numbers_beyond_float_range_are_detected(of_samples, value):
    document = json.loads(of_samples[REPORT])
    document["cells"][0]["accuracy"] = int(value)

    assert problems_of({**of_samples, REPORT: json.dumps(document).encode()})[0].startswith("cells[0].accuracy")
    assert "invalid seconds" in problems_of(with_value(of_samples, "judgments", "seconds", 0, int(value)))[0]


def test_times_before_year_one_are_detected(of_samples):
    contents = with_value(of_samples, "judgments", "judged_at", 0, "0001-01-01T00:00:00+23:59")

    assert "expected datetime" in problems_of(contents)[0]


@pytest.mark.parametrize(("old", "new"), [(b",", b"\r,"), (b"source", 200_000 * b"s")])
def test_invalid_csv_tables_are_detected(of_samples, old, new):
    table = of_samples["tables/cells.csv"]

    [problem] = problems_of({**of_samples, "tables/cells.csv": table.replace(old, new, 1)})

    assert problem.startswith("tables/cells.csv: cannot be read as CSV")


def test_text_missing_differs_from_a_missing_value(of_samples):
    document = json.loads(of_samples[REPORT]) | {"added": "missing"}

    [problem] = problems_of({**of_samples, REPORT: json.dumps(document).encode()})

    assert problem == "added: packed 'missing', recomputed missing"


def test_oversized_parquet_is_rejected_before_decompression(of_samples):
    table = pyarrow.parquet.read_table(io.BytesIO(of_samples["rows/statements.parquet"]))
    place = table.schema.get_field_index("text")
    long = pyarrow.array(["a" * 1_000_000] * table.num_rows)
    pyarrow.parquet.write_table(table.set_column(place, "text", long), file := io.BytesIO(), use_dictionary=False)

    [problem] = problems_of({**of_samples, "rows/statements.parquet": file.getvalue()})

    assert len(file.getvalue()) < 10_000_000
    assert problem.startswith("rows/statements.parquet decompresses to")


def test_parquet_with_wrong_types_is_detected(of_samples):
    table = pyarrow.parquet.read_table(io.BytesIO(of_samples["rows/statements.parquet"]))
    place = table.schema.get_field_index("is_gold")
    file = io.BytesIO()
    pyarrow.parquet.write_table(table.set_column(place, "is_gold", table["is_gold"].cast("int64")), file)

    [problem] = problems_of({**of_samples, "rows/statements.parquet": file.getvalue()})

    assert problem.startswith("rows/statements.parquet, types: ")


def test_deeply_nested_json_is_rejected(of_samples, monkeypatch):
    def nested(path: str) -> dict[str, bytes]:
        document = json.loads(of_samples[path])
        document["conduct"]["design"]["more"] = "deep"
        return {path: json.dumps(document).replace('"deep"', 2000 * "[" + 2000 * "]").encode()}

    def parse(text: str):
        """Parse deeply nested JSON like Python 3.12 or later, beyond the recursion limit of Python functions."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(10_000)
        try:
            return json.loads(text)
        finally:
            sys.setrecursionlimit(limit)

    monkeypatch.setattr("kgharvest.contrib.publishing.packs.verification.parse_json", parse)

    [refusal] = problems_of({**of_samples, **nested(REPORT), **nested("rows/round.json")})

    assert "nested too deeply" in refusal


def test_altered_preregistration_is_detected(of_samples, pack_of):
    contents = pack_of("preregistered")
    altered_one = {**contents, "preregistration.json": contents["preregistration.json"].replace(b"Nobody", b"Anybody")}

    for pack in (altered_one, {**of_samples, "preregistration.json": b"{}"}):
        assert problems_of(pack) == ["preregistration.json: is not the frozen document whose hash report.json contains"]


# Commands


def write_contents(contents: Mapping[str, bytes], output: Path) -> None:
    """Write a pack with new checksums."""
    files = [PackFile(path, content, "", "") for path, content in contents.items() if path != SUMS]
    write_pack([*files, sums_of(files)], output)


def test_verify_command_needs_no_database_or_data(pack_of, tmp_path):
    contents = pack_of("with_judge")
    forged = with_value(contents, "judgments", "label", 3, "unjudgeable")
    write_contents(contents, tmp_path / "pack.zip")
    write_contents(forged, tmp_path / "forged")
    (tmp_path / "empty").mkdir()

    def verify(path: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KGHARVEST_DATA_DIR": str(tmp_path / "empty")}
        environment.pop("DATABASE_URL", None)
        return run_program(["manage.py", "verify", str(path)], environment)

    process = verify(tmp_path / "pack.zip")
    assert (process.returncode, process.stderr) == (0, "")
    assert "numbers recomputed from the raw rows; all match the report." in process.stdout
    assert not (tmp_path / "empty" / "kgharvest.sqlite3").exists()

    process = verify(tmp_path / "forged")
    assert (process.returncode, process.stdout) == (1, "")
    assert "packed " in process.stderr
    assert process.stderr.splitlines()[-1].startswith("and ")


def test_verify_rejects_a_path_without_a_pack(tmp_path):
    with pytest.raises(Error, match=r"none\.zip"):
        call_command("verify", str(tmp_path / "none.zip"))


def test_pack_command_rejects_invalid_options_before_packing(tmp_path):
    report = STUDIES["without_judgments"](tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    for options, reason in [
        ({"report": 999}, "999"),
        ({"output": tmp_path / "full"}, "full"),
        ({"licence": "all rights\nreserved"}, "all rights.*SPDX"),
        ({"author": ["\n"]}, r"'\\n'.*Family, Given"),
    ]:
        with pytest.raises(Error, match=reason):
            call_command("pack", **{"report": report.pk, "output": tmp_path / "pack.zip", **options})
    assert not (tmp_path / "pack.zip").exists()


def test_folder_and_zip_have_the_same_files(tmp_path, without_figures):
    report = STUDIES["without_judgments"](tmp_path)
    for name in ("pack", "pack.zip"):
        call_command("pack", report=report.pk, output=tmp_path / name)

    assert dict(Pack(tmp_path / "pack")) == dict(Pack(tmp_path / "pack.zip"))
    assert list(verify_pack(tmp_path / "pack").problems) == []


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:N", "mps", "auto"])
def test_column_description_lists_every_device(device):
    [description] = [column.description for table in TABLES for column in table.columns if column.name == "device"]

    assert re.search(rf"\b{device}\b", description)
