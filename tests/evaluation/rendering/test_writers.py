"""Report files in all formats, written from handwritten documents."""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import openpyxl
import pytest
from django.core.management import CommandError, call_command

from evaluation.evidence.evidence import Judgments
from evaluation.models import Report
from evaluation.reports.document import build_document, report_tables
from evaluation.reports.files import DOCUMENT_FORMATS as FORMATS
from evaluation.reports.sections.rates import relation_table
from kgharvest.events.models import Event
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.tables.formats import csv_text
from kgharvest.tables.latex import latex_text, parts_of
from kgharvest.tables.table import Column, Row, Table, split_rates, without_empty_columns
from tests.evaluation.evidence_factory import make_evidence
from tests.evaluation.report_documents import TWO_SETTINGS, make_annotator, make_comparison, make_document
from tests.factories import judge_all, make_round


def test_relation_table_has_relation_rows_and_lm_setting_columns():
    table = relation_table(make_document())

    assert table.groups == [("", 1), ("big", 2), ("small", 1)]
    assert [column.title for column in table.columns] == ["relation", "human", "multi", "multi"]
    assert [texts for _, texts in table.texts()] == [
        ["can_do", ".50 / .40\n(.24 to .76, n = 10)", ".80 / .20\n(.49 to .94, n = 10)", "–"],
        ["capital", "–", "–", "1.00 / .00\n(.72 to 1.00, n = 10)"],
        ["average", ".50 / .40\n(n = 10)", ".80 / .20\n(n = 10)", "1.00 / .00\n(n = 10)"],
    ]


def test_cells_with_incomplete_statements_have_footnote():
    table = relation_table(make_document({("can_do", "big", "multi"): (1, 1, 0, 3)}))

    assert next(table.texts()) == (False, ["can_do", ".50 / .50†\n(.09 to .91, n = 2)"])
    assert any(note.startswith("† ") for note in table.notes)


def test_split_rates_have_one_number_per_cell():
    table = split_rates(relation_table(make_document()))

    assert [(column.group, column.title) for column in table.columns[1:6]] == [
        ("big · human", title) for title in ("accepted", "rejected", "low", "high", "n")
    ]
    assert table.rows[0].values[1:3] == (0.5, 0.4)
    assert table.rows[0].values[11:] == (None,) * 5


# Markdown and LaTeX


def test_markdown_contains_title_and_relation_table():
    lines = FORMATS["md"].write(make_document()).splitlines()

    assert lines[0] == r"# pilot\_1"
    assert lines[4:9] == [
        r"| relation | big · human | big · multi | small · multi |",
        r"| --- | ---: | ---: | ---: |",
        r"| can\_do | .50 / .40 (.24 to .76, n = 10) | .80 / .20 (.49 to .94, n = 10) | – |",
        r"| capital | – | – | 1.00 / .00 (.72 to 1.00, n = 10) |",
        r"| average | .50 / .40 (n = 10) | .80 / .20 (n = 10) | 1.00 / .00 (n = 10) |",
    ]


def test_latex_groups_columns_by_lm():
    text = FORMATS["tex"].write(make_document())

    assert r" & \multicolumn{2}{c}{big} & \multicolumn{1}{c}{small} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in text
    first, second = (
        rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{rates}\\\scriptsize ({basis}, n = 10)\end{{tabular}}"
        for rates, basis in ((".50 / .40", ".24 to .76"), (".80 / .20", ".49 to .94"))
    )
    assert rf"can\_do & {first} & {second} & -- \\" in text


def test_latex_fits_four_settings_with_intervals_into_one_part():
    cells = {("capital_of", "big", setting): (30, 20, 0, 0) for setting in ("human", "autoprompt", "top1", "multi")}

    assert len(list(parts_of(relation_table(make_document(cells))))) == 1


def test_line_breaks_in_texts_are_spaces():
    table = Table("t", "T", (Column("text"),), (Row(("one\ntwo",)),))

    assert list(table.texts()) == [(False, ["one two"])]


def test_latex_escapes_special_characters():
    assert latex_text(r"a_b & 50% \x {y} ~^#$") == (
        r"a\_b \& 50\% \textbackslash{}x \{y\} \textasciitilde{}\textasciicircum{}\#\$"
    )


def test_latex_escapes_leading_brackets_and_stars():
    assert latex_text("[2ex] *\nb") == "{[}2ex{]} {*} b"


def test_latex_environments_are_balanced():
    cells = {(f"r{number}", "big", "multi"): (1, 0, 0, 0) for number in range(60)}

    text = FORMATS["tex"].write(make_document(cells))

    for environment in set(re.findall(r"\\begin{(\w+)}", text)):
        assert text.count(f"\\begin{{{environment}}}") == text.count(f"\\end{{{environment}}}")
    assert "longtable" in text


