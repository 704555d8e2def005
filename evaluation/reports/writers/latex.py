"""LaTeX for booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from evaluation.reports.contents import tables_to_read
from evaluation.reports.tables import Document, Kind, Table

MOST_ROWS_ON_A_PAGE = 45

TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"\textbar{}",
    '"': "''",
    # After \\ these would be taken for its arguments.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "†": r"\dag{}",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def write_latex(document: Document) -> str:
    """Return the tables for booktabs and longtable, which the preamble must load."""
    head = [
        r"% \usepackage{booktabs,longtable}",
        r"% \usepackage[utf8]{inputenc} \usepackage[T1]{fontenc} with pdfLaTeX;",
        "% names outside the Latin script need XeLaTeX or LuaLaTeX.",
    ]
    prefix = re.sub("[^a-zA-Z0-9]+", "-", document["round"])
    tables = tables_to_read(document)
    return "\n".join([*head, *("\n" + _table(table, f"tab:{prefix}-{table.name}") for table in tables)]) + "\n"


def _table(table: Table, label: str) -> str:
    caption = rf"\caption{{{latex_text(table.caption + '.')}}}\label{{{label}}}"
    if len(table.rows) > MOST_ROWS_ON_A_PAGE:
        return "\n".join(_long_table(table, caption))
    return "\n".join(_floating_table(table, caption))


def _floating_table(table: Table, caption: str) -> Iterable[str]:
    yield from (r"\begin{table}", r"\centering", r"\small", caption)
    yield rf"\begin{{tabular}}{{{_columns(table)}}}"
    yield from (r"\toprule", *_head(table), r"\midrule", *_body(table), r"\bottomrule", r"\end{tabular}")
    if table.notes:
        yield rf"\par\medskip\parbox{{\linewidth}}{{\footnotesize {_notes(table)}}}"
    yield r"\end{table}"


def _long_table(table: Table, caption: str) -> Iterable[str]:
    yield r"{\small"
    yield rf"\begin{{longtable}}{{{_columns(table)}}}"
    yield caption + r"\\"
    yield from (r"\toprule", *_head(table), r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot")
    yield from _body(table)
    yield r"\end{longtable}"
    if table.notes:
        yield rf"\noindent{{\footnotesize {_notes(table)}\par}}"
    yield "}"


def _columns(table: Table) -> str:
    return "".join("l" if column.kind is Kind.TEXT else "r" for column in table.columns)


def _notes(table: Table) -> str:
    return latex_text(" ".join(table.notes))


def _head(table: Table) -> list[str]:
    titles = _row([column.title for column in table.columns])
    if not table.groups:
        return [titles]
    spans, rules, column = [], [], 1
    for title, width in table.groups:
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(title)}}}" if title else "")
        rules += [rf"\cmidrule(lr){{{column}-{column + width - 1}}}"] if title else []
        column += width
    return [" & ".join(spans) + r" \\", "".join(rules), titles]


def _body(table: Table) -> Iterable[str]:
    was_summary = False
    for is_summary, texts in table.texts():
        if is_summary and not was_summary:
            yield r"\midrule"
        was_summary = is_summary
        yield _row(texts)


def _row(values: Sequence[str]) -> str:
    return " & ".join(map(latex_text, values)) + r" \\"


def latex_text(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in " ".join(text.split()))
