"""Requests as clients send them, whole, in pieces, never to the end, to a real gunicorn with this worker."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kgharvest.settings import LARGEST_UPLOAD
from kgharvest.web_worker import LONGEST_HEAD

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN_S = 60
THREADS = 2


def echo(environ, start_response) -> list[bytes]:
    """The application: answers with method, path and the body's hash."""
    digest = hashlib.sha256(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))).hexdigest()
    content = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {digest}".encode()
    start_response("200 OK", [("Content-Length", str(len(content)))])
    return [content]


def answer_to(method: str, path: str, body: bytes) -> bytes:
    return f"{method} {path} {hashlib.sha256(body).hexdigest()}".encode()


@contextmanager
def gunicorn() -> Iterator[tuple[subprocess.Popen, int]]:
    """A server with this worker, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = ["tests.kgharvest.test_web_worker:echo", "--bind", f"127.0.0.1:{port}", "--threads", str(THREADS)]
    process = subprocess.Popen([sys.executable, "-m", "gunicorn", *served, "--log-level", "error"], cwd=ROOT)
    try:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < deadline:
            try:
                connect(port).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield process, port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with gunicorn() as (_, port):
        yield port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *length, *headers, "", ""]).encode() + body


def next_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Return status and body of the next answer, and read nothing behind it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, head
        head += byte
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return int(head.split()[1]), body


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
@pytest.mark.parametrize("n_pieces", [1, 7])
def test_a_body_arrives_as_it_was_sent(port, size, n_pieces):
    body = bytes(number % 251 for number in range(size))
    sent = request("POST", "/a", body)
    step = -(-len(sent) // n_pieces)

    with connect(port) as connection:
        for start in range(0, len(sent), step):
            connection.sendall(sent[start : start + step])

        assert next_answer(connection) == (200, answer_to("POST", "/a", body))


def test_a_connection_serves_one_request_after_the_other(port):
    with connect(port) as connection:
        for number in range(5):
            body = bytes(number)
            connection.sendall(request("POST", f"/{number}", body))

            assert next_answer(connection) == (200, answer_to("POST", f"/{number}", body))


def test_requests_sent_without_awaiting_answers_are_all_answered_in_their_order(port):
    bodies = [b"a" * size for size in (0, 10, 70_000, 200_000, 3)]
    with connect(port) as connection:
        connection.sendall(b"".join(request("POST", f"/{len(body)}", body) for body in bodies))

        answers = [next_answer(connection) for _ in bodies]

    assert answers == [(200, answer_to("POST", f"/{len(body)}", body)) for body in bodies]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("POST", "/", b"", "Transfer-Encoding: chunked") + b"1\r\na\r\n0\r\n\r\n", 411),
        (request("POST", "/", b"", f"Content-Length: {LARGEST_UPLOAD + LONGEST_HEAD}"), 413),
        (request("POST", "/", b"", "A: " + "a" * LONGEST_HEAD), 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 2 * LONGEST_HEAD, 431),
        (b"no HTTP\r\n\r\n", 400),
        (request("POST", "/", b"", "Content-Length: 1", "Content-Length: 2") + b"aa", 400),
    ],
)
def test_what_is_too_large_or_no_request_is_refused_and_the_connection_closed(port, sent, status):
    with connect(port) as connection:
        connection.sendall(sent)

        assert next_answer(connection)[0] == status
        with suppress(ConnectionResetError):  # which is what happens to those who go on sending
            assert connection.recv(1) == b""


def test_clients_that_never_finish_keep_nobody_waiting(port):
    """Many more than threads; each of them would have stopped a thread for good."""
    unfinished = [b"", b"GET", request("GET", "/")[:-2], request("POST", "/", b"a" * 100)[:-1]]
    held = [connect(port) for _ in range(20 * THREADS)]
    for number, connection in enumerate(held):
        connection.sendall(unfinished[number % len(unfinished)])

    with connect(port) as connection:
        for _ in range(10):
            connection.sendall(request("GET", "/"))
            assert next_answer(connection)[0] == 200

    for connection in held:
        connection.close()


def test_a_client_that_waited_is_answered_when_it_has_sent_the_rest(port):
    sent = request("POST", "/late", b"a" * 100)
    with connect(port) as late, connect(port) as other:
        late.sendall(sent[:-1])
        other.sendall(request("GET", "/"))
        assert next_answer(other)[0] == 200

        late.sendall(sent[-1:])
        assert next_answer(late) == (200, answer_to("POST", "/late", b"a" * 100))


def test_a_server_that_is_told_to_stop_answers_what_has_begun_and_waits_for_no_idle_connection():
    sent = request("POST", "/begun", b"a" * 100)
    with gunicorn() as (process, port), connect(port) as idle, connect(port) as begun, connect(port) as kept:
        kept.sendall(request("GET", "/"))
        assert next_answer(kept)[0] == 200
        begun.sendall(sent[:-1])
        kept.sendall(request("GET", "/"))  # answered after the server has seen what the others sent
        assert next_answer(kept)[0] == 200

        process.terminate()
        assert idle.recv(1) == b""
        begun.sendall(sent[-1:])

        assert next_answer(begun) == (200, answer_to("POST", "/begun", b"a" * 100))
        assert process.wait(20) == 0  # of the thirty that it is given
