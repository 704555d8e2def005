"""Slow and stalled clients, and ambiguous requests that a proxy and a server could parse differently."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

from tests.load.web_server import WebServer

WAIT_S = 30.0
HEAD = "Host: 127.0.0.1\r\nX-Forwarded-Proto: https\r\n"
PAGE = "/accounts/login/"
MULTIPART = "Content-Type: multipart/form-data; boundary=x\r\n"

# Request text, and the statuses of its responses. The server closes the connection after the last one.
ODD_FRAMES = {
    "20 digits of length": (f"POST {PAGE} HTTP/1.1\r\n{HEAD}{MULTIPART}Content-Length: {'9' * 20}\r\n\r\n", [413]),
    "a length with a sign": (f"POST {PAGE} HTTP/1.1\r\n{HEAD}Content-Length: +5\r\n\r\nhello", [400]),
    "two lengths": (f"POST {PAGE} HTTP/1.1\r\n{HEAD}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", [400]),
    "a length with chunks": (
        f"POST {PAGE} HTTP/1.1\r\n{HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        f"GET {PAGE} HTTP/1.1\r\n{HEAD}\r\n",
        [400],
    ),
    "chunks in HTTP/1.0": (
        f"POST {PAGE} HTTP/1.0\r\n{HEAD}Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        f"GET {PAGE} HTTP/1.1\r\n{HEAD}\r\n",
        [400],
    ),
    "an unknown transfer coding": (
        f"POST {PAGE} HTTP/1.1\r\n{HEAD}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        [501],
    ),
    "a chunk without a size": (f"POST {PAGE} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n", [400]),
    "a head without end": (f"GET {PAGE} HTTP/1.1\r\n{HEAD}X-Long: {'a' * 100_000}", [431]),
    "a space before a colon": (f"GET {PAGE} HTTP/1.1\r\n{HEAD}Content-Length : 5\r\n\r\nhello", [400]),
    "lines that end in LF": (f"GET {PAGE} HTTP/1.1\nHost: 127.0.0.1\n\nGET {PAGE} HTTP/1.1\r\n{HEAD}\r\n", [400]),
    "an upload that is too large": (
        f"POST {PAGE} HTTP/1.1\r\n{HEAD}{MULTIPART}Content-Length: {1 << 30}\r\n\r\n--x",
        [413],
    ),
}


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def send(port: int, text: str) -> socket.socket:
    """Open a connection and send `text` without reading the response."""
    connection = connect(port)
    connection.sendall(text.encode())
    return connection


def half_sent(port: int) -> socket.socket:
    return send(port, f"GET {PAGE} HTTP/1.1\r\nHost: 127.0")


def half_a_body(port: int) -> socket.socket:
    return send(port, f"POST {PAGE} HTTP/1.1\r\n{HEAD}{MULTIPART}Content-Length: 100000\r\n\r\n--x\r\n")


def reading_nothing(port: int) -> socket.socket:
    """Request more data than the socket buffers hold and read nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(WAIT_S)
    connection.connect(("127.0.0.1", port))
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        for _ in range(200):
            connection.send(f"GET {PAGE} HTTP/1.1\r\n{HEAD}\r\n".encode())
    return connection


def idle(port: int) -> socket.socket:
    """Receive a response and keep the connection open."""
    connection = send(port, f"GET /nowhere HTTP/1.1\r\n{HEAD}\r\n")
    connection.recv(65536)
    return connection


def statuses(connection: socket.socket) -> list[int]:
    """Return the response statuses until the server closes the connection, including truncated responses."""
    received = b""
    with connection, contextlib.suppress(ConnectionResetError):
        while some := connection.recv(65536):
            received += some
    return [int(answer[:3]) for answer in received.split(b"HTTP/1.1 ")[1:] + received.split(b"HTTP/1.0 ")[1:]]


def wait_for_page(port: int) -> float:
    """Return the seconds that a new client needs to receive a page."""
    begin = time.monotonic()
    with send(port, f"GET {PAGE} HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n") as connection:
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 200"), received[:200]
    assert received.rstrip().endswith(b"</html>")
    return time.monotonic() - begin


@contextlib.contextmanager
def many(kind: Callable[[int], socket.socket], n: int, port: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(kind(port)) for _ in range(n)]


def upload_while_it_stops(server: WebServer) -> int:
    """Stop the server during an upload, send the rest, and return the response status."""
    form = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"b" * 100_000 + b"\r\n--x--\r\n"
    head = f"POST {PAGE} HTTP/1.1\r\n{HEAD}{MULTIPART}Content-Length: {len(form)}\r\n\r\n"
    connection = connect(server.port)
    connection.sendall(head.encode() + form[:50_000])
    wait_for_page(server.port)  # ensures that the server has received the first part
    server.stop()
    time.sleep(1.5)
    connection.sendall(form[50_000:])
    [status] = statuses(connection)
    deadline = time.monotonic() + WAIT_S
    while server.ended_with() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.ended_with() == 0
    return status
