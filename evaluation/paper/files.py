"""Files of a paper pack with their descriptions."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from evaluation.evidence.tables import RowColumn


class PackFile(NamedTuple):
    """A file of a pack. path: below the pack's root, with forward slashes. columns: of Parquet and JSONL files."""

    path: str
    content: bytes
    media_type: str
    description: str
    columns: tuple[RowColumn, ...] = ()

    @property
    def sha256(self) -> str:
        return sha256(self.content).hexdigest()
