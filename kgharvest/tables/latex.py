"""LaTeX tables that use booktabs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil

from kgharvest.tables.table import Kind, Table, text_of, with_columns

MOST_ROWS_ON_A_PAGE = 45

# Widths in letters of \footnotesize. They fit the article class, the narrowest common layout, whose text is 345 pt
# wide.
TEXT_WIDTH = 80
GAP = 2  # width of the gap between columns
LONGEST_LINE = 26  # maximum width of a column; longer texts wrap
SECOND_LINE = 0.75  # width of a letter in a second line: smaller type, mostly digits and narrow letters

SMALL = r"\footnotesize\setlength{\tabcolsep}{4pt}"

TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"\textbar{}",
    '"': "''",
    # LaTeX would read these characters as arguments of a preceding \\.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "²": r"$^2$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def latex_of(name: str, tables: Iterable[Table]) -> str:
    """Return the tables in LaTeX. The preamble must load booktabs and longtable. Labels start with `name`."""
    head = [
        r"% \usepackage{booktabs,longtable}",
        r"% \usepackage[utf8]{inputenc} \usepackage[T1]{fontenc} with pdfLaTeX;",
        "% names outside the Latin script need XeLaTeX or LuaLaTeX.",
    ]
    prefix = re.sub("[^a-zA-Z0-9]+", "-", name)
    parts = [part for table in tables for part in parts_of(table)]
    body = []
    for part in parts:
        caption = rf"\caption{{{latex_text(part.caption + '.')}}}\label{{tab:{prefix}-{part.name}}}"
        lines = _long_table if len(list(part.rows)) > MOST_ROWS_ON_A_PAGE else _floating_table
        body += ["", *lines(part, caption)]
    return "\n".join([*head, *body]) + "\n"


# Splitting wide tables


def parts_of(table: Table) -> Iterator[Table]:
    """Yield the table, or several parts if it is too wide.

    Each part has the first column. The last part has the notes.
    """
    widths = [_width(table, number) for number in range(len(table.columns))]
    # In addition to the first column, each part has as many columns as fit into the text width, but at least one.
    spans, start, used = [], 1, widths[0]
    for column in range(1, len(widths)):
        if column > start and used + GAP + widths[column] > TEXT_WIDTH:
            spans.append(range(start, column))
            start, used = column, widths[0]
        used += GAP + widths[column]
    spans.append(range(start, len(widths)))
    if len(spans) == 1:
        yield table
        return
    for number, span in enumerate(spans, start=1):
        yield replace(
            with_columns(table, [0, *span]),
            name=f"{table.name}-{number}",
            title=f"{table.title}, part {number} of {len(spans)}",
            notes=table.notes if number == len(spans) else (),
        )


def _width(table: Table, number: int) -> int:
    """Return the number of letters in the longest line of a column, including headings."""
    column = table.columns[number]
    texts = [text_of(row.values[number], column.kind) for row in table.rows]
    group_size = sum(other.group == column.group for other in table.columns)
    heading = max(len(column.title), -(-len(column.group) // group_size))
    lines = [line for text in texts for line in _letters(text)]
    return min(max([heading, *lines]), LONGEST_LINE)


def _letters(text: str) -> Iterator[int]:
    """Yield the width of each line of a cell, in letters."""
    first, *others = text.split("\n")
    yield from (len(first), *(ceil(SECOND_LINE * len(line)) for line in others))


# One table


def _floating_table(table: Table, caption: str) -> Iterable[str]:
    yield from (r"\begin{table}", r"\centering", caption, SMALL)
    yield rf"\begin{{tabular}}{{{_columns(table)}}}"
    yield from (r"\toprule", *_head(table), r"\midrule", *_body(table), r"\bottomrule", r"\end{tabular}")
    if table.notes:
        yield rf"\par\medskip\parbox{{\linewidth}}{{\footnotesize {_notes(table)}}}"
    yield r"\end{table}"


def _long_table(table: Table, caption: str) -> Iterable[str]:
    yield f"{{{SMALL}"
    yield rf"\begin{{longtable}}{{{_columns(table)}}}"
    yield caption + r"\\"
    yield from (r"\toprule", *_head(table), r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot")
    yield from _body(table)
    yield r"\end{longtable}"
    if table.notes:
        yield rf"\noindent{{\footnotesize {_notes(table)}\par}}"
    yield "}"


def _columns(table: Table) -> str:
    """Return the column types. Columns with long texts wrap at a fixed width."""
    types = ["l" if column.kind is Kind.TEXT else "r" for column in table.columns]
    for _, texts in table.texts():
        for number, text in enumerate(texts):
            if types[number] != "r" and len(text) > LONGEST_LINE:
                types[number] = rf"p{{{LONGEST_LINE / 2:.0f}em}}"
    return "".join(types)


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
    return " & ".join(map(_cell, values)) + r" \\"


def _cell(text: str) -> str:
    """Return the cell. A second line is in smaller type."""
    first, *others = map(latex_text, text.split("\n"))
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{first}\\\scriptsize {others[0]}\end{{tabular}}" if others else first


def latex_text(text: str) -> str:
    return "".join(TEX_SPECIAL.get(character, character) for character in " ".join(text.split()))
