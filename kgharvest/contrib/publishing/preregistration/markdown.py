"""A preregistration as text that people read: Markdown, with every value of the document in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluation.rendering.documents import lm_and_setting
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.deviations import in_words
from kgharvest.contrib.publishing.preregistration.plan import SIDES, TEXTS, PlanSerializer, whole_hypothesis
from kgharvest.tables.formats import markdown_text


def values_of(state: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is frozen of the round: the path of each value, as deviations have it, and the value in words."""
    for key, value in sorted(state.items()):
        below = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from values_of(value, below)
        elif (text := in_words(value)) is not None:
            yield below, text


def hypotheses_in_words(plan: Mapping[str, Any]) -> list[str]:
    return [whole_hypothesis(entry) for entry in plan["hypotheses"]]


def comparisons_in_words(plan: Mapping[str, Any]) -> list[str]:
    return [" and ".join(lm_and_setting(entry[side]) for side in SIDES) for entry in plan["comparisons"]]


def texts_of(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    fields = PlanSerializer().fields
    return [(str(fields[name].label), plan[name]) for name in TEXTS]


def as_markdown(frozen: Preregistration) -> str:
    document, plan = frozen.document, frozen.document["plan"]
    round = document["round"]
    lines = [
        f"# Preregistration of {markdown_text(round['name'])}, version {document['version']}",
        "",
        f"Frozen {document['frozen_at']} by the {document['written_by']}, before anybody judged.",
        "",
        f"SHA-256 of the JSON file: `{frozen.sha256}`",
        *_part("Hypotheses", hypotheses_in_words(plan)),
        *_part("Planned comparisons", comparisons_in_words(plan)),
    ]
    for title, text in texts_of(plan):
        lines += ["", f"## {title}", "", *(markdown_text(line) for line in text.split("\n"))]
    values = [f"`{path.replace('`', '')}`: {markdown_text(text)}" for path, text in values_of(document["state"])]
    lines += ["", "## The round", "", *(f"- {value}" for value in values)]
    lines += ["", "## Method of every report", "", markdown_text(document["method"])]
    return "\n".join([*lines, ""])


def _part(title: str, sentences: list[str]) -> list[str]:
    said = [f"- {markdown_text(sentence)}" for sentence in sentences] or ["None."]
    return ["", f"## {title}", "", *said]
