"""A report as a file: JSON, CSV, Markdown, LaTeX."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evaluation.reports.tables import CellTable, Document, cell_table, footnotes, short
from kgharvest.services.writing import inert

CSV_COLUMNS = (
    "source", "relation", "model", "setting", "n", "accepted", "rejected", "undecided", "incomplete",
    "accuracy", "accuracy_low", "accuracy_high", "rejection",
)  # fmt: skip
TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "·": r"$\cdot$",
    "×": r"$\times$",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def write_json(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# -- CSV: one row per cell ---------------------------------------------------------------------------------------------


def write_csv(document: Document) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, CSV_COLUMNS, extrasaction="ignore", lineterminator="\r\n")
    writer.writeheader()
    for cell in document["cells"]:
        row = {"source": document["source"], **cell}
        writer.writerow({column: inert(row[column]) for column in CSV_COLUMNS})
    return buffer.getvalue()


# -- Markdown and LaTeX: the table of the paper ------------------------------------------------------------------------


def pair(cell: Mapping[str, Any] | None, prefix: str = "") -> str:
    """Return a cell as accepted / rejected; a dash where nothing was drawn."""
    if cell is None:
        return "–"
    return f"{short(cell[f'{prefix}accuracy'])} / {short(cell[f'{prefix}rejection'])}"


def _body(table: CellTable) -> list[list[str]]:
    """Return the rows below the heading as text, averages last."""
    rows = [[relation, *map(pair, cells)] for relation, cells in table.rows]
    return [*rows, ["average", *(pair(total, "macro_") for total in table.averages)]]


def write_markdown(document: Document) -> str:
    table = cell_table(document)
    head = ["relation", *table.columns]
    lines = [_markdown_row(head), _markdown_row(["---", *["---:"] * len(table.columns)])]
    lines += [_markdown_row(row) for row in _body(table)]
    notes = [f"{number}. {_markdown_text(note)}" for number, note in enumerate(footnotes(document), start=1)]
    title = f"# {_markdown_text(document['round'])}"
    return "\n".join([title, "", *lines, "", *notes, "", *_markdown_comparisons(document)])


def _markdown_comparisons(document: Document) -> list[str]:
    if not document["comparisons"]:
        return []
    simulated = " (simulated, not people)" if document["source"] == "simulated" else ""
    sentences = [f"- {_markdown_text(comparison['sentence'])}" for comparison in document["comparisons"]]
    return [f"## Comparisons{simulated}", "", *sentences, ""]


def _markdown_row(values: list[str]) -> str:
    return f"| {' | '.join(map(_markdown_text, values))} |"


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def write_latex(document: Document) -> str:
    """Return a table for booktabs, which the preamble must load."""
    table = cell_table(document)
    *rows, average = _body(table)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        *_latex_head(table),
        r"\midrule",
        *map(_latex_row, rows),
        r"\midrule",
        _latex_row(average),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_text(' '.join(footnotes(document)))}}}",
        rf"\label{{tab:{re.sub('[^a-zA-Z0-9]+', '-', document['round'])}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_head(table: CellTable) -> list[str]:
    spans, rules, column = [""], [], 2
    for group in table.groups:
        end = column + len(group.settings) - 1
        spans.append(rf"\multicolumn{{{len(group.settings)}}}{{c}}{{{latex_text(group.model)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{end}}}")
        column = end + 1
    settings = [setting for group in table.groups for setting in group.settings]
    return [" & ".join(spans) + r" \\", "".join(rules), _latex_row(["relation", *settings])]


def _latex_row(values: list[str]) -> str:
    return " & ".join(map(latex_text, values)) + r" \\"


def latex_text(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in text)


class Format(NamedTuple):
    """title: what the file holds, for people."""

    write: Callable[[Document], str]
    content_type: str
    title: str


FORMATS = {
    "json": Format(write_json, "application/json", "everything"),
    "csv": Format(write_csv, "text/csv; charset=utf-8", "one row per cell"),
    "md": Format(write_markdown, "text/markdown; charset=utf-8", "the table as text"),
    "tex": Format(write_latex, "application/x-tex; charset=utf-8", "the table for LaTeX, booktabs"),
}
