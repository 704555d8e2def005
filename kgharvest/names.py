"""Names that people write for relations and LMs: which one is meant, and what to call each shortly.

A full name ("set/relation", a hub id, a folder) always wins; a short one, its last part, counts only where exactly one
thing bears it. So a full name is never taken for the short name of something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from kgharvest.bulk.file_reading import CONTROL
from kgharvest.engine.language_models.served.names import served_name
from kgharvest.errors import DomainError, NotFound

MOST_CANDIDATES = 10  # that a refusal names


class UnresolvedName(NotFound):
    """A name that nothing bears, or several things; the sentence says what could be written instead."""

    def __init__(self, sentence: str, is_ambiguous: bool = False):
        self.is_ambiguous = is_ambiguous
        super().__init__(sentence)


def check_name(name: str, longest: int, what: str) -> None:
    """Raise BadName unless `name` has 1 to `longest` characters and no control characters.

    what: it names, for the refusal: "LM", "setting".
    """
    if not name or len(name) > longest:
        raise DomainError(
            "BadName", f"The name {name!r:.60} of the {what} has {len(name):,} characters; give one of 1 to {longest}."
        )
    if CONTROL.search(name) or "\n" in name:
        raise DomainError("BadName", f"The name {name!r:.60} of the {what} has a control character; leave it out.")


def short_name(full_name: str) -> str:
    """Return the last part of "set/relation", a hub id, a folder, or an LM's name at its server."""
    if "#" in full_name and (served := served_name(full_name)):
        full_name = served.model
    return full_name.rstrip("/").rsplit("/", 1)[-1]


def shortest_names(full_names: Iterable[str], shorten: Callable[[str], str] = short_name) -> dict[str, str]:
    """Return what to call each: its short name, or the full one where several have the same short name."""
    full_names = set(full_names)
    n_bearers = Counter(map(shorten, full_names))
    return {name: shorten(name) if n_bearers[shorten(name)] == 1 else name for name in full_names}


def resolve_name(name: str, full_names: Iterable[str], what: str) -> str:
    """Return the one of `full_names` that `name` means. Raises UnresolvedName.

    what: they are, for the refusal: "relation", "LM".
    """
    full_names = sorted(set(full_names))
    if name in full_names:
        return name
    bearers = [full_name for full_name in full_names if short_name(full_name) == name]
    if len(bearers) == 1:
        return bearers[0]
    if bearers:
        raise UnresolvedName(
            f"{name!r} is the name of {len(bearers)} {what}s; write one of {', '.join(bearers)}.", is_ambiguous=True
        )
    raise UnresolvedName(f"There is no {what} {name!r}; {alternatives(name, full_names)}.")


def alternatives(name: str, known: Sequence[str]) -> str:
    """Return the end of a refusal: which of the known names could have been meant by an unknown one."""
    if not known:
        return "there is none yet"
    shown = get_close_matches(name, known, n=5) or known[:MOST_CANDIDATES]
    return f"choose one of {', '.join(shown)}{' and others' if len(known) > len(shown) else ''}"
