"""Parameters and placeholders in the entry links and return URLs of a panel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from django.core.exceptions import ValidationError
from django.http import QueryDict

from kgharvest.errors import DomainError

if TYPE_CHECKING:
    from kgharvest.contrib.recruiting.panels.models import Panel

LONGEST_VALUE = 200  # maximum number of characters of a parameter
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PLACEHOLDERS = ("code", "participant", "study", "session")
NOT_FILLED_IN = re.compile(r"[{}%<>]")  # platforms put these characters around variable names
ASK = "Open the study from the platform's page again. If this message reappears, contact the researchers."


class BadEntryLink(DomainError):
    """The entry link was not issued by the platform, or a parameter is missing, repeated, or not filled in."""


class Entry(NamedTuple):
    """Identifiers in an entry link. `study` and `session` are empty if the panel has no parameter for them."""

    participant: str
    study: str
    session: str


def read_entry(panel: Panel, query: QueryDict) -> Entry:
    """Return the identifiers in the query of an entry link. Raises BadEntryLink."""
    return Entry(*(_value(name, query) if name else "" for name in parameters(panel)))


def parameters(panel: Panel) -> tuple[str, str, str]:
    """Return the parameter names for participant, study, and session. A name is empty if the panel does not use it."""
    return panel.participant_parameter, panel.study_parameter, panel.session_parameter


def _value(name: str, query: QueryDict) -> str:
    values = query.getlist(name)
    if len(values) > 1:
        raise BadEntryLink(f"Your link contains the “{name}” parameter more than once. {ASK}")
    value = values[0].strip() if values else ""
    if not value:
        raise BadEntryLink(f"Your link is missing the “{name}” parameter that identifies you. {ASK}")
    if len(value) > LONGEST_VALUE or not value.isprintable() or NOT_FILLED_IN.search(value):
        raise BadEntryLink(f"The “{name}” parameter of your link does not identify a participant. {ASK}")
    return value


def with_parameters(address: str, panel: Panel, values: tuple[str, str, str]) -> str:
    """Return an entry link with these parameter values, unencoded and ready to paste on the platform."""
    pairs = [f"{name}={value}" for name, value in zip(parameters(panel), values, strict=True) if name]
    return f"{address}?{'&'.join(pairs)}"


def check_return_address(address: str) -> None:
    """Raise ValidationError unless this is an http(s) URL whose placeholders are supported and not in the host name."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or not address.isprintable() or " " in address:
        raise ValidationError("Enter a URL that begins with https:// or http://.")
    if PLACEHOLDER.search(parts.netloc):
        raise ValidationError("Placeholders in braces are allowed only after the host name.")
    for name in PLACEHOLDER.findall(address):
        if name not in PLACEHOLDERS:
            supported = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            raise ValidationError(f"Unknown placeholder {{{name:.40}}}. Use {supported}.")


def return_address(template: str, code: str, entry: Entry) -> str:
    """Return the return URL with all placeholders filled in and encoded. An empty template gives an empty URL."""
    values = {"code": code, **entry._asdict()}
    return PLACEHOLDER.sub(lambda placeholder: quote(values[placeholder[1]], safe=""), template)
