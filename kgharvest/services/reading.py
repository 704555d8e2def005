"""Read files that people hand in, and say where they are broken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.errors import BadEntry, DomainError, ImportRefused

LONGEST_ENTITY = 200  # characters; longer ones are not entities but text
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class NoSuchFile(DomainError):
    """A file that is not there or must not be read."""


class Line(NamedTuple):
    """A value and the line it starts in, from 1."""

    number: int
    value: Any


def read_text(path: Path) -> str:
    """Return the file's text, UTF-8 with or without a mark. Raises NoSuchFile or ImportRefused."""
    return decoded(read_bytes(path), path.name)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NoSuchFile(f"{path} cannot be read ({error.strerror}); check its name.") from error


def decoded(content: bytes, source: str) -> str:
    """Return the text of the file `source`, UTF-8 with or without a mark. Raises ImportRefused."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ImportRefused(source, [BadEntry(f"line {line}", "is not UTF-8; save the file as UTF-8")]) from error


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of the file with their ends, as `read_text` reads it but never all at once."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from file
    except (OSError, UnicodeDecodeError):
        read_text(path)  # says what is wrong, and where
        raise


def read_json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ImportRefused(source, [broken_json(error)]) from error


def broken_json(error: json.JSONDecodeError, first_line: int = 1) -> BadEntry:
    """Return where JSON that starts in `first_line` of its file is broken."""
    return BadEntry(f"line {first_line + error.lineno - 1}, column {error.colno}", f"is not JSON ({error.msg})")


def read_json_lines(text: str) -> Iterator[Line | BadEntry]:
    """Yield the value of each line that is not blank, or why it has none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield Line(number, json.loads(line))
        except json.JSONDecodeError as error:
            yield broken_json(error, number)


def read_json_array(text: str) -> Iterator[Line | BadEntry]:
    """Yield the elements of a JSON array with the lines they start in; stop at the first that is broken."""
    decoder = json.JSONDecoder()
    position = text.index("[") + 1
    number = text.count("\n", 0, position) + 1
    opening = True
    while True:
        start = _skip(text, position, " \t\r\n")
        if opening and text[start : start + 1] == "]":
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            yield broken_json(error)
            return
        number += text.count("\n", position, start)
        yield Line(number, value)
        number += text.count("\n", start, end)
        after = _skip(text, end, " \t\r\n")
        if text[after : after + 1] == "]":
            return
        if text[after : after + 1] != ",":
            yield broken_json(json.JSONDecodeError("expected ',' or ']'", text, after))
            return
        number += text.count("\n", end, after)
        position, opening = after + 1, False


def _skip(text: str, position: int, characters: str) -> int:
    while text[position : position + 1] in characters and position < len(text):
        position += 1
    return position


def fault_of_entities(entities: Any, arity: int) -> str | None:
    """Return what is wrong with `entities` as a tuple of `arity` entities, or None."""
    if not isinstance(entities, list) or len(entities) != arity:
        return f"has no list of {arity} entities"
    for entity in entities:
        if not isinstance(entity, str) or not entity.strip():
            return "has an entity that is empty or no text"
        if len(entity) > LONGEST_ENTITY:
            return f"has an entity of more than {LONGEST_ENTITY} characters"
        if CONTROL.search(entity):
            return f"has an entity with a control character ({entity!r})"
    return None
