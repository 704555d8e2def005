"""Fuzz the application with odd requests as every role. None may cause a 5xx or an uncaught exception.

    python benches/fuzz_requests.py [--requests 20000] [--seed 0] [--only NUMBER]     on a new empty database

Each request is drawn from the seed and its number: a site address with odd numbers and texts, a method, a body (forms
with the fields of the pages, JSON, files, or nothing), and odd headers, charsets, and cookies, sent as anonymous user,
annotator, researcher, or administrator. It goes to the application as gunicorn serves it. Prints each failure with its
number, and the number of answers by status. Exits with status 1 if a request failed. DATABASE_URL and DEBUG=1 choose a
database other than SQLite.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from wsgiref.util import setup_testing_defaults

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.installation import migrate, set_up_django
from benches.odd_requests import COOKIE, Environ, Known, draw_request, routes

SLOW_S = 10.0
NAME = re.compile(r'name="([^"]+)"')


def send(application: Any, environ: Environ) -> tuple[int, bytes]:
    """Return status and page. Raises any exception that the application does not catch."""
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


def fuzz(known: Known, seed: int, numbers: range, report: Callable[[str], None] = print) -> tuple[Counter[int], int]:
    """Return the number of answers by status, and the number of failed requests. Calls `report` for each failure."""
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
            status, page = send(application, environ)
            fault = f"answered {status}" if status >= 500 else ""
        except Exception:  # any uncaught exception is a failure
            status, page, fault = 0, b"", traceback.format_exc(limit=-6)
        statuses[status] += 1
        if (took_s := time.monotonic() - started) > SLOW_S:
            report(f"request {number} took {took_s:.0f} s: {environ['REQUEST_METHOD']} {environ['PATH_INFO']!r:.100}")
        if environ["REQUEST_METHOD"] == "GET" and status == 200 and b"<form" in page:
            known.fields[quote(environ["PATH_INFO"])] = sorted(
                set(NAME.findall(page.decode())) - {"csrfmiddlewaretoken", "viewport", "color-scheme"}
            )
        if fault:
            n_failed += 1
            request = {key: value for key, value in environ.items() if key not in ("wsgi.input", "HTTP_COOKIE")}
            report(f"request {number}: {fault}\n  {request!r:.600}\n  {environ['wsgi.input'].getvalue()!r:.600}")
    return statuses, n_failed


def cookies_of_roles() -> dict[str, str]:
    """Return the cookies of an anonymous user and of three accounts, which are created if necessary."""
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
    """Fill the database with one object of every kind."""
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
    set_up_django()
    logging.disable(logging.CRITICAL)
    migrate()
    numbers = range(options.requests) if options.only is None else range(options.only, options.only + 1)
    statuses, n_failed = fuzz(populate(), options.seed, numbers)
    print(
        f"{sum(statuses.values())} requests, seed {options.seed}: {dict(sorted(statuses.items()))}, {n_failed} failed"
    )
    return not n_failed


if __name__ == "__main__":
    sys.exit(not main())
