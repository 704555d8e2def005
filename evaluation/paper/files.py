"""Files of a paper pack with their descriptions, and checks of its license and authors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from kgharvest.errors import DomainError


class PackColumn(NamedTuple):
    """A column of rows. type: "string", "integer", "number", "boolean" or "datetime" (ISO 8601, UTC)."""

    name: str
    type: str
    description: str


class PackFile(NamedTuple):
    """A file of a pack. path: below the pack's root, with forward slashes. columns: of Parquet and JSONL files."""

    path: str
    content: bytes
    media_type: str
    description: str
    columns: tuple[PackColumn, ...] = ()

    @property
    def sha256(self) -> str:
        return sha256(self.content).hexdigest()


# Licence and authors

SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
MOST_AUTHORS = 200
LONGEST_NAME = 200  # characters


def check_licence(licence: str) -> str:
    """Raises BadPackOption."""
    if licence and not SPDX.fullmatch(licence):
        raise DomainError(
            "BadPackOption", f"{licence!r:.80} is no identifier of a licence; give one of SPDX, such as CC-BY-4.0."
        )
    return licence


def check_authors(authors: Sequence[str]) -> Sequence[str]:
    """Raises BadPackOption."""
    if len(authors) > MOST_AUTHORS:
        raise DomainError("BadPackOption", f"These are {len(authors)} authors; give {MOST_AUTHORS} at most.")
    for author in authors:
        if not author.strip() or len(author) > LONGEST_NAME or not author.isprintable():
            raise DomainError("BadPackOption", f'{author!r:.80} is no name; write "Family, Given" on one line.')
    return authors
