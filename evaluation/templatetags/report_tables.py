"""Template tags for tables of reports, and for links from numbers to their evidence."""

import re
from collections.abc import Mapping
from typing import Any

from django import template
from django.core.validators import slug_re as SLUG
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evaluation.models import Report
from evaluation.rendering.documents import tuples_query
from evaluation.rendering.evidence_page import address
from kgharvest.tables.table import Column, Kind, text_of

NUMBER = re.compile(r"\d+\.\d+ points")  # numbers in sentences of comparisons and plans

register = template.Library()


@register.simple_tag
def rows_address(part: Mapping[str, Any], verdict: str = "") -> str:
    """Return the fragment of the evidence page that selects the rows of a cell or of an LM and setting."""
    return address(**{key: part[key] for key in ("relation", "model", "setting") if key in part}, verdict=verdict)


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
