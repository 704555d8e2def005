"""HTML for tables outside the website, for example in notebooks. The HTML has no styles, and all texts are escaped."""

from collections.abc import Iterable
from html import escape

from kgharvest.tables.table import Kind, Table

TEXTS = {Kind.TEXT, Kind.LIST, Kind.BOOLEAN, Kind.TIME}


def html_of(table: Table) -> str:
    """Return a `table` element with a caption and headings, followed by a paragraph for each note."""
    aligned = ["left" if column.kind in TEXTS else "right" for column in table.columns]
    headings = (column.whole_title for column in table.columns)
    rows = [_row("th", headings, aligned), *(_row("td", texts, aligned) for _, texts in table.texts())]
    notes = "".join(f"\n<p>{escape(note)}</p>" for note in table.notes)
    return "\n".join([f"<table>\n<caption>{escape(table.caption)}</caption>", *rows, f"</table>{notes}"])


def _row(tag: str, texts: Iterable[str], aligned: Iterable[str]) -> str:
    cells = (
        f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>' for text, side in zip(texts, aligned, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"
