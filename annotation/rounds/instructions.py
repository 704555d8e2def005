"""Text for annotators: frozen statements, and Markdown instructions of the round and of each relation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from django.utils.safestring import SafeString, mark_safe

from kgharvest.engine.prompts.template import SLOT, SPACE_BEFORE_END

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from annotation.models import Round
    from kgharvest.models import Relation

DEFAULT_INSTRUCTIONS = """\
Read the statement and say whether it is true in general.

- **True**: it holds as a rule, for a typical case.
- **False**: it does not hold, or makes no sense of the things it names.
- **Unjudgeable**: you cannot tell, even after looking it up, or you do not understand it."""

HEADINGS_BELOW = 2  # pages have an h1 and an h2
# Markdown syntax within a line, at the start of a line, and after the number of a list item.
MARKS = re.compile(r"([\\`*_\[\]<&]|(?<!\S)[-+=#>~]|(?<=\d)[.)])")
SAFE_LINK = re.compile(r"https?://", re.IGNORECASE)


def instructions_html(round: Round, relation: Relation | None = None) -> SafeString:
    """Return the instructions as safe HTML, including those of `relation`."""
    return markdown_html(instructions_markdown(round, relation))


def instructions_markdown(round: Round, relation: Relation | None = None) -> str:
    """Return the instructions in Markdown, including those of `relation`.

    The instructions contain only statements and text for annotators, never an LM, a setting, or a score.
    """
    parts = [round.instructions or DEFAULT_INSTRUCTIONS]
    if relation is not None and (guide := round.relation_instructions.get(str(relation.pk))):
        parts.append(guide)
    return "\n\n".join(parts)


def relation_guide(relation: Relation, true: Sequence[str] | None, false: Sequence[str] | None) -> str:
    """Return the default instructions of a relation: its explanation, and a true and a false example if available."""
    lines = [escape(relation.explanation.strip())] if relation.explanation else []
    if true is not None or false is not None:
        lines += ["", "For example:", ""]
    for label, entities in (("True", true), ("False", false)):
        if entities is not None:
            lines.append(f"- **{label}**: {escape(freeze_statement(relation.statement, entities).text)}")
    return "\n".join(lines).strip()


def escape(text: str) -> str:
    """Escape Markdown syntax in `text`, but no more than necessary, so that the result stays readable."""
    return MARKS.sub(r"\\\1", text)


@lru_cache(maxsize=256)
def markdown_html(text: str) -> SafeString:
    """Render Markdown as HTML without scripts and external resources."""
    return mark_safe(_parser().render(text))  # noqa: S308 (HTML in the text is disabled)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable("image")
    parser.validateLink = lambda url: bool(SAFE_LINK.match(url))
    parser.core.ruler.push("embed", _embed)
    return parser


def _embed(state) -> None:
    """Lower headings below those of the page, and open links in a new tab to keep the judging page open."""
    above: list[int] = []  # original levels of the enclosing headings
    for token in state.tokens:
        if token.type == "heading_open":
            original = int(token.tag[1])
            above = [level for level in above if level < original]
            above.append(original)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(len(above) + HEADINGS_BELOW, 6)}"
        for inner in token.children or ():
            if inner.type == "link_open":
                inner.attrs |= {"rel": "noopener noreferrer nofollow", "target": "_blank"}


class Statement(NamedTuple):
    """A frozen statement. spans: [start, end) of each entity in the text, in reading order."""

    text: str
    spans: list[list[int]]


def freeze_statement(template: str, surface: Sequence[str]) -> Statement:
    """Fill the slots of `template` with entities. Unlike in a prompt, a slot may occur more than once."""
    [statement] = freeze_statements(template, [surface])
    return statement


def freeze_statements(template: str, surfaces: Iterable[Sequence[str]]) -> list[Statement]:
    """Fill the slots of `template` with the entities of each tuple."""
    first, *rest = SLOT.split(SPACE_BEFORE_END.sub("", template.strip()))  # text, slot, text, slot, ..., text
    slots = [(int(slot), following) for slot, following in zip(rest[::2], rest[1::2], strict=True)]
    statements = []
    for surface in surfaces:
        text, spans = first, []
        for slot, following in slots:
            entity = surface[slot]
            spans.append([len(text), len(text) + len(entity)])
            text += entity + following
        statements.append(Statement(text, spans))
    return statements


def statement_parts(text: str, spans: Sequence[Sequence[int]]) -> list[tuple[str, bool]]:
    """Split a frozen statement into non-empty parts: (text, is_entity)."""
    parts, position = [], 0
    for start, end in spans:
        parts += [(text[position:start], False), (text[start:end], True)]
        position = end
    return [part for part in [*parts, (text[position:], False)] if part[0]]
