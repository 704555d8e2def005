"""Filters for the templates of documents about a study, which are Markdown, LaTeX, YAML, and plain text."""

import json
from collections.abc import Mapping

from django import template

from kgharvest.contrib.publishing.datasheets.facts import LEAST_PEOPLE
from kgharvest.contrib.publishing.statements.services import BY_KEY
from kgharvest.pages import number_format
from kgharvest.tables.formats import markdown_text
from kgharvest.tables.latex import latex_text

register = template.Library()
for number_filter in (number_format.count, number_format.seconds, number_format.share):
    register.filter(number_filter.__name__, number_filter)
register.filter("markdown", markdown_text)


@register.filter
def counted(n: int, nouns: str) -> str:
    """Return a number with its noun. nouns: singular, or singular and plural separated by a comma."""
    return number_format.counted(n, *nouns.split(","))


@register.filter
def people(n: int) -> str:
    """Return a number of annotators, without the exact number for a small group."""
    if not n:
        return "no annotator"
    return f"fewer than {LEAST_PEOPLE} annotators" if n < LEAST_PEOPLE else number_format.counted(n, "annotator")


@register.filter
def missing_answer(label: str) -> str:
    return f"Missing answer: {label}{'' if label.endswith('?') else '.'}"


@register.filter
def answer_to(answers: Mapping[str, str], key: str) -> str:
    """Return the answer in Markdown (for a choice, its text), or a note that the answer is missing."""
    question, answer = BY_KEY[key], answers.get(key, "")
    return dict(question.choices).get(answer, answer) or f"**{missing_answer(question.label)}**"


@register.filter
def sentence(text: str) -> str:
    return f"{text.rstrip('.')}."


@register.filter
def quote(text: str) -> str:
    """Return a text as a quotation in Markdown."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


@register.filter
def latex(text: str) -> str:
    """Escape each line for LaTeX and drop blank lines, which would end the paragraph."""
    return "\n".join(latex_text(line) for line in text.splitlines() if line.strip())


@register.filter
def yaml(text: str) -> str:
    """Return a YAML string. Every JSON string is a valid YAML string."""
    return json.dumps(text, ensure_ascii=False)
