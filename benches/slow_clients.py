"""Waiting times for a page while other clients send slowly, receive nothing, or hold idle connections.

    python benches/slow_clients.py [--slow 50] [--idle 1100] [ARGUMENTS OF GUNICORN]     such as --worker-class gthread

Runs on SQLite, the embedded default, in its own folder. Passes if a page arrives within a second with 50 clients of
each slow kind and with 1,100 idle connections, if requests that two servers could parse differently are rejected, and
if an upload in progress when the server is told to stop is answered.
"""

from __future__ import annotations

import argparse
import resource
import secrets
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.installation import migrate, set_up_django
from tests.load import slow_clients
from tests.load.web_server import WebServer, collect_static_files

LIMIT_S = 1.0
N_REQUESTS = 10


def longest_wait(port: int) -> float:
    try:
        return max(slow_clients.wait_for_page(port) for _ in range(N_REQUESTS))
    except OSError:
        return slow_clients.WAIT_S


def measure(server: WebServer, n_slow: int, n_idle: int) -> bool:
    holds = True
    longest_wait(server.port)  # warm up: one-time loading
    kinds = [
        (slow_clients.half_sent, n_slow),
        (slow_clients.half_a_body, n_slow),
        (slow_clients.reading_nothing, n_slow),
        (slow_clients.idle, n_idle),
    ]
    for kind, n in kinds:
        with slow_clients.many(kind, n, server.port):
            wait_s = longest_wait(server.port)
        print(f"{n:>5} {kind.__name__:<20} longest of {N_REQUESTS} waits: {1000 * wait_s:6.0f} ms", flush=True)
        holds &= wait_s < LIMIT_S
    for name, (text, expected) in slow_clients.ODD_FRAMES.items():
        got = slow_clients.statuses(slow_clients.send(server.port, text))
        print(f"{name:<30} answered {got}" + (f", expected {expected}" if got != expected else ""))
        holds &= got == expected
    status = slow_clients.upload_while_it_stops(server)
    print(f"an upload while the server stops: answered {status}")
    return holds and status == 403  # the upload has no CSRF token


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--idle", type=int, default=1100)
    options, arguments = parser.parse_known_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/kgharvest.sqlite3"
        set_up_django(folder, DATABASE_URL=database, DEBUG="1")
        migrate()
        collect_static_files()
        with WebServer(database, secrets.token_urlsafe(64), *arguments) as server:
            return measure(server, options.slow, options.idle)


if __name__ == "__main__":
    sys.exit(not main())
