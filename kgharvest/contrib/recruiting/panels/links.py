"""How people come from a platform and go back to it: parameters of the entry link, and return addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from django.core.exceptions import ValidationError
from django.http import QueryDict

from kgharvest.errors import DomainError

if TYPE_CHECKING:
    from kgharvest.contrib.recruiting.panels.models import Panel

LONGEST_VALUE = 200  # characters, of a parameter
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PLACEHOLDERS = ("code", "participant", "study", "session")
NOT_FILLED_IN = re.compile(r"[{}%<>]")  # what platforms write around the names of their variables


class BadEntryLink(DomainError):
    """An entry link without a parameter that the panel names, or with one twice."""


class Entry(NamedTuple):
    """Who comes by an entry link. study, session: empty where the panel has no parameter for it."""

    participant: str
    study: str
    session: str


def read_entry(panel: Panel, query: QueryDict) -> Entry:
    """Return who comes by the panel's link with this query. Raises BadEntryLink."""
    return Entry(*(_value(name, query) if name else "" for name in parameters(panel)))


def parameters(panel: Panel) -> tuple[str, str, str]:
    """Return under which names the link has participant, study and session; an empty one it has not."""
    return panel.participant_parameter, panel.study_parameter, panel.session_parameter


def _value(name: str, query: QueryDict) -> str:
    values = query.getlist(name)
    if len(values) > 1:
        raise BadEntryLink(f"Your link has “{name}” more than once, so we cannot know who you are; {ASK}")
    value = values[0].strip() if values else ""
    if not value:
        raise BadEntryLink(f"Your link lacks “{name}”, by which we know who you are; {ASK}")
    if len(value) > LONGEST_VALUE or not value.isprintable() or NOT_FILLED_IN.search(value):
        raise BadEntryLink(f"“{name}” in your link is nothing that names a person; {ASK}")
    return value


ASK = "open the study from the platform's page once more, and tell its researchers if this comes again."


def with_parameters(address: str, panel: Panel, values: tuple[str, str, str]) -> str:
    """Return an entry link with a value for each parameter that the panel has, as it is to be pasted: not encoded."""
    pairs = [f"{name}={value}" for name, value in zip(parameters(panel), values, strict=True) if name]
    return f"{address}?{'&'.join(pairs)}"


def check_return_address(address: str) -> None:
    """Raise ValidationError unless people can be sent there: http or https, our placeholders only, after the host."""
    for problem in _problems(address):
        raise ValidationError(problem)


def _problems(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or not address.isprintable() or " " in address:
        yield "Give an address that begins with https:// or http://."
    if PLACEHOLDER.search(parts.netloc):
        yield "What is in braces may stand only after the name of the host."
    unknown = [name for name in PLACEHOLDER.findall(address) if name not in PLACEHOLDERS]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        yield f"{{{unknown[0]:.40}}} is none of {known}."


def return_address(template: str, code: str, entry: Entry) -> str:
    """Return where somebody goes, each placeholder filled in and encoded; empty for no template."""
    values = {"code": code, **entry._asdict()}
    return PLACEHOLDER.sub(lambda placeholder: quote(values[placeholder[1]], safe=""), template)
