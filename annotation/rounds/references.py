"""References: links and short texts that are shown under a statement, and the slots of the second question.

Both are frozen in JudgmentTask.additions when a round opens. The server never fetches a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from kgharvest.bulk.file_values import is_web_link

if TYPE_CHECKING:
    from annotation.rounds.models import Round

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PLACEHOLDERS = ("head", "tail", "entity", "relation", "statement")
MOST_LINKS = 10  # lines
LONGEST_LINK_TEXT = 60  # characters


def wrong_parts(n_slots: int) -> list[str]:
    """Return the valid answers to the question which part of a statement with `n_slots` slots is wrong."""
    return [*map(str, range(n_slots)), "relation"]


class BadReferenceLinks(ValueError):
    """Raised if a line of the option reference_links is invalid. The message names the line."""


def parse_reference_links(text: str) -> list[tuple[str, str]]:
    """Return the name and URL template of each line, such as "Wikipedia https://en.wikipedia.org/wiki/{entity}".

    The default name is the host. Raises BadReferenceLinks.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) > MOST_LINKS:
        raise BadReferenceLinks(f"Found {len(lines)} reference links. Use at most {MOST_LINKS}.")
    templates = []
    for number, (*name, url) in enumerate(lines, start=1):
        names, rest = PLACEHOLDER.findall(url), PLACEHOLDER.sub("", url)
        if not set(names) <= set(PLACEHOLDERS) or "{" in rest or "}" in rest:
            valid = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise BadReferenceLinks(f"Invalid placeholder in reference link {number}: {url!r:.100}. Use {valid}.")
        if not is_web_link(url) or PLACEHOLDER.search(host := urlsplit(url).netloc):
            raise BadReferenceLinks(
                f"Invalid URL in reference link {number}: {url!r:.100}. Start with https:// or http:// and a host."
            )
        templates.append((" ".join(name) or host, url))
    return templates


def additions_of(
    round: Round, relation: str, entities: Sequence[str], statement: str, imported: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the value of JudgmentTask.additions, or None if the round shows only the statement.

    relation: name of the relation. imported: references from an imported file.
    """
    additions: dict[str, Any] = {}
    if round.has_references:
        imported = imported if round.imported_references else ()
        links = _filled(parse_reference_links(round.reference_links), relation, entities, statement)
        additions["references"] = [*({"text": text, "url": url} for text, url in links), *map(_imported, imported)]
    if round.asks_wrong_part:
        additions["slots"] = list(entities)
    return additions or None


def _filled(
    templates: Sequence[tuple[str, str]], relation: str, entities: Sequence[str], statement: str
) -> Iterator[tuple[str, str]]:
    """Yield the text and URL of each link. A template with {entity} yields a link for each distinct entity."""
    values = {"head": entities[0], "tail": entities[-1], "relation": relation.replace("_", " "), "statement": statement}
    for name, url in templates:
        for entity in dict.fromkeys(entities) if "{entity}" in url else [""]:
            of_link = values | {"entity": entity}
            filled = PLACEHOLDER.sub(lambda match, of_link=of_link: quote(of_link[match[1]], safe=""), url)
            yield f"{name}: {entity}" if entity else name, filled


def _imported(text: str) -> dict[str, str]:
    if not is_web_link(text):
        return {"text": text, "url": ""}
    shown = text.partition("://")[2].rstrip("/")
    return {"text": shown if len(shown) <= LONGEST_LINK_TEXT else f"{shown[:LONGEST_LINK_TEXT]}…", "url": text}
