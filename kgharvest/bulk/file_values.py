"""Labels and entities in imported files: one rule for all importers."""

import json
from typing import Any
from urllib.parse import urlsplit

from kgharvest.bulk.file_reading import CONTROL, MOST_ENTITIES, parse_json
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.statistics.arrays import LABELS

ABBREVIATIONS = {label[0]: label for label in LABELS}
SPELLINGS = {label: label for label in LABELS} | ABBREVIATIONS
MOST_REFERENCES = 10  # per tuple
LONGEST_REFERENCE = 2000  # characters


class BadValue(ValueError):
    """An error in one value. The caller prepends the place of the value to the message, as in "is 'yes'; use ..."."""


def read_label(value: Any) -> str:
    """Return the code of a label. Case and surrounding spaces are ignored, and one letter is enough.

    The result is one of LABELS. Boolean values are valid labels. Raises BadValue.
    """
    label = SPELLINGS.get(str(value).strip().casefold()) if isinstance(value, str | bool) else None
    if label is None:
        raise BadValue(f"is {value!r:.40}; use True, False, or Unjudgeable")
    return label


def read_entities(value: Any, arity: int | None = None) -> tuple[str, ...]:
    """Return the entities, without surrounding spaces, of a list or of a text that contains a JSON list.

    arity: required number of entities; None allows 2 to MOST_ENTITIES. Raises BadValue.
    """
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except json.JSONDecodeError:
            raise BadValue(f'is {value!r:.60}, not a JSON list such as ["dog", "swim"]') from None
    if arity is None:
        arity = len(value) if isinstance(value, list) and 2 <= len(value) <= MOST_ENTITIES else 2
    if error := entities_error(value, arity):
        raise BadValue(error)
    return tuple(entity.strip() for entity in value)


def entities_error(entities: Any, arity: int) -> str | None:
    """Return an error if `entities` is not a valid tuple of `arity` entities."""
    if not isinstance(entities, list) or len(entities) != arity:
        return f"has no list of {arity} entities"
    for entity in entities:
        if not isinstance(entity, str) or not entity.strip():
            return "has an entity that is empty or not a text"
        if len(entity) > LONGEST_ENTITY:
            return f"has an entity of more than {LONGEST_ENTITY} characters"
        if CONTROL.search(entity):
            return f"has an entity with a control character ({entity!r})"
    return None


def is_web_link(text: str) -> bool:
    """Return whether the text is an http or https URL without spaces."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and len(text.split()) == 1


def read_references(value: Any) -> tuple[str, ...]:
    """Return the references of a tuple: links and short texts, from a list, a text, or URLs separated by spaces.

    A text that starts with "[" is parsed as a JSON list. Raises BadValue.
    """
    if isinstance(value, str):
        words = value.split()
        try:
            value = parse_json(value) if value.lstrip().startswith("[") else [value]
        except json.JSONDecodeError:
            raise BadValue(f'references: {value!r:.60} is not a JSON list such as ["https://example.org"]') from None
        value = words if all(map(is_web_link, words)) else value
    value = [] if value is None else value
    if not isinstance(value, list) or len(value) > MOST_REFERENCES or not all(map(_is_reference, value)):
        limits = (
            f"{MOST_REFERENCES} texts or URLs of at most {LONGEST_REFERENCE} characters, without control characters"
        )
        raise BadValue(f"references: {value!r:.60} is not a list of at most {limits}")
    return tuple(value)


def _is_reference(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text.strip()) <= LONGEST_REFERENCE and not CONTROL.search(text)
