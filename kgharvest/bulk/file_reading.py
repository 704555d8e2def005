"""Read uploaded and imported files: text, JSON, JSON lines, and JSON arrays.

Errors contain their location in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO

from kgharvest.errors import BadEntry, DomainError, ImportRefused

if TYPE_CHECKING:
    from django.core.files import File

# Maximum bytes of a file that is read into memory; parsed JSON needs about thirty times as much memory.
LARGEST_FILE = 10 << 20
LARGEST_FILE_MB = LARGEST_FILE >> 20
MOST_LINES = 200_000  # maximum number of lines of a file that is read into memory
LONGEST_LINE = 1 << 20  # maximum number of characters of a line, or of an element of a JSON array
MOST_ENTITIES = 9  # maximum number of entities in a tuple
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # the set excludes \n and includes lone surrogates
CHUNK_SIZE = 1 << 16  # characters
DECODER = json.JSONDecoder()
WHITE_SPACE = re.compile(r"[ \t\r\n]*")


class Member(NamedTuple):
    """Member of a JSON object, or element of an array if `name` is None.

    line, offset: position at which the value starts.
    """

    name: str | None
    value: Any
    line: int
    offset: int


class Line(NamedTuple):
    """A value, and the number of the line on which the value starts, from 1."""

    number: int
    value: Any


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, with or without a BOM. Raises NoSuchFile or ImportRefused."""
    return decode_utf8(read_bytes(path), path.name)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of at most LARGEST_FILE bytes. Raises NoSuchFile or ImportRefused."""
    with opened(path) as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ImportRefused(path.name, [BadEntry("file", f"is larger than {LARGEST_FILE_MB} MB; split it")])
    return content


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file given by a user. Raises NoSuchFile."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise DomainError("NoSuchFile", f"{path} cannot be read ({error.strerror}). Check the path.") from error


def decode_utf8(content: bytes, source: str) -> str:
    """Decode UTF-8, with or without a BOM. source: file name for error messages. Raises ImportRefused."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(source, content.count(b"\n", 0, error.start) + 1) from error


def lines_of(file: BinaryIO, source: str) -> Iterator[str]:
    """Yield up to MOST_LINES lines of a UTF-8 file, with or without a BOM, reading one line at a time.

    Raises ImportRefused for invalid UTF-8, a longer file, or a line of more than LONGEST_LINE bytes.
    """
    for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
        if number > MOST_LINES:
            reason = f"exceeds the maximum of {MOST_LINES:,} lines; split the file or draw a sample"
            raise ImportRefused(source, [BadEntry(f"line {number}", reason)])
        if len(line) > LONGEST_LINE:
            raise _too_long(source, number)
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(source, number) from error


def _too_long(source: str, line: int) -> ImportRefused:
    return ImportRefused(source, [BadEntry(f"line {line}", f"has more than {LONGEST_LINE:,} characters; shorten it")])


def _not_utf8(source: str, line: int) -> ImportRefused:
    reason = "is not UTF-8; save the file as UTF-8, and unpack it if it is compressed"
    return ImportRefused(source, [BadEntry(f"line {line}", reason)])


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file of any size, with line ends. Raises NoSuchFile, or ImportRefused for a long line."""

    def lines(file: TextIO) -> Iterator[str]:
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), ""), start=1):
            if len(line) > LONGEST_LINE:
                raise _too_long(path.name, number)
            yield line

    return _read_in_parts(path, lines)


def read_chunks(path: Path) -> Iterator[str]:
    """Yield the text of a file of any size. Raises NoSuchFile or ImportRefused."""
    return _read_in_parts(path, lambda file: iter(partial(file.read, CHUNK_SIZE), ""))


def _read_in_parts(path: Path, parts: Callable[[TextIO], Iterator[str]]) -> Iterator[str]:
    try:
        with opened(path) as file:
            yield from parts(TextIOWrapper(file, encoding="utf-8-sig", newline=""))
    except UnicodeDecodeError as error:
        with path.open("rb") as file:
            lines = enumerate(file, start=1)
            number = next((number for number, line in lines if line.decode(errors="ignore").encode() != line), 1)
        raise _not_utf8(path.name, number) from error


def read_json(text: str, source: str) -> Any:
    """Parse `text`. Raises ImportRefused."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise ImportRefused(source, [_not_json(error.lineno, error.colno, error)]) from error


def parse_json(text: str) -> Any:
    """Parse `text`. Raises only json.JSONDecodeError."""
    return _guarded(json.loads, text)


def _guarded(parse: Callable[..., Any], text: str, *start: int) -> Any:
    try:
        return parse(text, *start)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("Nested too deeply", text, *(start or (0,))) from None
    except ValueError:  # Python limits the number of digits of integers
        raise json.JSONDecodeError("A number is too long", text, *(start or (0,))) from None


