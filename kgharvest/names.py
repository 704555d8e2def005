"""Name resolution for relations and LMs.

A full name is "set/relation", a hub id, or a folder. A short name is the last part of a full name and is valid only if
it is unique. Full names take precedence.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from kgharvest.bulk.file_reading import CONTROL
from kgharvest.engine.language_models.served.names import served_name
from kgharvest.errors import DomainError, NotFound

MOST_CANDIDATES = 10  # maximum number of names in an error message


class UnresolvedName(NotFound):
    """An unknown or ambiguous name. The message lists alternatives."""

    def __init__(self, sentence: str, is_ambiguous: bool = False):
        self.is_ambiguous = is_ambiguous
        super().__init__(sentence)


def check_name(name: str, longest: int, what: str) -> None:
    """Raise BadName unless `name` has 1 to `longest` characters and no control characters.

    what: kind of object for the message, for example "LM".
    """
    if not name or len(name) > longest:
        raise DomainError("BadName", f"The {what} name {name!r:.60} has {len(name):,} characters. Use 1 to {longest}.")
    if CONTROL.search(name) or "\n" in name:
        raise DomainError("BadName", f"The {what} name {name!r:.60} has a control character. Remove it.")


def short_name(full_name: str) -> str:
    """Return the last part of "set/relation", a hub id, a folder, or the name of an LM behind a server."""
    if "#" in full_name and (served := served_name(full_name)):
        full_name = served.model
    return full_name.rstrip("/").rsplit("/", 1)[-1]


def shortest_names(full_names: Iterable[str], shorten: Callable[[str], str] = short_name) -> dict[str, str]:
    """Map each full name to its short name if the short name is unique, otherwise to itself."""
    full_names = set(full_names)
    n_names = Counter(map(shorten, full_names))
    return {name: shorten(name) if n_names[shorten(name)] == 1 else name for name in full_names}


def resolve_name(name: str, full_names: Iterable[str], what: str) -> str:
    """Return the full name of `name`. Raises UnresolvedName. what: kind of object for the message."""
    full_names = sorted(set(full_names))
    if name in full_names:
        return name
    matches = [full_name for full_name in full_names if short_name(full_name) == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnresolvedName(
            f"{name!r} is the name of {len(matches)} {what}s; write one of {', '.join(matches)}.", is_ambiguous=True
        )
    raise UnresolvedName(f"There is no {what} {name!r}; {alternatives(name, full_names)}.")


def alternatives(name: str, existing_names: Sequence[str]) -> str:
    """Return the end of an error message about an unknown name: similar existing names."""
    if not existing_names:
        return "none exist yet"
    shown = get_close_matches(name, existing_names, n=5) or existing_names[:MOST_CANDIDATES]
    return f"choose one of {', '.join(shown)}{' and others' if len(existing_names) > len(shown) else ''}"
