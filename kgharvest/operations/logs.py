"""What the log has of a request: an id that goes with it everywhere, and nothing about who made it.

No names, mail addresses, tokens or query strings: addresses of requests are logged as the pattern that they fit, and
what looks like a mail address or a token is blacked out wherever it comes from. The one exception is the network
address in the line of a failed login, which fail2ban reads (docs/operations.md).
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from uuid import uuid4

from django.db import DatabaseError
from django.http import HttpRequest

request_id: ContextVar[str] = ContextVar("request_id", default="")

GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# Each run of characters is looked at once: what clients send is in the log, and may be 64 kB without a space.
PRIVATE = re.compile(r"""(?P<mail>(?<![^\s@<>"'=:,])[^\s@<>"'=:,]++@[^\s@<>"',]+\.\w+)|\bkgh_\w+""")
UNKNOWN_ADDRESS = "an unknown address"


def id_of(request: HttpRequest) -> str:
    """Return the id that a proxy or client gave the request in X-Request-ID, or a new one."""
    given = request.headers.get("X-Request-ID", "")
    return given if GIVEN_ID.fullmatch(given) else uuid4().hex


@contextmanager
def logged_under(identifier: str) -> Iterator[None]:
    """Have every line of the log that is written inside carry `identifier`."""
    token = request_id.set(identifier)
    try:
        yield
    finally:
        request_id.reset(token)


def route_of(request: HttpRequest) -> str:
    """Return the pattern that the address fits, as "join/<slug:token>/"."""
    return request.resolver_match.route if request.resolver_match else UNKNOWN_ADDRESS


def without_addresses(record: logging.LogRecord) -> bool:
    """Filter: name the request's route in the place of its path, and add the request's id."""
    record.request_id = request_id.get()
    request = getattr(record, "request", None)
    if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
        paths = {request.path, request.get_full_path()}
        record.args = tuple(route_of(request) if argument in paths else argument for argument in record.args)
    return True


def blacked_out(text: str) -> str:
    return PRIVATE.sub(lambda match: "[mail]" if match["mail"] else "[token]", text)


class LineFormatter(logging.Formatter):
    """One line for people, with the request's id at its end."""

    def format(self, record: logging.LogRecord) -> str:
        text = blacked_out(super().format(record))
        identifier = getattr(record, "request_id", "")
        first, *more = text.split("\n")
        return "\n".join([f"{first} [{identifier}]" if identifier else first, *more])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, and what `extra` has under "facts"."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": blacked_out(record.getMessage()),
            "request_id": getattr(record, "request_id", ""),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)
            text = str(error)
            if isinstance(error, DatabaseError):  # the next lines quote rows
                text = text.partition("\n")[0]
            line["error"] = blacked_out(f"{type(error).__name__}: {text}" if text else type(error).__name__)
            line["traceback"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=False, default=str)
