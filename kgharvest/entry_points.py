"""Entry points, with which installed distributions add entries to registries. See docs/extending.md.

Imports only the standard library, so that the pure libraries can use it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import metadata
from typing import Any, TypeVar

PROMPT_SETTINGS = "kgharvest.prompt_settings"
LM_FAMILIES = "kgharvest.lm_families"
EXPORTS = "kgharvest.exports"
PANELS = "kgharvest.panels"
REPORT_SECTIONS = "kgharvest.report_sections"
STUDY_SECTIONS = "kgharvest.study_sections"

Entry = TypeVar("Entry")


@cache
def entry_points(group: str) -> Mapping[str, Any]:
    """Load the objects of a group, and return them by name. Raises ImportError with the name of the distribution."""
    objects: dict[str, Any] = {}
    for point in sorted(metadata.entry_points(group=group), key=lambda point: point.name):
        distribution = point.dist.name if point.dist else "an unknown distribution"
        if point.name in objects:
            raise ImportError(f"{distribution} adds {point.name!r} to {group}, but another distribution also adds it.")
        try:
            objects[point.name] = point.load()
        except Exception as error:
            raise ImportError(
                f"The entry point {point.name!r} of {distribution} in {group} ({point.value}) cannot be loaded: "
                f"{error}. Update or uninstall {distribution}."
            ) from error
    return objects


class Registry(Mapping[str, Entry]):
    """Built-in entries, followed by entries of installed distributions, which are loaded on the first lookup.

    condition: condition that entries must satisfy; other entries are omitted.
    """

    def __init__(
        self, group: str, built_in: Mapping[str, Entry], condition: Callable[[Entry], bool] = lambda entry: True
    ) -> None:
        self._group, self._built_in, self._condition = group, built_in, condition

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        added = entry_points(self._group)
        if duplicates := sorted(self._built_in.keys() & added.keys()):
            raise ImportError(f"A distribution adds {duplicates[0]!r} to {self._group}, but kgharvest already has it.")
        return {name: entry for name, entry in {**self._built_in, **added}.items() if self._condition(entry)}

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