def _not_json(line: int, column: int, error: json.JSONDecodeError) -> BadEntry:
    return BadEntry(f"line {line}, column {column}", f"is not JSON ({error.msg})")


def members_of(text: str, offset: int = 0) -> Iterator[Member]:
    """Yield the members of the JSON object or array at `offset` of a valid text, including repeated names."""
    offset = _skip_white_space(text, offset)
    is_object = text[offset] == "{"
    line, counted_to = 1 + text.count("\n", 0, offset), offset
    while text[offset := _skip_white_space(text, offset + 1)] not in "]}":
        name = None
        if is_object:
            name, offset = DECODER.raw_decode(text, offset)
            offset = _skip_white_space(text, _skip_white_space(text, offset) + 1)  # skip the colon
        value, end = DECODER.raw_decode(text, offset)
        line, counted_to = line + text.count("\n", counted_to, offset), offset
        yield Member(name, value, line, offset)
        offset = _skip_white_space(text, end)
        if text[offset] != ",":
            return


def _skip_white_space(text: str, offset: int) -> int:
    match = WHITE_SPACE.match(text, offset)
    return match.end() if match else offset


def read_json_objects(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield the objects and errors of `read_json_lines`. A value that is not an object is an error."""
    for line in read_json_lines(lines):
        if isinstance(line, Line) and not isinstance(line.value, dict):
            yield BadEntry(f"line {line.number}", "is not a JSON object")
        else:
            yield line


def read_json_lines(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield the value or the error of each non-blank line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            # Without line end, so that errors there belong to this line.
            yield Line(number, parse_json(line.rstrip("\r\n")))
        except json.JSONDecodeError as error:
            yield _not_json(number + error.lineno - 1, error.colno, error)


def read_json_array(chunks: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield the elements of a JSON array, and stop with an error at the first invalid element.

    chunks: text in chunks of any size. Elements of more than LONGEST_LINE characters are invalid.
    """
    text = _Window(chunks)
    try:
        text.expect("[")
        if text.next_character() != "]":
            yield text.value()
            while text.next_character() == ",":
                text.expect(",")
                yield text.value()
        text.expect("]")
        text.expect("")
    except json.JSONDecodeError as error:
        yield _not_json(text.line, text.column, error)


class _Window:
    """Buffered part of a text with a read position: `line` and `column` in the file, from 1."""

    def __init__(self, chunks: Iterable[str]):
        self._chunks = iter(chunks)
        self._text = ""
        self._offset = 0
        self.line, self.column = 1, 1

    def next_character(self) -> str:
        """Skip white space and return the next character, "" at the end."""
        while True:
            self._advance_to(_skip_white_space(self._text, self._offset))
            if self._offset < len(self._text) or not self._grow():
                return self._text[self._offset : self._offset + 1]

    def expect(self, character: str) -> None:
        """Skip `character`. If it is "", check for the end of the text.

        Raises json.JSONDecodeError for another character.
        """
        if self.next_character() != character:
            raise json.JSONDecodeError(
                f"Expecting {character!r}" if character else "Extra data", self._text, self._offset
            )
        self._advance_to(self._offset + len(character))

    def value(self) -> Line:
        """Return the next value. Raises json.JSONDecodeError, with the read position at the error."""
        self.next_character()
        line = self.line
        while True:
            try:
                value, end = _guarded(DECODER.raw_decode, self._text, self._offset)
            except json.JSONDecodeError as error:
                if len(self._text) - self._offset > LONGEST_LINE or not self._grow():
                    self._advance_to(error.pos)
                    raise
                continue
            # A number at the end of the window may continue in the next chunk.
            if end < len(self._text) or not self._grow():
                self._advance_to(end)
                return Line(line, value)

    def _grow(self) -> bool:
        """Read one more chunk and discard the text before the read position. Returns False at the end."""
        chunk = next(self._chunks, "")
        if chunk:
            self._text, self._offset = self._text[self._offset :] + chunk, 0
        return bool(chunk)

    def _advance_to(self, end: int) -> None:
        if n_lines := self._text.count("\n", self._offset, end):
            self.line += n_lines
            self.column = end - self._text.rindex("\n", self._offset, end)
        else:
            self.column += end - self._offset
        self._offset = end


def upload_limit(advice: str) -> Callable[[File], None]:
    """Return a file size validator for forms and serializers. advice: how to import a larger file."""

    # Imported here because the Python API reads files without Django.
    from django.core.exceptions import ValidationError

    def check(file: File) -> None:
        if file.size > LARGEST_FILE:
            raise ValidationError(f"The file is larger than {LARGEST_FILE_MB} MB. {advice[:1].upper()}{advice[1:]}.")

    return check
