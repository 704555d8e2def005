"""Odd requests as every role: none may be answered with a 5xx, or leave the application as an exception.

    python benches/fuzz_requests.py [--requests 20000] [--seed 0] [--only NUMBER]     an empty database of its own

Each request is drawn from the seed and its number: an address of ours with odd numbers and texts in it, a method, a
body (forms with the fields that pages have, JSON, files, nothing), odd heads, charsets and cookies, as nobody, an
annotator, a researcher or an administrator. It goes to the application as gunicorn serves it. Prints each
failure with its number, and how many answers had which status; ends with status 1 if one failed. DATABASE_URL and
DEBUG=1 choose another database than SQLite.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode
from wsgiref.util import setup_testing_defaults

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

COOKIE = "a" * 32  # for CSRF
SLOW_S = 10.0
PARAMETER = re.compile(r"\(\?P<\w+>[^)]*\)|<(?:(\w+):)?\w+>")
NAME = re.compile(r'name="([^"]+)"')
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
ODD_HEADS = {
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


# -- what is asked -----------------------------------------------------------------------------------------------------


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
    """What requests are made of: addresses, names that exist, and the fields that pages have shown so far."""

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
    if route.startswith("/admin/") and rng.random() < 0.8:  # most of the addresses, and least of what is ours
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
        name = rng.choice(list(ODD_HEADS))
        environ[name] = rng.choice(ODD_HEADS[name])
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
    """Return the path as WSGI has it: its bytes, each as a character."""
    return unquote_to_bytes(address.encode("utf-8", "surrogatepass")).decode("latin-1")


# -- asking ------------------------------------------------------------------------------------------------------------


def ask(application: Any, environ: Environ) -> tuple[int, bytes]:
    """Return status and page. Raises what leaves the application."""
    environ = {**environ}
    setup_testing_defaults(environ)
    statuses: list[str] = []
    answer = application(environ, lambda status, *rest: statuses.append(status))
    try:
        page = b"".join(answer)
    finally:
        if hasattr(answer, "close"):
            answer.close()
    return int(statuses[0].split()[0]), page


def fuzz(known: Known, seed: int, numbers: range, say: Callable[[str], None] = print) -> tuple[Counter[int], int]:
    """Return how many answers had which status, and how many requests failed, each of which `say` is told."""
    from kgharvest.wsgi import application

    statuses: Counter[int] = Counter()
    n_failed = 0
    for number in numbers:
        rng = random.Random(f"{seed}:{number}")
        if not number % 100:
            known.log_in_again()
        environ = draw_request(rng, known)
        started = time.monotonic()
        try:
            status, page = ask(application, environ)
            fault = f"answered {status}" if status >= 500 else ""
        except Exception:  # whatever leaves the application is what is looked for
            status, page, fault = 0, b"", traceback.format_exc(limit=-6)
        statuses[status] += 1
        if (took_s := time.monotonic() - started) > SLOW_S:
            say(f"request {number} took {took_s:.0f} s: {environ['REQUEST_METHOD']} {environ['PATH_INFO']!r:.100}")
        if environ["REQUEST_METHOD"] == "GET" and status == 200 and b"<form" in page:
            known.fields[quote(environ["PATH_INFO"])] = sorted(
                set(NAME.findall(page.decode())) - {"csrfmiddlewaretoken", "viewport", "color-scheme"}
            )
        if fault:
            n_failed += 1
            asked = {key: value for key, value in environ.items() if key not in ("wsgi.input", "HTTP_COOKIE")}
            say(f"request {number}: {fault}\n  {asked!r:.600}\n  {environ['wsgi.input'].getvalue()!r:.600}")
    return statuses, n_failed


def cookies_of_roles() -> dict[str, str]:
    """Return the cookies of nobody and of three people, who are made if need be."""
    from django.contrib.auth import get_user_model

    from annotation.models import Annotator
    from tests.factories import make_researcher, make_user
    from tests.load.web_server import logged_in

    users = get_user_model().objects
    roles = {"anonymous": f"csrftoken={COOKIE}"}
    for name, is_superuser in {"researcher": False, "administrator": True}.items():
        user = users.filter(username=f"fuzz-{name}").first() or make_researcher(f"fuzz-{name}")
        users.filter(pk=user.pk).update(is_staff=is_superuser, is_superuser=is_superuser)
        roles[name] = header(logged_in(user))
    annotator = Annotator.objects.order_by("pk").first()
    judge = annotator.user if annotator else make_user()
    roles["annotator"] = header(logged_in(judge))
    return roles


def header(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in {**cookies, "csrftoken": COOKIE}.items())


def populate() -> Known:
    """Fill the database with one of everything."""
    from annotation.models import Round
    from evaluation.reports.services import compute_report
    from tests import factories

    researcher = factories.make_researcher()
    round = factories.make_round([["a", "b"], ["c", "d"], ["e", "f"]], by=researcher, name="fuzzed")
    factories.judge_all(round, ["true", "true", "false"], ["false", "false", "false"])
    compute_report(round).save()
    factories.make_round(3, by=researcher, name="open")
    factories.make_harvest_job("failed")
    factories.make_harvest_job("queued")
    names = [
        "fuzzed",
        "open",
        *Round.objects.values_list("join_token", flat=True),
        "csv",
        "json",
        "jsonl",
        "xlsx",
        "md",
        "true",
        "false",
    ]
    return Known(routes(), names, cookies_of_roles)


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "kgharvest.settings", "KGHARVEST_DATA_DIR": folder}
        import django

        django.setup()
        from django.core.management import call_command

        logging.disable(logging.CRITICAL)
        call_command("migrate", verbosity=0)
        numbers = range(options.requests) if options.only is None else range(options.only, options.only + 1)
        statuses, n_failed = fuzz(populate(), options.seed, numbers)
    print(
        f"{sum(statuses.values())} requests, seed {options.seed}: {dict(sorted(statuses.items()))}, {n_failed} failed"
    )
    return not n_failed


if __name__ == "__main__":
    sys.exit(not main())
