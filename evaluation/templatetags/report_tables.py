"""Template tags for tables of reports, and for links from numbers to their evidence."""

import re
from collections.abc import Mapping
from typing import Any

from django import template
from django.core.validators import slug_re as SLUG
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from evaluation.models import Report
from evaluation.rendering.documents import tuples_query
from kgharvest.pages.number_format import count, share
from kgharvest.tables.table import Column, Kind, text_of

INCOMPLETE_MARK = mark_safe("<sup>†</sup>")
NUMBER = re.compile(r"\d+\.\d+ points")  # numbers in sentences of comparisons and plans

register = template.Library()


# One format_html call per cell. A tag per number would take half a second for hundreds of relations.
RELATION_CELL = (
    '<td class="num acc {shade}"><a href="{address}" title="{interval}; {counts}"><span class="acc-value">{accuracy}'
    '</span> / <span class="rej-value">{rejection}</span></a>{mark} <span class="interval">{interval}, n = {n}</span>'
    "</td>"
)


@register.simple_tag
def relation_cell(report: Report, cell: Mapping[str, Any]) -> SafeString:
    """Return a cell of the relation table: the shares, linked to the cell's tuples."""
    counts = ", ".join(f"{count(cell[outcome])} {outcome}" for outcome in ("accepted", "rejected", "undecided"))
    counts += f" of {count(cell['n'])}"
    if n_incomplete := cell.get("incomplete"):
        counts += f", {count(n_incomplete)} incomplete"
    return format_html(
        RELATION_CELL,
        shade=accuracy_class(cell["accuracy"]),
        address=f"{report.tuples_url}?{tuples_query(cell)}",
        interval=f"{share(cell['accuracy_low'])} to {share(cell['accuracy_high'])}",
        counts=counts,
        accuracy=share(cell["accuracy"]),
        rejection=share(cell["rejection"]),
        mark=INCOMPLETE_MARK if n_incomplete else "",
        n=count(cell["n"]),
    )


@register.filter
def accuracy_class(accuracy: float | None) -> str:
    """Return the CSS class that shades a table cell by its share, or an empty string."""
    return "" if accuracy is None else f"acc-{round(10 * accuracy)}"


@register.filter
def cell_text(cell: tuple[object, Column]) -> str:
    """Return the value of a table's cell as text."""
    value, column = cell
    return text_of(value, column.kind)


@register.simple_tag
def evidence_url(report: Report | None, about: Mapping[str, str | None] | None) -> str:
    """Return the URL of the statements or of the annotator that a row is about, or an empty string."""
    if not report or about is None:
        return ""
    if code := about.get("annotator"):
        return reverse("annotation:annotator", args=[report.round.path, code]) if SLUG.fullmatch(code) else ""
    return f"{report.tuples_url}?{tuples_query(about)}"


@register.simple_tag
def with_evidence(sentence: str, address: str) -> SafeString:
    """Return the sentence with its number linked to `address`."""
    [*_, number] = NUMBER.finditer(sentence)  # names before the sentence's number can contain numbers, too
    start, end = number.span()
    return format_html('{}<a href="{}">{}</a>{}', sentence[:start], address, sentence[start:end], sentence[end:])


@register.filter
def is_text(column: Column) -> bool:
    return column.kind is Kind.TEXT
