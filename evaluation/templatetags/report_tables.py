"""Tables of reports on pages, and links from numbers to their evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django import template
from django.core.validators import slug_re as SLUG
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evaluation.models import Report
from evaluation.rendering.tables import Column, Kind, text_of, tuples_query

NUMBER = re.compile(r"\d+\.\d+ points")  # of a sentence on a comparison or a plan

register = template.Library()


@register.filter
def accuracy_class(share: float | None) -> str:
    """Return the class that shades a cell by its share; none for an unknown one."""
    return "" if share is None else f"acc-{round(10 * share)}"


@register.filter
def cell_text(cell: tuple[object, Column]) -> str:
    """Return the value of a table's cell as people read it."""
    value, column = cell
    return text_of(value, column.kind)


@register.simple_tag
def evidence_url(report: Report | None, about: Mapping[str, str | None] | None) -> str:
    """Return where the statements or the annotator that a row is about can be looked at; "" if nowhere."""
    if not report or about is None:
        return ""
    if code := about.get("annotator"):
        return reverse("annotation:annotator", args=[report.round.path, code]) if SLUG.fullmatch(code) else ""
    return f"{report.tuples_url}?{tuples_query(about)}"


@register.simple_tag
def with_evidence(sentence: str, address: str) -> SafeString:
    """Return the sentence, its number a link to what is behind it."""
    [*_, number] = NUMBER.finditer(sentence)  # a name can hold one, too
    start, end = number.span()
    return format_html('{}<a href="{}">{}</a>{}', sentence[:start], address, sentence[start:end], sentence[end:])


@register.filter
def is_text(column: Column) -> bool:
    return column.kind is Kind.TEXT
