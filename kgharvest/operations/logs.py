"""Request logging with an id for each request and without personal data.

Log lines contain no names, email addresses, tokens, or query strings. Request paths are logged as URL patterns, and
anything that looks like an email address or a token is masked. The only exception is the network address of a failed
login, which fail2ban reads (docs/operations.md).
"""

import json
import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from django.db import DatabaseError
from django.http import HttpRequest

request_id: ContextVar[str] = ContextVar("request_id", default="")

CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# The pattern scans each run of characters only once, because clients can send 64 kB without a space.
PRIVATE = re.compile(r"""(?P<mail>(?<![^\s@<>"'=:,])[^\s@<>"'=:,]++@[^\s@<>"',]+\.\w+)|\bkgh_\w+""")
UNKNOWN_ROUTE = "an unknown address"


@contextmanager
def logged_under(identifier: str) -> Iterator[None]:
    """Add the id to all log lines written in the block."""
    token = request_id.set(identifier)
    try:
        yield
    finally:
        request_id.reset(token)


def route_of(request: HttpRequest) -> str:
    """Return the URL pattern of the request, such as "join/<slug:token>/"."""
    return request.resolver_match.route if request.resolver_match else UNKNOWN_ROUTE


def without_addresses(record: logging.LogRecord) -> bool:
    """Logging filter that replaces the request's path with its URL pattern and adds the request's id."""
    record.request_id = request_id.get()
    request = getattr(record, "request", None)
    if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
        paths = {request.path, request.get_full_path()}
        record.args = tuple(route_of(request) if argument in paths else argument for argument in record.args)
    return True


def blacked_out(text: str) -> str:
    return PRIVATE.sub(lambda match: "[mail]" if match["mail"] else "[token]", text)


class LineFormatter(logging.Formatter):
    """Formatter for plain text, with the request's id at the end of the first line."""

    def format(self, record: logging.LogRecord) -> str:
        text = blacked_out(super().format(record))
        identifier = getattr(record, "request_id", "")
        first, *more = text.split("\n")
        return "\n".join([f"{first} [{identifier}]" if identifier else first, *more])


class JsonFormatter(logging.Formatter):
    """Formatter for JSON lines with time, level, logger, message, request_id, and the entries of `extra["facts"]`."""

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
            if isinstance(error, DatabaseError):  # only the first line, because the rest of the message quotes rows
                text = text.partition("\n")[0]
            line["error"] = blacked_out(f"{type(error).__name__}: {text}" if text else type(error).__name__)
            line["traceback"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=False, default=str)