NEEDS_TEX = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="TeX is not installed")


def compile_latex(tables: str, folder) -> str:
    """Compile the tables and return the LaTeX log. Raises CalledProcessError if they do not compile."""
    packages = r"\usepackage{booktabs,longtable}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}"
    source = rf"\documentclass{{article}}{packages}\begin{{document}}{tables}\end{{document}}"
    (folder / "report.tex").write_text(source)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    for _ in range(2):  # longtable measures its columns in the first run
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "report.log").read_text(errors="replace")


def too_wide(log: str) -> list[str]:
    """Return the widths by which lines exceed the margin visibly, in points."""
    widths = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", log)
    return [width for width in widths if float(width) > 5]


@NEEDS_TEX
@pytest.mark.parametrize("n_relations", [2, 60])
def test_latex_compiles(tmp_path, n_relations):
    cells = {(f"[r_{number}] &", "b|g", "mul~ti"): (1, 0, 0, 0) for number in range(n_relations)}

    log = compile_latex(FORMATS["tex"].write(make_document(cells)), tmp_path)

    assert not too_wide(log)


def wide_evidence(n_relations: int):
    """Return evidence on four LMs in two settings with 24 annotators. Every third cell has low agreement."""
    lms = ("FacebookAI/roberta-large", "bert-large-cased", "distilbert-base-uncased", "embedded")
    cells = {
        CellKey(f"has_the_property_{number}", lm, setting): [(6, 2, 1, 0), (3, 4, 0, 1), (5, 1, 2, 0)][number % 3]
        for lm in lms
        for setting in ("human", "multi")
        for number in range(n_relations)
    }
    evidence = make_evidence(cells, annotators=[f"annotator-{number:02}" for number in range(24)])
    judgments = evidence.judgments
    return replace(evidence, judgments=judgments._replace(annotator=judgments.task % 8 * 3 + judgments.annotator))


@NEEDS_TEX
@pytest.mark.parametrize("n_relations", [3, 50])
def test_wide_report_tables_fit_the_page(tmp_path, n_relations):
    document = build_document(wide_evidence(n_relations))

    log = compile_latex(FORMATS["tex"].write({**document, "cuts": []}), tmp_path)

    assert not too_wide(log)


def test_report_omits_each_annotator_in_turn():
    document = build_document(wide_evidence(1))

    [table] = [table for table in report_tables(document) if table.name == "left-out"]
    assert [row.values[0] for row in table.rows] == [f"annotator-{number:02}" for number in range(24)]
    assert "each of the 24 annotators is omitted in turn" in FORMATS["md"].write(document)


def test_single_annotator_report_has_no_leave_one_out():
    evidence = reversal_evidence()
    is_first = evidence.judgments.annotator == 0
    single = replace(
        evidence, annotators=["a"], judgments=Judgments(*(column[is_first] for column in evidence.judgments))
    )
    single = replace(single, wanted=np.ones(single.n_tasks, dtype=np.int64))

    tables = {table.name: table for table in report_tables(build_document(single))}

    for name in ("sensitivity", "sensitivity-comparisons", "sensitivity-cells"):
        groups = {column.group for column in without_empty_columns(tables[name]).columns}
        assert "without one annotator" not in groups
    assert not any("Without one annotator" in note for note in tables["sensitivity-comparisons"].notes)
    assert "left-out" not in tables


def test_wide_table_is_split_with_repeated_first_column():
    columns = [Column("LM and setting"), *(Column(f"Without annotator {number}") for number in range(12))]
    table = Table("wide", "Wide", tuple(columns), (Row(("embedded · multi", *range(12))),), ("A note.",))

    parts = list(parts_of(table))

    assert len(parts) > 1
    assert [part.columns[0].title for part in parts] == ["LM and setting"] * len(parts)
    assert [value for part in parts for value in part.rows[0].values[1:]] == list(range(12))
    assert [part.notes for part in parts] == [()] * (len(parts) - 1) + [("A note.",)]
    assert parts[0].title == f"Wide, part 1 of {len(parts)}"


# CSV


def test_csv_has_one_row_per_cell():
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"].write(make_document()))))

    assert [(row["relation"], row["setting"], row["accepted"]) for row in rows] == [
        ("can_do", "human", "5"),
        ("can_do", "multi", "8"),
        ("capital", "multi", "10"),
    ]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_do_not_start_formulas(start):
    cells = {(f"{start}cmd", f"{start}lm", f"{start}s"): (1, 0, 0, 0)}

    [row] = csv.DictReader(io.StringIO(FORMATS["csv"].write(make_document(cells)), newline=""))

    assert {row["relation"][0], row["model"][0], row["setting"][0]} == {"'"}


