"""Write files all at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kgharvest.errors import DomainError


class NotWritable(DomainError):
    """A file that cannot be written where it should go."""


def check_writable(path: Path) -> None:
    """Raise NotWritable before long work is done for a file that could not be written."""
    if path.is_dir():
        raise NotWritable(f"{path} is a folder; name a file.")
    if not os.access(path.parent, os.W_OK):
        raise NotWritable(f"{path} cannot be written; check that the folder {path.parent} exists and is yours.")


def write_atomically(path: Path, lines: Iterable[str]) -> None:
    """Write `lines` to `path`, which is the old file or the whole new one at any time."""
    check_writable(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
