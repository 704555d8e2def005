"""What the files of a report look like. The document is written here by hand."""

import csv
import io
import shutil
import subprocess

import pytest
from django.core.management import CommandError, call_command

from evaluation.documents import CellKey, Evidence, Pattern, VerdictCounts, build_document
from evaluation.reports.tables import cell_table, short
from evaluation.reports.writers import FORMATS, latex_text
from tests.factories import judge_all, make_round


def make_document(cells=None, **fields) -> dict:
    values = {
        "round": "pilot_1",
        "source": "people",
        "seed": 0,
        "n_tasks": 20,
        "n_complete": 20,
        "n_judgments": 60,
        "cells": cells
        or {
            CellKey("can_do", "big", "human"): VerdictCounts(5, 4, 1),
            CellKey("can_do", "big", "multi"): VerdictCounts(8, 2),
            CellKey("capital", "small", "multi"): VerdictCounts(10),
        },
        "n_shared": {},
        "patterns": [Pattern(3, 0, 0, 15), Pattern(1, 2, 0, 5)],
        "annotators": {},
        "annotator_pairs": [],
        "demonstrators": [],
    }
    return build_document(Evidence(**{**values, **fields}))


@pytest.mark.parametrize(
    ("share", "printed"),
    [(0.734, ".73"), (-0.05, "-.05"), (1.0, "1.00"), (0.999, "1.00"), (0.0, ".00"), (-0.5, "-.50"), (None, "–")],
)
def test_shares_are_printed_as_in_papers(share, printed):
    assert short(share) == printed


def test_the_table_has_relations_as_rows_and_lms_with_settings_as_columns():
    table = cell_table(make_document())

    assert table.columns == ["big · human", "big · multi", "small · multi"]
    assert [(relation, [cell and cell["accepted"] for cell in cells]) for relation, cells in table.rows] == [
        ("can_do", [5, 8, None]),
        ("capital", [None, None, 10]),
    ]


def test_markdown():
    lines = FORMATS["md"].write(make_document()).splitlines()

    assert lines[0] == r"# pilot\_1"
    assert lines[2:7] == [
        r"| relation | big · human | big · multi | small · multi |",
        r"| --- | ---: | ---: | ---: |",
        r"| can\_do | .50 / .40 | .80 / .20 | – |",
        r"| capital | – | – | 1.00 / .00 |",
        r"| average | .50 / .40 | .80 / .20 | 1.00 / .00 |",
    ]


def test_latex():
    text = FORMATS["tex"].write(make_document())

    assert r"\multicolumn{2}{c}{big} & \multicolumn{1}{c}{small} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in text
    assert r"can\_do & .50 / .40 & .80 / .20 & -- \\" in text


def test_latex_escapes_what_is_special():
    assert latex_text(r"a_b & 50% \x {y} ~^#$") == (
        r"a\_b \& 50\% \textbackslash{}x \{y\} \textasciitilde{}\textasciicircum{}\#\$"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX is installed")
def test_latex_compiles(tmp_path):
    table = FORMATS["tex"].write(make_document())
    source = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + table + "\\end{document}\n"
    (tmp_path / "report.tex").write_text(source)

    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"], cwd=tmp_path, check=True)


def test_csv_has_one_row_per_cell():
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"].write(make_document()))))

    assert [(row["relation"], row["setting"], row["accepted"]) for row in rows] == [
        ("can_do", "human", "5"),
        ("can_do", "multi", "8"),
        ("capital", "multi", "10"),
    ]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_csv_cell_starts_a_formula(start):
    cells = {CellKey(f"{start}cmd", f"{start}lm", f"{start}s"): VerdictCounts(1)}

    [row] = csv.DictReader(io.StringIO(FORMATS["csv"].write(make_document(cells)), newline=""))

    assert {row["relation"][0], row["model"][0], row["setting"][0]} == {"'"}


@pytest.mark.parametrize("file_format", FORMATS)
def test_simulated_judgments_are_named_in_every_format(file_format):
    assert "simulated" in FORMATS[file_format].write(make_document(source="simulated"))


def test_cells_of_imported_judgments_may_name_no_lm():
    text = FORMATS["md"].write(make_document({CellKey("can_do", None, None): VerdictCounts(1)}))

    assert "not named · not named" in text


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("file_format", FORMATS)
def test_report_prints_every_format(file_format):
    judge_all(make_round(1, name="pilot"), ["true"], ["true"], ["false"])
    out = io.StringIO()

    call_command("report", "--round", "pilot", "--format", file_format, stdout=out)

    assert "1.00" in out.getvalue() or '"accuracy": 1.0' in out.getvalue() or ",1.0," in out.getvalue()


@pytest.mark.django_db
def test_report_writes_a_file(tmp_path):
    make_round(1, name="pilot")

    call_command("report", "--round", "pilot", "--format", "md", "--output", str(tmp_path / "report.md"))

    assert (tmp_path / "report.md").read_text().startswith("# pilot")


@pytest.mark.django_db
def test_report_of_an_unknown_round_is_refused():
    with pytest.raises(CommandError, match="There is no round named 'pilot'; the newest are: none; open one first"):
        call_command("report", "--round", "pilot")