@pytest.mark.parametrize("name", ["relations", "settings", "agreement"])
def test_csv_tables_have_rows_of_equal_length(name):
    tables = {table.name: table for table in report_tables(make_document())}

    rows = list(csv.reader(io.StringIO(csv_text(tables[name]))))

    assert {len(row) for row in rows} == {len(rows[0])}


# XLSX


def workbook_of(document):
    return openpyxl.load_workbook(io.BytesIO(FORMATS["xlsx"].bytes_of(document)))


def test_workbook_has_one_sheet_per_table_with_numeric_cells():
    workbook = workbook_of(make_document())

    assert workbook.sheetnames == [table.name for table in report_tables(make_document())]
    sheet = workbook["relations"]
    assert [cell.value for cell in sheet[1]][:3] == ["relation", "big · human: accepted", "big · human: rejected"]
    assert (sheet["B2"].value, sheet["B2"].data_type, sheet["B2"].number_format) == (0.5, "n", "0.0%")
    assert sheet["F2"].value == 10
    assert sheet["L2"].value is None  # cells that were not sampled are empty, because a dash is not a number
    assert sheet.freeze_panes == "B2"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "http://"])
def test_workbook_cells_are_not_formulas_or_links(start):
    workbook = workbook_of(make_document({(f"{start}1+1", f"{start}lm", f"{start}s"): (1, 0, 0, 0)}))

    cells = [cell for sheet in workbook for row in sheet for cell in row]
    assert workbook["relations"]["A2"].value == f"{start}1+1"
    assert {cell.data_type for cell in cells} <= {"s", "n", "inlineStr"}
    assert not any(cell.hyperlink for cell in cells)


# HTML


def test_html_file_loads_no_external_resources():
    page = FORMATS["html"].write(make_document())

    assert re.findall(r"(?:https?:)?//[\w.]", page) == []
    assert "<script" not in page
    assert ".50 / .40\n(.24 to .76, n = 10)" in page


# All formats


@pytest.mark.parametrize("file_format", FORMATS)
def test_report_files_are_deterministic(file_format):
    document = make_document(TWO_SETTINGS)

    assert FORMATS[file_format].bytes_of(document) == FORMATS[file_format].bytes_of(document)


