"""Read files that people hand in, and say where they are broken."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.errors import BadEntry, DomainError, ImportRefused

LONGEST_ENTITY = 200  # characters; longer ones are not entities but text
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # a line's end is none
PIECE = 1 << 16  # characters read at once
LONGEST_VALUE = 1 << 20  # characters of one element of a JSON array
DECODER = json.JSONDecoder()
WHITE_SPACE = re.compile(r"[ \t\r\n]*")


class Member(NamedTuple):
    """A member of a JSON object, or an element of an array (then `name` is None): its value's line and place."""

    name: str | None
    value: Any
    line: int
    place: int


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


def lines_of(content: bytes, source: str) -> Iterator[str]:
    """Return the lines of the file `source` as `read_lines` yields them. Raises ImportRefused."""
    return io.StringIO(decoded(content, source), newline="")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of the file with their ends, as `read_text` reads it but never all at once."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from file
    except (OSError, UnicodeDecodeError):
        read_text(path)  # says what is wrong, and where
        raise


def read_pieces(path: Path) -> Iterator[str]:
    """Yield the file's text as `read_text` reads it but never all at once."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            while piece := file.read(PIECE):
                yield piece
    except (OSError, UnicodeDecodeError):
        read_text(path)  # says what is wrong, and where
        raise


def read_json(text: str, source: str) -> Any:
    try:
        return parsed_json(text)
    except json.JSONDecodeError as error:
        raise ImportRefused(source, [broken_json(error)]) from error


def parsed_json(text: str) -> Any:
    """Return the value of `text`. Raises json.JSONDecodeError, and nothing else."""
    return _guarded(json.loads, text)


def broken_json(error: json.JSONDecodeError, first_line: int = 1) -> BadEntry:
    """Return where JSON that starts in `first_line` of its file is broken."""
    return _broken(first_line + error.lineno - 1, error.colno, error)


def _broken(line: int, column: int, error: json.JSONDecodeError) -> BadEntry:
    return BadEntry(f"line {line}, column {column}", f"is not JSON ({error.msg})")


def _guarded(parse: Callable[..., Any], text: str, *start: int) -> Any:
    try:
        return parse(text, *start)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("Nested too deeply", text, *(start or (0,))) from None
    except ValueError:  # Python reads no integers of more than some thousand digits
        raise json.JSONDecodeError("A number is too long", text, *(start or (0,))) from None


def members_of(text: str, place: int = 0) -> Iterator[Member]:
    """Yield the members of the JSON object or array that begins at `place` of a valid text, repeated names as well."""
    place = _sign_from(text, place)
    is_object = text[place] == "{"
    line, counted_to = 1 + text.count("\n", 0, place), place
    while text[place := _sign_from(text, place + 1)] not in "]}":
        name = None
        if is_object:
            name, place = DECODER.raw_decode(text, place)
            place = _sign_from(text, _sign_from(text, place) + 1)
        value, end = DECODER.raw_decode(text, place)
        line, counted_to = line + text.count("\n", counted_to, place), place
        yield Member(name, value, line, place)
        place = _sign_from(text, end)
        if text[place] != ",":
            return


def _sign_from(text: str, place: int) -> int:
    return WHITE_SPACE.match(text, place).end()


def read_json_objects(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield what `read_json_lines` does, but only objects as values."""
    for line in read_json_lines(lines):
        if isinstance(line, Line) and not isinstance(line.value, dict):
            yield BadEntry(f"line {line.number}", "is no JSON object")
        else:
            yield line


def read_json_lines(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield the value of each line that is not blank, or why it has none."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Line(number, parsed_json(line.rstrip("\r\n")))  # an end of it would count as a further line
        except json.JSONDecodeError as error:
            yield broken_json(error, number)


def read_json_array(pieces: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield the elements of a JSON array with the lines they start in; stop at the first that is broken.

    pieces: of the text, of any size. Elements of more than a million characters are taken for broken.
    """
    text = _Window(pieces)
    try:
        text.expect("[")
        if text.next_sign() != "]":
            yield text.value()
            while text.next_sign() == ",":
                text.expect(",")
                yield text.value()
        text.expect("]")
        text.expect("")
    except json.JSONDecodeError as error:
        yield _broken(text.line, text.column, error)


class _Window:
    """The part of a text that is in memory, and how far it is read: `line` and `column` of the file, from 1."""

    def __init__(self, pieces: Iterable[str]):
        self._pieces = iter(pieces)
        self._text = ""
        self._place = 0
        self.line, self.column = 1, 1

    def next_sign(self) -> str:
        """Pass over white space and return the sign behind it, "" at the end."""
        while True:
            self._pass_to(WHITE_SPACE.match(self._text, self._place).end())
            if self._place < len(self._text) or not self._grow():
                return self._text[self._place : self._place + 1]

    def expect(self, sign: str) -> None:
        """Pass over `sign`, or the text's end if it is "". Raises json.JSONDecodeError where something else is."""
        if self.next_sign() != sign:
            raise json.JSONDecodeError(f"Expecting {sign!r}" if sign else "Extra data", self._text, self._place)
        self._pass_to(self._place + len(sign))

    def value(self) -> Line:
        """Return the value that comes next. Raises json.JSONDecodeError, and stands where the text is broken."""
        self.next_sign()
        line = self.line
        while True:
            try:
                value, end = _guarded(DECODER.raw_decode, self._text, self._place)
            except json.JSONDecodeError as error:
                if len(self._text) - self._place > LONGEST_VALUE or not self._grow():
                    self._pass_to(error.pos)
                    raise
                continue
            # A number at the end of the window may go on behind it.
            if end < len(self._text) or not self._grow():
                self._pass_to(end)
                return Line(line, value)

    def _grow(self) -> bool:
        """Take one more piece and drop what is read; return False at the end of the text."""
        piece = next(self._pieces, "")
        if piece:
            self._text, self._place = self._text[self._place :] + piece, 0
        return bool(piece)

    def _pass_to(self, end: int) -> None:
        if n_lines := self._text.count("\n", self._place, end):
            self.line += n_lines
            self.column = end - self._text.rindex("\n", self._place, end)
        else:
            self.column += end - self._place
        self._place = end


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
