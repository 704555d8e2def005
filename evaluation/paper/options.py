"""What may be said of a pack: its licence, and whom to cite."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kgharvest.errors import DomainError

SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
MOST_AUTHORS = 200
LONGEST_NAME = 200  # characters


class BadPackOption(DomainError):
    """A licence or an author that cannot be written down."""


def check_licence(licence: str) -> str:
    """Raises BadPackOption."""
    if licence and not SPDX.fullmatch(licence):
        raise BadPackOption(f"{licence!r:.80} is no identifier of a licence; give one of SPDX, such as CC-BY-4.0.")
    return licence


def check_authors(authors: Sequence[str]) -> Sequence[str]:
    """Raises BadPackOption."""
    if len(authors) > MOST_AUTHORS:
        raise BadPackOption(f"These are {len(authors)} authors; give {MOST_AUTHORS} at most.")
    for author in authors:
        if not author.strip() or len(author) > LONGEST_NAME or not author.isprintable():
            raise BadPackOption(f'{author!r:.80} is no name; write "Family, Given" on one line.')
    return authors
