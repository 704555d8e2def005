"""Random odd requests: site addresses with odd numbers and texts, bodies, headers, and cookies."""

from __future__ import annotations

import json
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

COOKIE = "a" * 32  # CSRF token
PARAMETER = re.compile(r"\(\?P<\w+>[^)]*\)|<(?:(\w+):)?\w+>")
ODD_TEXTS = [
    "",
    " ",
    "0",
    "-1",
    "1",
    "2",
    "3",
    "1e999",
    "nan",
    "NaN",
    "null",
    "true",
    "None",
    "[]",
    "{}",
    "a",
    "human",
    "multi",
    "embedded",
    "top:10",
    "precision:0.8",
    "share:nan",
    "base:0",
    "score:1e400",
    "2030-01-31",
    "2030-13-99",
    "99999999999999999999",
    "9" * 5000,
    "a" * 300,
    "é" * 101,
    "\x00",
    "a\x00b",
    "\ud800",
    "😀",
    "\u202e",
    "%00",
    "../../etc/passwd",
    "<script>",
    "'\"--",
    "<ENT0> prevents <ENT1>",
    "<ENT0> <ENT0>",
    "<ENT9999>",
    "{{ 7 }}",
    "a|b\nc|d",
    "\n\r\t",
    "//evil.example",
    "http://[",
    "on",
]
ODD_TYPES = [
    "application/x-www-form-urlencoded",
    "application/x-www-form-urlencoded; charset=utf-8",
    "application/json",
    "application/x-www-form-urlencoded; charset=utf-16",
    "application/json; charset=hex",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=\xff",
    "text/plain; charset=punycode",
    "text/html",
    ";;",
    "",
    "a*=b'c'd",
    "application/json; a*=nonsense'x'y",
    "application/xml",
    "multipart/mixed; boundary=x",
]
ODD_HEADERS = {
    "HTTP_ACCEPT": ["*/*", "application/json", "text/html", "application/xml", "\xff", ";q=", "a" * 5000],
    "HTTP_ACCEPT_LANGUAGE": ["de", "x" * 1000, "\xff", "en;q=nan", "*"],
    "HTTP_HOST": ["127.0.0.1", "localhost", "evil.example", "a b", "", "[::1", "127.0.0.1:99999", "\xff"],
    "HTTP_X_FORWARDED_FOR": ["1.2.3.4", "\xff", "::1%eth0", "1,2,3", "a" * 1000],
    "HTTP_X_FORWARDED_PROTO": ["https", "gopher"],
    "HTTP_REFERER": ["http://127.0.0.1/", "http://[::1", "\xff", "a" * 5000],
    "HTTP_ORIGIN": ["http://127.0.0.1", "null", "http://[", "\xff"],
    "HTTP_IF_MODIFIED_SINCE": ["Sat, 01 Jan 2000 00:00:00 GMT", "yesterday", "Sat, 99 Jan 99999 00:00:00 GMT"],
    "HTTP_IF_NONE_MATCH": ['"a"', "*", "\xff"],
    "HTTP_RANGE": ["bytes=0-10", "bytes=-", "bytes=99999999999999999999-"],
    "HTTP_AUTHORIZATION": ["Bearer a", "Bearer", "Basic \xff", "Basic YTpi", "Token " + "a" * 3000, "\xff"],
    "HTTP_X_REQUESTED_WITH": ["XMLHttpRequest"],
    "HTTP_ACCEPT_ENCODING": ["gzip", "\xff", "gzip;q=x"],
    "HTTP_TRANSFER_ENCODING": ["chunked", "gzip"],
    "CONTENT_LENGTH": ["", "0", "-1", "many", "1", "99999999999999999999", "\xb2"],
}
ODD_COOKIES = [
    "sessionid=\x00",
    "sessionid=" + "é" * 40,
    "csrftoken=",
    "a=b; =; ;;",
    "\xff=\xff",
    "messages=a:b",
    "sessionid=" + "a" * 5000,
]
ROLES = ["researcher"] * 4 + ["annotator"] * 2 + ["administrator"] * 2 + ["anonymous"]
ANY_FIELDS = ["name", "action", "q"]
METHODS = ["GET"] * 8 + ["POST"] * 9 + ["HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "BREW", "TRACE"]

Environ = dict[str, Any]


def routes() -> list[str]:
    """Return the addresses of all pages with their parameters, such as /rounds/<str:name>/."""
    from django.urls import get_resolver

    def below(patterns: list[Any], start: str) -> Iterator[str]:
        for pattern in patterns:
            route = start + re.sub(r"^\^|\\Z|\$$", "", str(pattern.pattern)).replace("\\", "")
            if hasattr(pattern, "url_patterns"):
                yield from below(pattern.url_patterns, route)
            else:
                yield f"/{route}"

    return sorted(set(below(get_resolver().url_patterns, "")))


class Known:
    """Parts of requests: addresses, existing names, and the form fields that pages have shown so far."""

    def __init__(self, routes: list[str], names: list[str], cookies: Callable[[], dict[str, str]]):
        self.routes, self.names, self._cookies = routes, names, cookies
        self.fields: dict[str, list[str]] = {}
        self.cookies = cookies()

    def log_in_again(self) -> None:
        self.cookies = self._cookies()


def text(rng: random.Random, known: Known) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(known.names)
    if kind < 0.45:
        return str(rng.randrange(1, 8))
    if kind < 0.55:
        return "".join(
            chr(rng.choice([rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x10000)]))
            for _ in range(rng.randrange(9))
        )
    return rng.choice(ODD_TEXTS)


