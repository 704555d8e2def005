"""Search for secrets in everything an installation writes and sends: logs, responses, files, and the database."""

from __future__ import annotations

import base64
import io
import itertools
import logging
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import unescape
from urllib.parse import quote, urlsplit

from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, get_resolver, reverse

from kgharvest.operations.logs import JsonFormatter, LineFormatter, without_addresses
from kgharvest.settings import without_traceback_of_refusals

HREF = re.compile(r'href="([^"#]+)"')
MOST_REQUESTS = 2000


@cache
def forms_of(secret: str) -> set[str]:
    """Return the encodings of a secret: plain, URL-encoded, hexadecimal, and base64 at every offset."""
    bare = secret.encode()
    forms = {secret, quote(secret, safe=""), bare.hex()}
    for offset, start in ((0, 0), (1, 2), (2, 3)):  # skip letters that depend on preceding bytes
        for alphabet in (b"+/", b"-_"):
            letters = base64.b64encode(bytes(offset) + bare, alphabet).decode()
            forms.add(letters[start : len(letters.rstrip("=")) - (2 if letters.endswith("=") else 0)])
    return forms


def found_in(text: str, secrets: Mapping[str, str]) -> list[str]:
    """Return the names of the secrets that a text contains."""
    return [name for name, secret in secrets.items() if any(form in text for form in forms_of(secret))]


class Log(logging.Handler):
    """Log handler that stores records as lines and as JSON, at production log levels."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.addFilter(without_traceback_of_refusals)
        self.addFilter(without_addresses)
        self._formatters = [LineFormatter(settings.LOGGING["formatters"]["lines"]["format"]), JsonFormatter()]
        self._levels: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        for formatter in self._formatters:
            record.exc_text = None  # formatters share this cached traceback
            self.lines.append(formatter.format(record))

    def __enter__(self) -> Log:
        for name in ("", "django"):
            logging.getLogger(name).addHandler(self)
        requests_log = logging.getLogger("kgharvest.requests")
        self._levels["kgharvest.requests"] = requests_log.level
        requests_log.setLevel(logging.INFO)  # as with KGHARVEST_LOG=json
        return self

    def __exit__(self, *reasons) -> None:
        for name in ("", "django"):
            logging.getLogger(name).removeHandler(self)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


# Responses


def addresses(values: Mapping[str, Sequence[object]], *parts: str) -> Iterator[str]:
    """Yield the URLs of routes that contain one of `parts`, for all combinations of parameter `values`."""
    for name, names in _routes(get_resolver().url_patterns):
        if any(part in name[1] for part in parts) and set(names) <= values.keys():
            for combination in itertools.product(*(values[parameter] for parameter in names)):
                try:
                    yield reverse(name[0], kwargs=dict(zip(names, combination, strict=True)))
                except NoReverseMatch:
                    continue


def _routes(patterns, prefix: str = "", namespace: str = "") -> Iterator[tuple[tuple[str, str], list[str]]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from _routes(pattern.url_patterns, route, inner)
        elif pattern.name:
            yield (namespace + pattern.name, route), list(pattern.pattern.converters)


def responses(client: Client, starts: Sequence[str], *without: str) -> Iterator[tuple[str, str]]:
    """Follow all links from `starts` and yield (URL, response text), including the contents of ZIP files.

    Links that differ only in query values are followed once. Links that contain one of `without` are skipped.
    """
    queue, seen = list(starts), {_kind(start) for start in starts}
    while queue:
        address = queue.pop(0)
        response = client.get(address, follow=False)
        content = response.getvalue()
        assert response.status_code < 500, address
        text = unescape(content.decode(errors="replace"))
        yield address, "\n".join([text, str(dict(response.items())), *_zipped(content)])
        if response.headers.get("Content-Type", "").startswith("text/html"):
            for link in HREF.findall(content.decode()):
                target = _target(address, unescape(link))
                if target and _kind(target) not in seen and not any(part in target for part in without):
                    seen.add(_kind(target))
                    queue.append(target)
        assert len(seen) < MOST_REQUESTS


def _kind(address: str) -> tuple[str, ...]:
    path, _, query = address.partition("?")
    return path, *sorted(part.partition("=")[0] for part in query.split("&"))


def _target(address: str, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    if not parts.path:
        return f"{urlsplit(address).path}?{parts.query}" if parts.query else None
    return link if parts.path.startswith("/") else None


def _zipped(content: bytes) -> list[str]:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = [archive.read(name) for name in archive.namelist()]
    return [text for file in files for text in (file.decode(errors="replace"), *_zipped(file))]


# Database


def database() -> Iterator[tuple[str, str]]:
    """Yield (table, row text) of all tables, the output of `dumpdata`, and decoded sessions."""
    if connection.vendor == "sqlite":
        for line in connection.connection.iterdump():
            yield line.partition(" VALUES")[0][:80], line
    dump = io.StringIO()
    call_command("dumpdata", stdout=dump)
    yield "dumpdata", dump.getvalue()
    for session in Session.objects.all():
        yield "session", str(session.get_decoded())
