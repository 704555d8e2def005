"""Atomic and chunked file writing."""

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgharvest.errors import DomainError

CHUNK_SIZE = 50_000  # characters per chunk
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def check_writable(path: Path) -> None:
    """Raise NotWritable if `path` cannot be written. Call it before long computations."""
    if path.is_dir():
        raise DomainError("NotWritable", f"{path} is a folder. Enter the path of a file.")
    if not os.access(path.parent, os.W_OK):
        raise DomainError(
            "NotWritable", f"{path} cannot be written. Check that the folder {path.parent} exists and is writable."
        )


def write_atomically(path: Path, lines: Iterable[str | bytes]) -> None:
    """Replace the file at `path` in one step after all `lines` are written. Raises NotWritable."""
    check_writable(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.writelines(line if isinstance(line, bytes) else line.encode() for line in lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise DomainError(
            "NotWritable", f"{path} cannot be written ({error.strerror}). Free disk space or choose another file."
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Replace the file at `path` unless it has this content; return whether it was replaced. Raises NotWritable."""
    encoded = content if isinstance(content, bytes) else content.encode()
    if path.exists() and path.read_bytes() == encoded:
        return False
    write_atomically(path, [encoded])
    return True


def in_chunks(lines: Iterable[str | bytes]) -> Iterator[str | bytes]:
    """Join text into chunks of many lines, because each yielded piece has overhead. Bytes are yielded unchanged."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        if isinstance(line, bytes):
            yield line
            continue
        chunk.append(line)
        size += len(line)
        if size > CHUNK_SIZE:
            yield "".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield "".join(chunk)


class StreamedFile(io.RawIOBase):
    """Write-only file in memory. `take` returns and removes the bytes written so far."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