def path(rng: random.Random, known: Known) -> str:
    def filled(parameter: re.Match[str]) -> str:
        if parameter[1] == "int":
            return str(rng.choice([1, 1, 1, 2, 3, 4, 5, 0, 2**31, 2**63, 10**30]))
        return quote(text(rng, known).encode("utf-8", "surrogatepass"), safe="")

    if rng.random() < 0.03:
        return "/" + quote(text(rng, known).encode("utf-8", "surrogatepass"))
    route = rng.choice(known.routes)
    if route.startswith("/admin/") and rng.random() < 0.8:  # most of the addresses, but little of our code
        route = rng.choice([other for other in known.routes if not other.startswith("/admin/")])
    return PARAMETER.sub(filled, route)


def fields(rng: random.Random, known: Known, address: str) -> list[tuple[str, str]]:
    names = known.fields.get(address) or rng.choice([*known.fields.values(), ANY_FIELDS]) or ANY_FIELDS
    n = rng.randrange(len(names) + 1) if rng.random() < 0.4 else len(names)
    chosen = [(name, text(rng, known)) for name in rng.sample(names, n)]
    return chosen + [(rng.choice(names), text(rng, known)) for _ in range(rng.choice([0, 0, 0, 1, 30]))]


def json_value(rng: random.Random, known: Known, depth: int = 0) -> Any:
    kind = rng.random()
    if depth < 3 and kind < 0.3:
        return {
            text(rng, known).encode("utf-8", "replace").decode(): json_value(rng, known, depth + 1)
            for _ in range(rng.randrange(5))
        }
    if depth < 3 and kind < 0.45:
        return [json_value(rng, known, depth + 1) for _ in range(rng.randrange(5))]
    return rng.choice([None, True, False, 0, -1, 1, 10**40, 1.5, float("nan"), float("inf"), text(rng, known)])