def with_jsonb_key_order(value):
    """Return JSON with the key order of a PostgreSQL jsonb column: shorter keys first."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: with_jsonb_key_order(value[key]) for key in keys}
    return [with_jsonb_key_order(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file_format", FORMATS)
def test_report_files_do_not_depend_on_database_key_order(file_format):
    document = make_document(TWO_SETTINGS, comparisons=[make_comparison()], annotators=[make_annotator("Ann")])

    reordered = with_jsonb_key_order(json.loads(json.dumps(document)))

    assert FORMATS[file_format].bytes_of(reordered) == FORMATS[file_format].bytes_of(document)


def texts_of(file_format: str, document) -> str:
    """Return the visible text of the file."""
    if file_format != "xlsx":
        return FORMATS[file_format].bytes_of(document).decode()
    return "\n".join(str(cell.value) for sheet in workbook_of(document) for row in sheet for cell in row)


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_labels_simulated_judgments(file_format):
    assert "simulated" in texts_of(file_format, make_document(source="simulated"))


@pytest.mark.parametrize("file_format", ["html", "xlsx", "tex", "md", "json"])
def test_every_format_contains_comparisons_agreement_and_annotators(file_format):
    document = make_document(TWO_SETTINGS, comparisons=[make_comparison()], annotators=[make_annotator("Ann")])

    text = texts_of(file_format, document)

    assert all(
        words in text for words in ("not distinguishable", "Krippendorff" if file_format != "json" else "alpha", "Ann")
    )


def test_cells_without_lm_are_shown_as_not_named():
    text = FORMATS["md"].write(make_document({("can_do", None, None): (1, 0, 0, 0)}))

    assert "not named · not named" in text


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_supports_round_without_judgments(file_format):
    cells = {("can_do", "big", "multi"): (0, 0, 0, 3)}

    text = texts_of(file_format, make_document(cells))

    assert "nan" not in text.casefold().replace("annotator", "")


# Command


@pytest.mark.django_db
@pytest.mark.parametrize("file_format", FORMATS)
def test_report_command_prints_every_format(file_format):
    judge_all(make_round(1, name="pilot"), ["true"], ["true"], ["false"])
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")

    call_command("report", "--round", "pilot", "--format", file_format, stdout=out)

    printed = out.buffer.getvalue()
    assert printed.startswith(b"PK") or any(words in printed for words in (b"1.00", b'"accuracy": 1.0', b",1.0,"))


@pytest.mark.django_db
def test_report_command_prints_single_table_as_csv():
    make_round(1, name="pilot")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")

    call_command("report", "--round", "pilot", "--format", "csv", "--table", "agreement", stdout=out)

    assert out.buffer.getvalue().startswith(b"measure,value,low,high")


@pytest.mark.django_db
def test_unknown_table_is_rejected_with_available_tables_and_without_report():
    make_round(1, name="pilot")

    with pytest.raises(CommandError, match="no table 'nothing'; it has agreement, "):
        call_command("report", "--round", "pilot", "--format", "csv", "--table", "nothing")

    assert not Report.objects.exists()


@pytest.mark.django_db
def test_report_command_takes_equivalence_margin_in_points():
    make_round(1, name="pilot")
    out = io.TextIOWrapper(io.BytesIO())
    call_command("report", "--round", "pilot", "--equivalence-margin", "2.5", stdout=out)
    assert json.loads(out.buffer.getvalue())["equivalence_margin"] == 0.025

    with pytest.raises(CommandError, match=r"percentage points from 0\.1 to 50"):
        call_command("report", "--round", "pilot", "--equivalence-margin", "five")


@pytest.mark.django_db
def test_report_command_writes_file(tmp_path):
    make_round(1, name="pilot")

    call_command("report", "--round", "pilot", "--format", "md", "--output", str(tmp_path / "report.md"))

    assert (tmp_path / "report.md").read_text().startswith("# pilot")


@pytest.mark.django_db
def test_report_command_is_recorded_in_audit_log(tmp_path):
    judge_all(make_round(1, name="pilot"), ["true"], ["true"], ["false"])

    call_command("report", "--round", "pilot", "--output", str(tmp_path / "report.json"))

    assert Event.objects.filter(action="report.made").count() == 1
    call_command("audit", "verify")


@pytest.mark.django_db
def test_report_command_stores_a_report_without_judgments_only_on_request(capsysbinary):
    round = make_round(1, name="pilot")

    call_command("report", "--round", "pilot", "--format", "md")
    assert capsysbinary.readouterr().out.startswith(b"#")
    assert not round.reports.exists()

    call_command("report", "--round", "pilot", "--store")
    assert round.reports.count() == 1


@pytest.mark.django_db
def test_report_command_rejects_unknown_round():
    with pytest.raises(CommandError, match="There is no round 'pilot'; none exist yet"):
        call_command("report", "--round", "pilot")


@pytest.mark.parametrize("counts", [(0, 0, 0, 3), (2, 1, 0, 0)], ids=["nothing judged", "one relation"])
def test_report_explains_missing_results(counts):
    text = FORMATS["md"].write(make_document({("r", "lm", "multi"): counts}))

    assert "No comparisons: a comparison requires two settings" in text


def test_undefined_percent_agreement_has_reason():
    text = FORMATS["md"].write(make_document({("r", "lm", "multi"): (0, 0, 0, 3)}))

    [row] = [line for line in text.splitlines() if line.startswith("| percent agreement")]
    assert "No statement has two judgments." in row


def reversal_evidence():
    """Return evidence on two settings. The first is ahead by majority, the second by unanimity."""
    cells = [CellKey(relation, "lm", side) for relation in "rs" for side in ("human", "multi")]
    evidence = make_evidence(dict.fromkeys(cells, (2, 1)))
    labels = {"human": ["TTF", "TTF", "FFF"], "multi": ["TTT", "FFF", "FFF"]}
    label_rows = [row for cell in cells for row in labels[cell.setting]]
    verdict = np.array([row.count("F") > 1 for row in label_rows], dtype=np.int64)
    label_codes = np.array(["TFU".index(letter) for row in label_rows for letter in row])
    judgments = evidence.judgments._replace(label=label_codes)
    return replace(evidence, verdict=verdict, judgments=judgments)


def test_marked_numbers_stay_numeric_in_every_format():
    document = build_document(reversal_evidence()) | {"cuts": []}
    table = next(table for table in report_tables(document) if table.name == "sensitivity")

    [human, multi] = csv_text(table).splitlines()[1:]

    assert human.split(",")[1:3] == ["0.666667", "0.0"]
    assert multi.split(",")[1:3] == ["0.333333", "0.333333"]
    assert ".00 (2)" in FORMATS["md"].write(document)
    assert ".00 (2)" in FORMATS["tex"].write(document)
    sheet = openpyxl.load_workbook(io.BytesIO(FORMATS["xlsx"].write(document)))["sensitivity"]
    assert sheet["C2"].value == 0
    assert sheet["C2"].number_format == '0.0%" (2)"'
