"""How long others wait while clients send slowly or nothing: 50 slow ones and 1,100 idle connections on one gunicorn.

    python benches/slow_clients.py [--slow 50] [--idle 1100] [--requests 100] [-- ARGUMENTS OF GUNICORN]

Slow clients send a byte a second of half a head, half a body, a body of chunks, a large upload. Others are answered on
new connections and on one that is kept, with a look into the database. Arguments such as `--worker-class gthread` show
what another worker makes of it. Must hold: nobody waits for a second; ends with status 1 otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.load.web_server import Browser, WebServer  # noqa: E402

LONGEST_WAIT_S = 1.0
HEAD = b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Proto: https\r\nCookie: csrftoken=a\r\n"
FORM = HEAD + b"Content-Type: application/x-www-form-urlencoded\r\n"
BEGINNINGS = [
    HEAD,
    b"GET /accounts/lo",
    FORM + b"Content-Length: 1000\r\n\r\nusername=",
    FORM + b"Transfer-Encoding: chunked\r\n\r\n5\r\nuser",
    HEAD + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 30000000\r\n\r\n--x\r\n" + b"a" * 200_000,
]


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.settimeout(60)
    return connection


def trickle(connections: list[socket.socket], beginnings, ended: threading.Event) -> None:
    for connection, beginning in zip(connections, beginnings, strict=False):
        connection.setblocking(False)
        try:
            connection.send(beginning)
        except OSError:
            continue
    while not ended.wait(1):
        for connection in connections:
            try:
                connection.send(b"a")
            except OSError:
                continue  # refused, or its buffer is full


def waits(port: int, n: int) -> list[float]:
    """Return how many seconds each of `n` requests took, every second one on a new connection."""
    cookies = {"sessionid": "a" * 32}  # which is looked up in the database
    kept = Browser(port, cookies)
    seconds = []
    for number in range(n):
        browser = Browser(port, cookies) if number % 2 else kept
        started = time.monotonic()
        status, _ = browser.request("GET", "/api/schema/")
        seconds.append(time.monotonic() - started)
        assert status == 403, status
    return seconds


def say(what: str, seconds: list[float]) -> None:
    print(f"{what}: median {1000 * median(seconds):.0f} ms, longest {1000 * max(seconds):.0f} ms")


def run(n_slow: int, n_idle: int, n_requests: int, arguments: list[str]) -> bool:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8_192), most))
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/kgharvest.sqlite3"
        os.environ |= {"KGHARVEST_DATA_DIR": folder, "DATABASE_URL": url, "DEBUG": "1"}
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, check=True)
        with WebServer(url, "bench" * 12, *arguments) as server:
            say("alone", waits(server.port, n_requests))
            idle = [connect(server.port) for _ in range(n_idle)]
            slow = [connect(server.port) for _ in range(n_slow)]
            ended = threading.Event()
            sender = threading.Thread(target=trickle, args=[slow, itertools.cycle(BEGINNINGS), ended])
            sender.start()
            try:
                time.sleep(1)
                beside = waits(server.port, n_requests)
            finally:
                ended.set()
                sender.join()
            say(f"beside {n_slow} slow clients and {len(idle)} idle connections", beside)
            return max(beside) < LONGEST_WAIT_S


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--idle", type=int, default=1100)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    sys.exit(not run(options.slow, options.idle, options.requests, options.arguments))