def file_content(rng: random.Random, known: Known) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(400))
    if kind == 1:
        return b"\n".join(json.dumps(json_value(rng, known)).encode() for _ in range(rng.randrange(9)))
    if kind == 2:
        archive = BytesIO()
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr(
                rng.choice(["a/train.jsonl", "a.jsonl", "../b.jsonl", "c"]), json.dumps(json_value(rng, known))
            )
        content = archive.getvalue()
        return content[: rng.randrange(len(content))] if rng.random() < 0.5 else content
    if kind == 3:
        return ("relation,entities,annotator,label\n" + ",".join(text(rng, known) for _ in range(4))).encode(
            "utf-8", "replace"
        )
    if kind == 4:
        relation = {
            "name": text(rng, known),
            "initial_prompts": [text(rng, known)],
            "seed_tuples": json_value(rng, known),
        }
        return json.dumps({"relations": [relation], "name": text(rng, known)}).encode()
    return b"[" * rng.choice([1, 100_000])


def multipart(rng: random.Random, known: Known, address: str) -> bytes:
    parts = []
    for name, value in fields(rng, known, address):
        head = f'--x\r\nContent-Disposition: form-data; name="{name}"'
        if rng.random() < 0.3 or "file" in name or "facts" in name:
            name_of_file = rng.choice(["a.json", "b.jsonl", "c.zip", "d.csv", "\x00", "é" * 300, ""])
            parts.append(f'{head}; filename="{name_of_file}"\r\n\r\n'.encode() + file_content(rng, known))
        else:
            parts.append(f"{head}\r\n\r\n{value}".encode("utf-8", "replace"))
    body = b"\r\n".join([*parts, b"--x--\r\n"])
    return body[: rng.randrange(len(body))] if rng.random() < 0.1 else body


def body(rng: random.Random, known: Known, address: str) -> tuple[str, bytes]:
    kind = rng.random()
    if kind < 0.5:
        encoded = urlencode(
            [(key, value.encode("utf-8", "surrogatepass")) for key, value in fields(rng, known, address)]
        ).encode()
        return "application/x-www-form-urlencoded", encoded
    if kind < 0.7:
        return "multipart/form-data; boundary=x", multipart(rng, known, address)
    if kind < 0.88:
        return "application/json", json.dumps(json_value(rng, known)).encode()
    return rng.choice(ODD_TYPES), rng.choice([b"", rng.randbytes(50), b"a=b&c=%ff", b"--x\r\n", b"{", b"\xff\xfe"])


def draw_request(rng: random.Random, known: Known) -> Environ:
    address = path(rng, known)
    media_type, content = body(rng, known, address)
    method = rng.choice(METHODS)
    query = urlencode(
        [
            (name, text(rng, known).encode("utf-8", "surrogatepass"))
            for name in rng.choices(QUERIES, k=rng.choice([0, 0, 1, 3]))
        ]
    )
    role = rng.choice(ROLES)
    environ: Environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": unquoted(address),
        "QUERY_STRING": query if rng.random() < 0.95 else rng.choice(["a=%00", "%", "\xff=\xff", "&" * 20_000]),
        "CONTENT_TYPE": media_type,
        "CONTENT_LENGTH": str(len(content)),
        "wsgi.input": BytesIO(content),
        "HTTP_COOKIE": known.cookies[role] if rng.random() < 0.95 else rng.choice(ODD_COOKIES),
        "HTTP_X_CSRFTOKEN": COOKIE,
        "HTTP_HOST": "127.0.0.1",
        "role": role,
    }
    if rng.random() < 0.2:
        name = rng.choice(list(ODD_HEADERS))
        environ[name] = rng.choice(ODD_HEADERS[name])
    return environ


QUERIES = [
    "q",
    "page",
    "sort",
    "set",
    "next",
    "before",
    "after",
    "status",
    "relation",
    "model",
    "setting",
    "format",
    "limit",
    "offset",
    "find",
    "entity",
    "cut",
    "n",
    "table",
    "job",
    "round",
    "compare",
    "annotator",
    "verdict",
    "size",
    "ids",
]


def unquoted(address: str) -> str:
    """Return the path as in WSGI: one character per byte."""
    return unquote_to_bytes(address.encode("utf-8", "surrogatepass")).decode("latin-1")
